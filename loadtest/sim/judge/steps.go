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

// AllSteps are those that laws are judged at.
func AllSteps() []Steps {
	work := sim.Exponential(40 * time.Millisecond)
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

// Settled returns the goodput of each phase, within ten service times, once a law had time
// to settle: the longer of 200 service times and 2,000 completions. The service time is that
// with as many at once as is best. The goodput is that of another 200 service times, in the
// mean over runs, in parts of what the resource can do then.
func (s Steps) Settled(runs int, limiter func() sim.Limiter) []float64 {
	n, rate := s.Resource.Best()
	service := float64(n) / rate
	phases := make([]sim.Phase, len(s.Wide))
	for i, w := range s.Wide {
		phases[i] = sim.Phase{For: seconds(max(200*service, 2000/rate/w) + 200*service), Wide: w, Load: s.Load}
	}
	good := make([]float64, len(s.Wide))
	for run := range runs {
		u := sim.Unknown{Resource: s.Resource, Limiter: limiter(), Seed: uint64(run) + 1, Phases: phases}
		began := int64(-1)
		u.Watch = func(e sim.Ended, latency time.Duration) {
			if began < 0 {
				began = e.Now
			}
			i, left := 0, phases[0].For-time.Duration(e.Now-began) // of the phase
			for left <= 0 && i < len(phases)-1 {
				i++
				left += phases[i].For
			}
			if left > 0 && left <= seconds(200*service) && !e.Dropped && latency <= seconds(10*service) {
				good[i] += 1 / (rate * s.Wide[i] * 200 * service * float64(runs))
			}
		}
		u.Run()
	}
	return good
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
