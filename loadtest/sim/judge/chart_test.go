//go:build !race

package judge_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

var update = flag.Bool("update", false, "write the charts anew")

// What the law does in each scenario is as it is drawn. A change of the law shows as a change of
// the drawings:
//
//	go test ./loadtest/sim/judge -run Chart -update
func TestScenario_Chart(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", strings.NewReplacer(" ", "-", ",", "").Replace(s.name)+".txt")
			chart := s.chart(func() sim.Limiter { return judge.NewLearned() })
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(chart), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), chart)
		})
	}
}

// scenario is an experiment that is drawn.
type scenario struct {
	name    string
	unknown sim.Unknown
	// learners is how many share the resource, 1 if it is 0.
	learners int
}

// scenarios are those that are drawn. Each takes its phases from its first request on.
func scenarios() []scenario {
	work := sim.Exponential(40 * time.Millisecond)
	hands := sim.Resource{Work: work, Hands: 16}
	phases := func(of time.Duration, load float64, wide ...float64) (p []sim.Phase) {
		for _, w := range wide {
			p = append(p, sim.Phase{For: of, Wide: w, Load: load})
		}
		return p
	}
	minute := phases(time.Minute, 2, 1)
	return []scenario{
		{name: "overload", unknown: sim.Unknown{Resource: hands, Phases: minute}},
		{name: "half the load", unknown: sim.Unknown{Resource: hands, Phases: phases(time.Minute, 0.5, 1)}},
		{name: "crosstalk", unknown: sim.Unknown{Resource: sim.Resource{Work: work, Crosstalk: 1. / 256}, Phases: minute}},
		{name: "8, 32, 4 hands", unknown: sim.Unknown{Resource: sim.Resource{Work: work, Hands: 8}, Phases: phases(20*time.Second, 1.5, 1, 4, 0.5)}},
		{name: "night", unknown: sim.Unknown{Resource: hands, Phases: []sim.Phase{
			{For: 20 * time.Second, Wide: 1, Load: 2}, {For: 20 * time.Second, Wide: 1, Load: 0.005}, {For: 20 * time.Second, Wide: 1, Load: 2},
		}}},
		{name: "cold start of slow work", unknown: sim.Unknown{
			Resource: sim.Resource{Work: sim.Constant(2 * time.Second), Hands: 100}, Phases: phases(time.Minute, 1, 1),
		}},
		{name: "impatient clients", unknown: sim.Unknown{Resource: hands, Phases: minute, Clients: sim.Clients{Impatient: 0.3, Patience: 40 * time.Millisecond}}},
		{name: "errors in a tenth", unknown: sim.Unknown{Resource: hands, Phases: minute, Clients: sim.Clients{Errors: 0.1}}},
		{name: "orphans", unknown: sim.Unknown{
			Resource: sim.Resource{Work: work, Cores: 1, Crosstalk: 0.02, Timeout: 500 * time.Millisecond, Orphans: true}, Phases: minute,
		}},
		{name: "four learners", unknown: sim.Unknown{Resource: hands, Phases: minute}, learners: 4},
	}
}

// chart draws what a limiter comes to, in text: how many are allowed by the first learner, run
// and wait with it, and the goodput of all, each in parts of its most.
func (s scenario) chart(limiter func() sim.Limiter) string {
	u := s.unknown
	u.Limiter, u.Seed = limiter(), 1
	for i := 1; i < s.learners; i++ {
		u.Beside = append(u.Beside, sim.Beside{Limiter: limiter()})
	}
	length := time.Duration(0)
	for _, p := range u.Phases {
		length += p.For
	}
	var rows [4][]int
	var first, last sim.Glance
	u.Look = func(g sim.Glance) {
		const columns = 64
		if g.At-last.At < length/columns {
			return
		}
		if first == (sim.Glance{}) {
			first = g
		}
		for i, n := range [...]int{g.Limit, g.Running, g.Waiting, g.Good - last.Good} {
			rows[i] = append(rows[i], n)
		}
		last = g
	}
	r := u.Run()
	out := fmt.Sprintf("%s: %v, %d learners, %v from the first request on\n%.0f a second are good, of %.0f that can be at first\n",
		s.name, u.Resource, max(1, s.learners), length, r.Goodput, r.Rate)
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
			unit /= first.At.Seconds()
		}
		out += fmt.Sprintf("%-14s %s up to %.0f\n", name, line.String(), unit)
	}
	return out
}
