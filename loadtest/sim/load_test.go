package sim

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// arrivals draws the times of arrivals: exponential gaps at a rate that changes.
// Its calls say a rate, in requests a second, and for how long that holds.
type arrivals func(*rand.Rand) func() (rate float64, lasts time.Duration)

// times returns a function whose calls return the times, one after the other.
func (a arrivals) times(random *rand.Rand) func() time.Duration {
	at, until, rate, next := 0.0, 0.0, 0.0, a(random) // in seconds
	return func() time.Duration {
		for due := random.ExpFloat64(); ; {
			expected := rate * (until - at)
			if expected > due {
				at += due / rate
				return time.Duration(at * float64(time.Second))
			}
			due -= expected
			var lasts time.Duration
			at = until
			rate, lasts = next()
			until += lasts.Seconds()
		}
	}
}

// poisson is arrivals from many clients who know nothing of each other.
func poisson(rate float64) arrivals {
	return func(*rand.Rand) func() (float64, time.Duration) {
		return func() (float64, time.Duration) { return rate, never }
	}
}

// spike is base requests a second, but peak during a time that begins at from.
func spike(base, peak float64, from, length time.Duration) arrivals {
	return func(*rand.Rand) func() (float64, time.Duration) {
		n := 0
		return func() (float64, time.Duration) {
			switch n++; n {
			case 1:
				return base, from
			case 2:
				return peak, length
			default:
				return base, never
			}
		}
	}
}

// bursts come at that rate, with nothing between; both last an exponential time.
func bursts(rate float64, meanOn, meanOff time.Duration) arrivals {
	return func(random *rand.Rand) func() (float64, time.Duration) {
		on := true
		return func() (float64, time.Duration) {
			if on = !on; on {
				return rate, Exponential(meanOn).Draw(random)
			}
			return 0, Exponential(meanOff).Draw(random)
		}
	}
}

const (
	objective   = 100 * time.Millisecond
	followsWork = time.Duration(math.MinInt64)
)

// asked returns c with requests that arrive so, of its classes by their weights.
// Those of each class are sent by the client that is named, or by one of several
// alike: "other*10".
// The objective is 100 ms if it has none, and that of who follows its work if that is asked for.
func (c Config) asked(a arrivals, clients ...string) Config {
	switch c.Objective {
	case 0:
		c.Objective = objective
	case followsWork:
		c.Objective = 0
	}
	classes := c.withDefaults().Classes
	weights := 0.0
	for i := range classes {
		weights += classes[i].Weight
	}
	c.Requests = func() func() (Request, bool) {
		when, which, who := a.times(newRandom(c.Seed)), rand.New(rand.NewPCG(c.Seed, 1)), rand.New(rand.NewPCG(c.Seed, 3))
		return func() (r Request, more bool) {
			r.At = when()
			for at := which.Float64() * weights; r.Class < len(classes)-1; r.Class++ {
				if at -= classes[r.Class].Weight; at < 0 {
					break
				}
			}
			if len(clients) > 0 {
				name, many, _ := strings.Cut(clients[r.Class], "*")
				if n, err := strconv.Atoi(many); err == nil {
					name += strconv.Itoa(who.IntN(n))
				}
				r.Client = name
			}
			return r, true
		}
	}
	return c
}

// recorded returns what Config.Requests is for requests that are given.
func recorded(requests []Request) func() func() (Request, bool) {
	return func() func() (Request, bool) {
		rest := requests
		return func() (r Request, more bool) {
			if len(rest) == 0 {
				return r, false
			}
			r, rest = rest[0], rest[1:]
			return r, true
		}
	}
}
