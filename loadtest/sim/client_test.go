//go:build !race

package sim

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

const ms = time.Millisecond

// mixed is a load with everything in it: several classes and clients, deadlines,
// abandonment, retries, a spike, two nodes, connections that run out.
func mixed(strategy string, seed uint64) Config {
	c := Config{
		Strategy: strategy, Workers: 4, Capacity: 64, Parallel: 3, Nodes: make([]Node, 2), Balance: PowerOfTwo, Seed: seed,
		Connections: 400,
		Classes: []Class{
			{Name: "greedy", Weight: 6, Service: Exponential(4 * ms), Priority: 4, Timeout: 300 * ms,
				Retry: Retry{Attempts: 3, Backoff: 10 * ms, Jitter: true}},
			{Name: "modest", Weight: 3, Service: LogNormal{4 * ms, 2}, Priority: 1, Timeout: 50 * ms, Deadline: true},
			{Name: "patient", Service: Bimodal{ms, 50 * ms, 0.05}, Priority: 7},
		},
		Warmup: 100 * ms, Duration: 900 * ms,
	}
	return c.asked(spike(1500, 6000, 300*ms, 300*ms), "greedy", "modest*5", "")
}

// Every request ends once, and every attempt is run or shed, under every
// strategy; and under each of them the same requests arrive.
func TestRun_Conserves(t *testing.T) {
	t.Parallel()
	type arrived struct{ all, greedy, modest int64 }
	load := map[arrived]bool{}
	for _, strategy := range strategies.Names() {
		c := mixed(strategy, 1)
		records := int64(0)
		c.Observe = func(r Record) {
			if r.Measured {
				records++
			}
		}
		r, err := measure(c)
		require.NoError(t, err)
		all := []Counts{r.Counts}
		for _, class := range r.Classes {
			all = append(all, class.Counts)
		}
		for i, n := range all {
			what := fmt.Sprintf("%s, %d: %+v", strategy, i, n)
			require.Equal(t, n.Offered, n.Served+n.Refused+n.TimedOut, what)
			shed := int64(0)
			for _, count := range n.Shed {
				shed += count
			}
			require.Equal(t, n.Attempts, n.Run+shed, what)
			require.Equal(t, n.Served, n.Run-n.Wasted, what)
			require.Equal(t, n.Offered, n.Latency.TotalCount(), what)
			require.Equal(t, n.Served, n.ServedLatency.TotalCount(), what)
		}
		require.Equal(t, r.Offered, records)
		var nodes NodeResult
		for _, n := range r.Nodes {
			nodes.Attempts += n.Attempts
			nodes.Run += n.Run
			nodes.Shed += n.Shed
		}
		require.Equal(t, NodeResult{r.Attempts, r.Run, r.Attempts - r.Run}, nodes)
		load[arrived{r.Offered, r.Classes[0].Offered, r.Classes[1].Offered}] = true
	}
	require.Len(t, load, 1)
}

// The same seed gives the same result, byte for byte, and another seed another.
func TestRun_IsDeterministic(t *testing.T) {
	t.Parallel()
	run := func(strategy string, seed uint64) (*Result, []Record) {
		c := mixed(strategy, seed)
		var records []Record
		c.Observe = func(r Record) { records = append(records, r) }
		r, err := measure(c)
		require.NoError(t, err)
		return r, records
	}
	for _, strategy := range strategies.Names() {
		if slices.Contains(random, strategy) {
			continue
		}
		first, records := run(strategy, 1)
		again, recordsAgain := run(strategy, 1)
		chance := "chance in it needs a fixed seed, or a place among those that are random"
		require.True(t, reflect.DeepEqual(first, again), "%s: two runs with one seed differ: %s", strategy, chance)
		require.True(t, slices.Equal(records, recordsAgain), "%s: two runs with one seed differ: %s", strategy, chance)
		_, others := run(strategy, 2)
		require.False(t, slices.Equal(records, others), strategy)
	}
}

// alike makes requests of one class, that take so long each.
func alike(service time.Duration, times ...time.Duration) func() func() (Request, bool) {
	var requests []Request
	for _, t := range times {
		requests = append(requests, Request{At: t, Service: service})
	}
	return recorded(requests)
}

// What clients and their service do, event by event: one worker, room for one.
func TestRun_Clients(t *testing.T) {
	t.Parallel()
	served := func(at, latency time.Duration, attempts int) Record {
		return Record{Arrival: at, Latency: latency, Attempts: attempts}
	}
	refused := func(at, latency time.Duration, attempts int, reason strategies.Reason) Record {
		return Record{Arrival: at, Latency: latency, Attempts: attempts, Outcome: Refused, Reason: reason}
	}
	timedOut := func(at, latency time.Duration, attempts int) Record {
		return Record{Arrival: at, Latency: latency, Attempts: attempts, Outcome: TimedOut}
	}
	for name, tt := range map[string]struct {
		config Config
		want   []Record
		shed   map[string]int64
		run    int64
	}{
		// The first runs, the second waits, the third finds no room.
		"full": {
			Config{Requests: alike(10*ms, 0, ms, 2*ms)},
			[]Record{refused(2*ms, 0, 1, strategies.ReasonFull), served(0, 10*ms, 1), served(ms, 19*ms, 1)},
			map[string]int64{"full": 1}, 2,
		},
		// A deadline answers while the request waits, and not once it runs: then its
		// client goes, and the work is for nobody.
		"deadlines": {
			Config{Requests: alike(10*ms, 0, ms, 12*ms), Classes: []Class{{Timeout: 8 * ms, Deadline: true}}},
			[]Record{timedOut(0, 8*ms, 1), refused(ms, 8*ms, 1, strategies.ReasonExpired), timedOut(12*ms, 8*ms, 1)},
			map[string]int64{"expired": 1}, 2,
		},
		// Without a word the service sees the client go.
		"abandoned": {
			Config{Requests: alike(10*ms, 0, ms), Classes: []Class{{Timeout: 8 * ms}}},
			[]Record{timedOut(0, 8*ms, 1), timedOut(ms, 8*ms, 1)},
			map[string]int64{"abandoned": 1}, 1,
		},
		// The third comes again at 5 ms, finds no room, and at 11 ms, when there is.
		"retries": {
			Config{Requests: alike(10*ms, 0, ms, 2*ms), Classes: []Class{{Retry: Retry{Attempts: 3, Backoff: 3 * ms}}}},
			[]Record{served(0, 10*ms, 1), served(ms, 19*ms, 1), served(2*ms, 28*ms, 3)},
			map[string]int64{"full": 2}, 3,
		},
		// Whoever gives up while it runs and tries again makes it work twice.
		"retries after a time-out": {
			Config{Requests: alike(10*ms, 0), Classes: []Class{{Timeout: 8 * ms, Retry: Retry{Attempts: 2}}}},
			[]Record{timedOut(0, 16*ms, 2)},
			map[string]int64{"abandoned": 0}, 2,
		},
		// An eighth of a retry for each request is one for the first eight.
		"a budget": {
			Config{Requests: alike(100*ms, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), Classes: []Class{{Retry: Retry{Attempts: 2, Backoff: time.Second, Budget: 0.125}}}},
			nil, map[string]int64{"full": 10}, 3,
		},
		// With two connections the third request waits for one, and then for the
		// worker; its patience counts from when it was due.
		"connections": {
			Config{Requests: alike(10*ms, 0, ms, 2*ms, 3*ms), Connections: 2, Classes: []Class{{Timeout: 25 * ms}}},
			[]Record{served(0, 10*ms, 1), served(ms, 19*ms, 1), timedOut(2*ms, 25*ms, 1), timedOut(3*ms, 25*ms, 1)},
			map[string]int64{"abandoned": 1}, 3,
		},
		// Those who wait for a connection do not reach the service before they go.
		"unsent": {
			Config{Requests: alike(10*ms, 0, ms), Connections: 1, Classes: []Class{{Timeout: 5 * ms}}},
			[]Record{timedOut(0, 5*ms, 1), timedOut(ms, 5*ms, 1)},
			map[string]int64{}, 1,
		},
	} {
		c := tt.config
		c.Strategy, c.Workers, c.Capacity, c.Duration = "fifo", 1, 1, time.Minute
		c.Service = Constant(10 * ms)
		var got []Record
		c.Observe = func(r Record) {
			require.True(t, r.Measured, name)
			r.Sent, r.Measured = 0, false
			got = append(got, r)
		}
		r, err := measure(c)
		require.NoError(t, err, name)
		if tt.want != nil {
			require.Equal(t, tt.want, got, name)
		}
		for reason, n := range tt.shed {
			require.Equal(t, n, r.Shed[reason], "%s: %s of %v", name, reason, r.Shed)
		}
		require.Equal(t, tt.run, r.Run, name)
	}
}

// A closed loop keeps as many requests on their way as it has connections.
func TestRun_ClosedLoop(t *testing.T) {
	t.Parallel()
	r, err := measure(Config{
		Strategy: "fifo", Workers: 8, Service: Constant(4 * ms), Connections: 64, Closed: true, Warmup: time.Second, Duration: 10 * time.Second,
	}.asked(poisson(1)))
	require.NoError(t, err)
	require.InEpsilon(t, 2000, float64(r.Served)/r.Seconds, 0.01)
	require.InEpsilon(t, 64.0/2000, r.MeanSojourn.Seconds(), 0.02)
	// With time to think they ask for less than can be done.
	r, err = measure(Config{
		Strategy: "fifo", Workers: 8, Service: Constant(4 * ms), Connections: 64, Closed: true, Think: 96 * ms, Duration: 10 * time.Second,
	}.asked(poisson(1)))
	require.NoError(t, err)
	require.Less(t, float64(r.Served)/r.Seconds, 64/0.1+10)
	require.Greater(t, float64(r.Served)/r.Seconds, 64/0.13)
	// More than there is room for: those turned away come again after a turnaround.
	r, err = measure(Config{
		Strategy: "fifo", Workers: 1, Capacity: 1, Service: Constant(10 * ms), Connections: 3, Closed: true, Duration: time.Second,
	}.asked(poisson(1)))
	require.NoError(t, err)
	require.InEpsilon(t, 100, float64(r.Served)/r.Seconds, 0.03)
	require.InEpsilon(t, 10_000, float64(r.Refused), 0.03)
	// However many there are, they do not come again more than a million times a second.
	r, err = measure(Config{
		Strategy: "fifo", Service: Constant(10 * ms), Connections: 20_000, Closed: true, Duration: 100 * ms,
	}.asked(poisson(1)))
	require.NoError(t, err)
	require.InEpsilon(t, 100_000, float64(r.Refused), 0.2)
}

// Retries without back-off make an overload worse, and a budget bounds by how
// much.
func TestRun_RetryStorm(t *testing.T) {
	t.Parallel()
	attempts := func(retry Retry) float64 {
		c := standard("fifo", 64, 1.5, Class{Retry: retry})
		c.Warmup, c.Duration = time.Second, 10*time.Second
		r, err := measure(c)
		require.NoError(t, err)
		return float64(r.Attempts) / float64(r.Offered)
	}
	require.Equal(t, 1.0, attempts(Retry{}))
	require.Greater(t, attempts(Retry{Attempts: 5, Backoff: ms}), 2.0)
	require.InDelta(t, 1.1, attempts(Retry{Attempts: 5, Backoff: ms, Budget: 0.1}), 0.01)
}

// Greedy clients send as much as their weight says, from a name of their own.
func TestRun_ClientsOfUnequalGreed(t *testing.T) {
	t.Parallel()
	c := standard("fifo", 256, 0.5, Class{Name: "greedy", Weight: 95}, Class{Name: "others", Weight: 5})
	c = c.asked(poisson(0.5*c.ServiceRate()), "greedy", "other-*10")
	names := map[string]int{}
	c.Observe = func(r Record) { names[r.Client]++ }
	c.Warmup = 0
	r, err := measure(c)
	require.NoError(t, err)
	require.Len(t, names, 11)
	require.InDelta(t, 0.95, float64(r.Classes[0].Offered)/float64(r.Offered), 0.01)
	require.InDelta(t, 0.005, float64(names["other-7"])/float64(r.Offered), 0.002)
}
