package workload

import (
	"math/rand/v2"
	"time"
)

// Arrivals is how requests are spread over time.
type Arrivals uint8

const (
	// Poisson arrivals are those of many clients who know nothing of each other:
	// the gaps are exponential.
	Poisson Arrivals = iota
	// Constant arrivals come at equal gaps.
	Constant
)

// Never is a time that does not come.
const Never = time.Duration(1<<63 - 1)

var arrivalNames = []string{"poisson", "constant"}

// UnmarshalText takes a name.
func (a *Arrivals) UnmarshalText(text []byte) error {
	return choose(a, arrivalNames, "arrivals", text)
}

// schedule says when each request is due. It is a function of the rate, how that
// changes, the number of the request and the random numbers alone: no clock comes into it.
type schedule struct {
	kind Arrivals
	rate float64 // requests a second, 0 if nothing is scheduled
	sum  float64 // of the gaps, in units of the mean gap
	// course is how the rate changes, nil if it does not.
	course *course
}

// at returns when request number seq is due. It is called once for each, in
// order.
func (s *schedule) at(seq uint64, random *rand.Rand) time.Duration {
	if s.rate == 0 {
		return 0
	}
	// Neither way do rounding errors add up over a long run.
	gaps := float64(seq)
	if s.kind == Poisson {
		s.sum += random.ExpFloat64()
		gaps = s.sum
	}
	due := gaps / s.rate
	if s.course != nil {
		due = s.course.at(due)
	}
	due *= float64(time.Second)
	if due >= float64(Never) {
		return Never
	}
	return time.Duration(due)
}
