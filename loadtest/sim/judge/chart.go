package judge

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// Scenario is an experiment that is drawn.
type Scenario struct {
	Name    string
	Unknown sim.Unknown
	// Learners is how many share the resource, 1 if it is 0.
	Learners int
}

// Scenarios are those that are drawn. Each takes its phases from its first request on.
func Scenarios() []Scenario {
	work := sim.Exponential(40 * time.Millisecond)
	hands := sim.Resource{Work: work, Hands: 16}
	phases := func(of time.Duration, load float64, wide ...float64) (p []sim.Phase) {
		for _, w := range wide {
			p = append(p, sim.Phase{For: of, Wide: w, Load: load})
		}
		return p
	}
	minute := phases(time.Minute, 2, 1)
	return []Scenario{
		{Name: "overload", Unknown: sim.Unknown{Resource: hands, Phases: minute}},
		{Name: "half the load", Unknown: sim.Unknown{Resource: hands, Phases: phases(time.Minute, 0.5, 1)}},
		{Name: "crosstalk", Unknown: sim.Unknown{Resource: sim.Resource{Work: work, Crosstalk: 1. / 256}, Phases: minute}},
		{Name: "8, 32, 4 hands", Unknown: sim.Unknown{Resource: sim.Resource{Work: work, Hands: 8}, Phases: phases(20*time.Second, 1.5, 1, 4, 0.5)}},
		{Name: "night", Unknown: sim.Unknown{Resource: hands, Phases: []sim.Phase{
			{For: 20 * time.Second, Wide: 1, Load: 2}, {For: 20 * time.Second, Wide: 1, Load: 0.005}, {For: 20 * time.Second, Wide: 1, Load: 2},
		}}},
		{Name: "cold start of slow work", Unknown: sim.Unknown{
			Resource: sim.Resource{Work: sim.Constant(2 * time.Second), Hands: 100}, Phases: phases(time.Minute, 1, 1),
		}},
		{Name: "impatient clients", Unknown: sim.Unknown{Resource: hands, Phases: minute, Clients: sim.Clients{Impatient: 0.3, Patience: 40 * time.Millisecond}}},
		{Name: "errors in a tenth", Unknown: sim.Unknown{Resource: hands, Phases: minute, Clients: sim.Clients{Errors: 0.1}}},
		{Name: "orphans", Unknown: sim.Unknown{
			Resource: sim.Resource{Work: work, Cores: 1, Crosstalk: 0.02, Timeout: 500 * time.Millisecond, Orphans: true}, Phases: minute,
		}},
		{Name: "four learners", Unknown: sim.Unknown{Resource: hands, Phases: minute}, Learners: 4},
	}
}

// Chart draws what a limiter comes to, in text: how many are allowed by the first learner, run
// and wait with it, and the goodput of all, each in parts of its most.
func (s Scenario) Chart(limiter func() sim.Limiter) string {
	u := s.Unknown
	u.Limiter, u.Seed = limiter(), 1
	for i := 1; i < s.Learners; i++ {
		u.Beside = append(u.Beside, sim.Beside{Limiter: limiter()})
	}
	var rows [4][]int
	var step time.Duration
	u.Look = func(g sim.Glance) {
		if step == 0 {
			step = g.At
		}
		for i, n := range [...]int{g.Limit, g.Running, g.Waiting, g.Good} {
			rows[i] = append(rows[i], n)
		}
	}
	r := u.Run()
	length := time.Duration(0)
	for _, p := range u.Phases {
		length += p.For
	}
	out := fmt.Sprintf("%s: %v, %d learners, %v from the first request on\n%.0f a second are good, of %.0f that can be at first\n",
		s.Name, u.Resource, max(1, s.Learners), length, r.Goodput, r.Rate)
	for i, name := range [...]string{"limit", "running", "waiting", "good a second"} {
		most, bars := 0, []rune("▁▂▃▄▅▆▇█")
		for _, n := range rows[i] {
			most = max(most, n)
		}
		var line strings.Builder
		for _, n := range rows[i] {
			line.WriteRune(bars[n*(len(bars)-1)/max(1, most)])
		}
		unit := float64(most)
		if i == 3 {
			unit /= step.Seconds()
		}
		out += fmt.Sprintf("%-14s %s up to %.0f\n", name, line.String(), unit)
	}
	return out
}
