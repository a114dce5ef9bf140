package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// Arrivals says when requests arrive.
type Arrivals interface {
	// Times returns a function whose calls return the times of the arrivals since
	// the start of the simulation, one after the other, none before the last; Never
	// if there are no more. It draws from random alone.
	Times(random *rand.Rand) func() time.Duration
}

// Poisson is how many requests arrive in a second, from many clients who know
// nothing of each other: the gaps are exponential.
type Poisson float64

// Times implements Arrivals.
func (p Poisson) Times(random *rand.Rand) func() time.Duration {
	at, gap := 0.0, float64(time.Second)/float64(p)
	return func() time.Duration {
		at += random.ExpFloat64() * gap
		return inTime(at)
	}
}

// Paced is how many requests arrive in a second, at equal gaps.
type Paced float64

// Times implements Arrivals.
func (p Paced) Times(*rand.Rand) func() time.Duration {
	n, gap := 0.0, float64(time.Second)/float64(p)
	return func() time.Duration {
		n++
		return inTime(n * gap)
	}
}

// OnOff is bursty: Poisson arrivals whose rate changes at random between two.
type OnOff struct {
	// On and Off are the two rates, in requests a second.
	On, Off float64
	// MeanOn and MeanOff are how long each lasts in the mean; the times are
	// exponential. It begins with Off.
	MeanOn, MeanOff time.Duration
}

// Times implements Arrivals.
func (o OnOff) Times(random *rand.Rand) func() time.Duration {
	at, on := 0.0, false
	until := random.ExpFloat64() * float64(o.MeanOff)
	return func() time.Duration {
		due := random.ExpFloat64() // arrivals of rate 1 until the next
		for {
			rate := o.Off
			if on {
				rate = o.On
			}
			if expected := rate * (until - at) / float64(time.Second); expected <= due {
				due -= expected
			} else {
				at += due / rate * float64(time.Second)
				return inTime(at)
			}
			on, at = !on, until
			mean := o.MeanOff
			if on {
				mean = o.MeanOn
			}
			until += random.ExpFloat64() * float64(mean)
		}
	}
}

// Profile is Poisson arrivals whose rate changes over time: in straight lines
// from point to point, and in a step where two points have the same time. Before
// the first and after the last point the rate is theirs.
type Profile struct {
	// Points are in the order of their times.
	Points []Point
	// Period, if not 0, is after how long the profile begins anew.
	Period time.Duration
}

// Point is a rate, in requests a second, at a time since the start.
type Point struct {
	At   time.Duration
	Rate float64
}

// Spike returns the profile of a load that is base requests a second, but peak
// during a time that begins at from.
func Spike(base, peak float64, from, length time.Duration) Profile {
	return Profile{Points: []Point{{from, base}, {from, peak}, {from + length, peak}, {from + length, base}}}
}

// Ramp returns the profile of a load that goes from one rate to another between
// two times.
func Ramp(low, high float64, from, to time.Duration) Profile {
	return Profile{Points: []Point{{from, low}, {to, high}}}
}

// Times implements Arrivals.
func (p Profile) Times(random *rand.Rand) func() time.Duration {
	begun := 0.0 // of the present period
	at, next := 0.0, 0
	return func() time.Duration {
		due := random.ExpFloat64()
		for {
			// The line from here on: its rate now, its slope, and its end.
			rate, slope, until := p.line(at-begun, next)
			until += begun
			if p.Period > 0 {
				until = min(until, begun+float64(p.Period))
			}
			length := (until - at) / float64(time.Second)
			expected := rate*length + slope*length*length/2
			if math.IsInf(until, 1) && rate > 0 || expected > due {
				at += solve(rate, slope, due) * float64(time.Second)
				return inTime(at)
			}
			if math.IsInf(until, 1) {
				return Never
			}
			due -= expected
			at = until
			if p.Period > 0 && at >= begun+float64(p.Period) {
				begun, next = at, 0
			} else {
				next++
			}
		}
	}
}

// line returns the rate at a time before the point with that index, how much it
// changes in a second, and the time of the point.
func (p Profile) line(at float64, next int) (rate, slope, until float64) {
	switch {
	case next == len(p.Points):
		return p.Points[next-1].Rate, 0, math.Inf(1)
	case next == 0:
		return p.Points[0].Rate, 0, float64(p.Points[0].At)
	}
	from, to := p.Points[next-1], p.Points[next]
	until = float64(to.At)
	if to.At == from.At {
		return from.Rate, 0, until
	}
	slope = (to.Rate - from.Rate) / (to.At - from.At).Seconds()
	return from.Rate + slope*(at-float64(from.At))/float64(time.Second), slope, until
}

// solve returns after how many seconds due arrivals are expected.
func solve(rate, slope, due float64) float64 {
	// The root of slope/2 t² + rate t = due, in the form that is exact for small
	// slopes as well.
	return 2 * due / (rate + math.Sqrt(max(0, rate*rate+2*slope*due)))
}

func inTime(nanoseconds float64) time.Duration {
	if nanoseconds >= float64(Never) {
		return Never
	}
	return time.Duration(nanoseconds)
}
