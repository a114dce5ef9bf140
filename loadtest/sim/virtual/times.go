package virtual

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// times is a multiple of another distribution.
type times struct {
	sim.Distribution
	factor float64
}

// Draw returns a time.
func (t times) Draw(r *rand.Rand) time.Duration {
	return time.Duration(t.factor * float64(t.Distribution.Draw(r)))
}

// Mean returns the mean.
func (t times) Mean() time.Duration { return time.Duration(t.factor * float64(t.Distribution.Mean())) }
