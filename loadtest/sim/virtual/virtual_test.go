//go:build !race

package virtual

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/workload"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const ms = time.Millisecond

func options() workload.Options {
	return workload.Options{
		Rate: 4000, Warmup: 500 * ms, Duration: 2 * time.Second, Connections: 4000, Mix: workload.Mix{Get: 90, Put: 5, Scan: 5}, Seed: 1,
		Clients: "greedy=95,other*19=5", Priority: workload.Priorities{0: 1, 7: 9}, Timeout: time.Second, TimeoutHeader: true,
	}
}

// A result counts every request once, as that of a real run does.
func TestService_Simulate(t *testing.T) {
	t.Parallel()
	s := &Service{Work: sim.Exponential(4 * ms), ScanCost: 1, Built: "test"}
	c := &scenario.Combination{Strategy: "lifo", Workers: 8, Capacity: 64, Rate: "4000"}
	r, err := s.Simulate(t.Context(), c, options())
	require.NoError(t, err)
	require.InEpsilon(t, 4000, r.OfferedRPS, 0.05)
	require.InEpsilon(t, 2000, r.ServedRPS, 0.05)
	require.Equal(t, r.Requests, r.Status["200"]+r.Status["201"]+r.Status["503"]+r.Status["504"]+r.Errors[result.ErrorTimeout])
	require.Equal(t, r.Status["503"]+r.Status["504"], r.Shed["displaced"]+r.Shed["expired"])
	require.InEpsilon(t, 0.05, float64(r.Status["201"])/float64(r.Status["200"]+r.Status["201"]), 0.2)
	require.Equal(t, r.Requests, r.Operations["get"]+r.Operations["put"]+r.Operations["scan"])
	require.Equal(t, r.Requests, r.Shares["client greedy"].Requests+r.Shares["client other"].Requests)
	require.Equal(t, r.Requests, r.Shares["priority 0"].Requests+r.Shares["priority 7"].Requests)
	require.InDelta(t, r.GoodputRPS*r.Seconds, float64(r.Shares["get"].Good+r.Shares["put"].Good+r.Shares["scan"].Good), 0.5)
	require.Equal(t, 8, r.Workers)
	require.Equal(t, 64, *r.Capacity)
	again, err := s.Simulate(t.Context(), c, options())
	require.NoError(t, err)
	require.Equal(t, r, again)
}

// A closed loop sends what loadtest run sends: from whom it says, of the classes
// that it says.
func TestService_ClosedLoop(t *testing.T) {
	t.Parallel()
	s := &Service{Work: sim.Exponential(4 * ms)}
	o := options()
	o.Rate, o.Connections, o.Warmup = 0, 64, 0
	r, err := s.Simulate(t.Context(), &scenario.Combination{Strategy: "fifo", Workers: 8}, o)
	require.NoError(t, err)
	require.InEpsilon(t, 2000, r.ServedRPS, 0.05)
	require.InDelta(t, 0.95, float64(r.Shares["client greedy"].Requests)/float64(r.Requests), 0.02)
	require.InDelta(t, 0.1, float64(r.Shares["priority 0"].Requests)/float64(r.Requests), 0.02)
	require.InDelta(t, 0.9, float64(r.Operations["get"])/float64(r.Requests), 0.02)
}

// Past the hands of its store a service without a queue answers nobody in time, as
// all wait in the store; auto keeps its own.
func TestService_StoreParallel(t *testing.T) {
	t.Parallel()
	s := new(Service)
	o := workload.Options{Rate: 3000, Warmup: time.Second, Duration: 2 * time.Second, Connections: 20_000, Mix: workload.Mix{Get: 1}, SLO: 100 * ms}
	goodput := func(strategy string, parallel int) float64 {
		c := &scenario.Combination{Strategy: strategy, Workers: 8, Capacity: 256, StoreDelay: "exp:4ms", StoreParallel: parallel}
		if strategy == "sync" {
			c.Workers, c.Capacity = 0, 0 // as in a scenario
		}
		r, err := s.Simulate(t.Context(), c, o)
		require.NoError(t, err)
		if parallel > 0 {
			capacity, err := s.Capacity(c, o)
			require.NoError(t, err)
			require.Equal(t, 2000.0, capacity, strategy)
		}
		return r.GoodputRPS / 2000
	}
	for _, strategy := range []string{"sync", "caller-runs"} {
		require.Less(t, goodput(strategy, 8), 0.01, strategy)
	}
	require.Greater(t, goodput("sync", 0), 1.4, "as many hands as there are requests")
	require.Greater(t, goodput("auto", 8), 0.98)
	// More workers than hands serve no more.
	capacity, err := s.Capacity(&scenario.Combination{Strategy: "fifo", Workers: 64, StoreDelay: "exp:4ms", StoreParallel: 8}, o)
	require.NoError(t, err)
	require.Equal(t, 2000.0, capacity)
}

// A request of cost 9 takes nine times as long as one of cost 1, and there are as many of each.
func TestService_Costs(t *testing.T) {
	t.Parallel()
	s, c := &Service{Work: sim.Constant(ms), Costs: []int{1, 9}}, &scenario.Combination{Strategy: "fifo", Workers: 8, Capacity: 256}
	capacity, err := s.Capacity(c, options())
	require.NoError(t, err)
	require.Equal(t, 8*1000/5., capacity)
	o := options()
	o.Keys = 1
	config, kinds, err := s.config(c, o)
	require.NoError(t, err)
	next, count := config.Requests(), map[int]float64{}
	for range 10_000 {
		r, more := next()
		require.True(t, more)
		require.Equal(t, kinds[r.Class].cost, config.Classes[r.Class].Cost)
		require.Equal(t, time.Duration(kinds[r.Class].cost)*ms, config.Classes[r.Class].Service.Mean())
		count[kinds[r.Class].cost]++
	}
	require.InEpsilon(t, count[1], count[9], 0.1)
}

// Strategies steer by the SLO unless they are told something else. Over 64 connections it
// matters when the clock begins.
func TestService_Objective(t *testing.T) {
	t.Parallel()
	s := new(Service)
	o := workload.Options{Rate: 400, Warmup: 5 * time.Second, Duration: 10 * time.Second, Connections: 64, Mix: workload.Mix{Get: 1}, SLO: 200 * ms}
	run := func(objective string) *result.Result {
		c := &scenario.Combination{Strategy: "auto", Workers: 4, StoreDelay: "20ms", Objective: objective}
		r, err := s.Simulate(t.Context(), c, o)
		require.NoError(t, err)
		return r
	}
	told := run("")
	require.Greater(t, told.GoodputRPS, 0.95*200)
	require.Equal(t, told, run("200ms"))
	// 64 connections of 20 ms over 4 workers fit into 320 ms: nobody is late.
	for _, objective := range []string{"400ms", "none"} {
		lax := run(objective)
		require.Empty(t, lax.Shed, objective)
		require.Less(t, lax.SentGoodputRPS, 0.1*200, objective)
	}
	// 100 ms stand in, or ten times the work, which is the SLO here.
	require.InEpsilon(t, told.SentGoodputRPS, run(scenario.Unset).SentGoodputRPS, 0.05)
	_, err := s.Simulate(t.Context(), &scenario.Combination{Strategy: "auto", Workers: 4, StoreDelay: "20ms", Objective: "soon"}, o)
	require.ErrorContains(t, err, "objective")
}

// What the strategies are for is seen in the shares.
func TestService_Shares(t *testing.T) {
	t.Parallel()
	s := &Service{Work: sim.Exponential(4 * ms)}
	good := func(strategy, who string) float64 {
		r, err := s.Simulate(t.Context(), &scenario.Combination{Strategy: strategy, Workers: 8, Capacity: 256}, options())
		require.NoError(t, err)
		return float64(r.Shares[who].Good) / float64(r.Shares[who].Requests)
	}
	require.Greater(t, good("fair", "client other"), 0.99)
	require.Less(t, good("fifo", "client other"), 0.1)
	require.Greater(t, good("priority", "priority 0"), 0.99)
	require.Less(t, good("fifo", "priority 0"), 0.1)
}

func TestService_WhatItCannot(t *testing.T) {
	t.Parallel()
	for want, tt := range map[string]struct {
		service     Service
		combination scenario.Combination
	}{
		"how long does a request take": {Service{}, scenario.Combination{Strategy: "fifo"}},
		"store_delay":                  {Service{}, scenario.Combination{Strategy: "fifo", StoreDelay: "soon"}},
		"balance":                      {Service{Work: sim.Constant(ms)}, scenario.Combination{Strategy: "fifo", Nodes: 2, Balance: "best"}},
		"unknown strategy":             {Service{Work: sim.Constant(ms)}, scenario.Combination{Strategy: "best"}},
		"all have to be above 0":       {Service{Work: sim.Constant(ms)}, scenario.Combination{Strategy: "fifo", Workers: -1}},
		"a mean of 0s is not above 0":  {Service{Work: sim.Constant(0)}, scenario.Combination{Strategy: "fifo"}},
	} {
		_, err := tt.service.Simulate(t.Context(), &tt.combination, options())
		require.ErrorContains(t, err, want)
	}
}

// Clients that try again are counted as the generator counts them.
func TestService_Retries(t *testing.T) {
	t.Parallel()
	s := Service{Work: sim.Constant(4 * ms)}
	c := scenario.Combination{Strategy: "fifo", Workers: 1, Capacity: 1}
	o := workload.Options{Rate: 1000, Connections: 1000, Mix: workload.Mix{Get: 1}, Duration: time.Second}
	r, err := s.Simulate(t.Context(), &c, o)
	require.NoError(t, err)
	require.Nil(t, r.Retries)
	o.Retries = workload.Retries{Attempts: 3, Backoff: ms}
	r, err = s.Simulate(t.Context(), &c, o)
	require.NoError(t, err)
	require.Greater(t, *r.Retries, r.Requests, "most are refused three times")
	require.LessOrEqual(t, *r.Retries, 2*r.Requests)
	// One who gives up twice, and waits in between, has waited twice as long.
	s.Work, o.Timeout, o.Retries.Attempts = sim.Constant(time.Minute), 50*ms, 2
	r, err = s.Simulate(t.Context(), &c, o)
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.Latency.Max, 100.0)
}

// A fleet is so many services with the settings of the combination, each with
// connections of its own, behind the balancer that is asked for.
func TestService_Fleet(t *testing.T) {
	t.Parallel()
	s := &Service{Work: sim.Constant(4 * ms)}
	o := workload.Options{Rate: 10_000, Connections: 10, Mix: workload.Mix{Get: 1}, Duration: time.Second, Clients: "one"}
	c := scenario.Combination{Strategy: "fifo", Workers: 2, Capacity: 3, Nodes: 4, SlowNode: 0.5}
	capacity, err := s.Capacity(&c, o)
	require.NoError(t, err)
	require.InDelta(t, 3.5*500, capacity, 1e-6)
	r, err := s.Simulate(t.Context(), &c, o)
	require.NoError(t, err)
	require.Equal(t, 8, r.Workers)
	require.Equal(t, 12, *r.Capacity)
	require.Positive(t, r.Shed["full"], "40 connections are more than 8 workers and 12 places")
	require.InEpsilon(t, 1750, r.ServedRPS, 0.05)
	// All that one client sends goes to one node.
	c.SlowNode, c.Balance = 0, "client-hash"
	r, err = s.Simulate(t.Context(), &c, o)
	require.NoError(t, err)
	require.InEpsilon(t, 500, r.ServedRPS, 0.05)
}

// A comparison that is simulated has the form of a real one: it is whole, and the
// same each time but for when it was made.
func TestCompare_Simulated(t *testing.T) {
	t.Parallel()
	what, err := scenario.New("s", "S", "Q?", scenario.Settings{
		"strategy": {"fifo", "lifo"}, "workers": {"8"}, "store_delay": {"exp:4ms"}, "connections": {"2000"},
		"rate": {"0.5x", "2x", "max"}, "retries": {"2,10ms"}, "profile": {"spike:2x,100ms"},
		"nodes": {"2"}, "slow_node": {"0.5"},
	})
	require.NoError(t, err)
	what.Duration, what.Warmup, what.Repetitions = 300*ms, 100*ms, 1
	self, err := os.Executable()
	require.NoError(t, err)
	compare := func(dir string) *lab.Comparison {
		c, err := lab.Compare(context.Background(), *what, lab.CompareOptions{
			Binary: self, Dir: dir, Simulator: &Service{Built: "test"},
		})
		require.NoError(t, err)
		require.Empty(t, c.Partial)
		return c
	}
	one, two := t.TempDir(), t.TempDir()
	c := compare(one)
	require.Equal(t, "simulated by test", c.Version)
	for load, capacity := range c.Capacity {
		require.InDelta(t, 3000, capacity, 1e-6, load)
	}
	for _, g := range c.Groups {
		require.Len(t, g.Runs, 1)
	}
	compare(two)
	for _, g := range c.Groups {
		for _, run := range g.Runs {
			a, err := os.ReadFile(filepath.Join(one, run))
			require.NoError(t, err)
			b, err := os.ReadFile(filepath.Join(two, run))
			require.NoError(t, err)
			require.Equal(t, string(a), string(b), run)
		}
	}
}
