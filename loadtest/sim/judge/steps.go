package judge

import (
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// Steps is a resource whose capacity steps.
type Steps struct {
	Name     string
	Resource sim.Resource
	// Load is how many times what it can do at each moment arrives.
	Load float64
	// Wide is how many times as many it can do at once, in one phase after another.
	Wide []float64
}

// What is the same for all AllSteps: the mean service time, how long a phase is, and how
// much of that a law has to settle, which is 200 service times.
const (
	stepService = 40 * time.Millisecond
	stepPhase   = 16 * time.Second
	stepSettle  = 200 * stepService
)

// AllSteps are those that laws are judged at.
func AllSteps() []Steps {
	work := sim.Exponential(stepService)
	hands, cores := sim.Resource{Work: work, Hands: 16}, sim.Resource{Work: work, Cores: 16}
	crosstalk := sim.Resource{Work: work, Crosstalk: 1. / 256}
	double, halve := []float64{1, 2}, []float64{1, 0.5}
	return []Steps{
		{"8, 32, 4 hands", sim.Resource{Work: work, Hands: 8}, 1.5, []float64{1, 4, 0.5}},
		{"16 hands double", hands, 2, double},
		{"16 hands halve", hands, 2, halve},
		{"16 cores double", cores, 2, double},
		{"16 cores halve", cores, 2, halve},
		{"crosstalk, best at 16, doubles", crosstalk, 2, double},
		{"crosstalk, best at 16, halves", crosstalk, 2, halve},
	}
}

// Settled returns the goodput of each phase, within ten service times, once 200 service
// times have gone by: the mean over runs, in parts of what the resource can do in the
// phase.
func (s Steps) Settled(runs int, limiter func() sim.Limiter) []float64 {
	_, rate := s.Resource.Best()
	good := make([]float64, len(s.Wide))
	for run := range runs {
		u := sim.Unknown{Resource: s.Resource, Limiter: limiter(), Seed: uint64(run) + 1}
		for _, w := range s.Wide {
			u.Phases = append(u.Phases, sim.Phase{For: stepPhase, Wide: w, Load: s.Load})
		}
		began := int64(-1)
		u.Watch = func(e sim.Ended, latency time.Duration) {
			if began < 0 {
				began = e.Now
			}
			i, at := int((e.Now-began)/int64(stepPhase)), time.Duration((e.Now-began)%int64(stepPhase))
			if i < len(good) && at > stepSettle && !e.Dropped && latency <= 10*stepService {
				good[i] += 1 / (rate * s.Wide[i] * (stepPhase - stepSettle).Seconds() * float64(runs))
			}
		}
		u.Run()
	}
	return good
}
