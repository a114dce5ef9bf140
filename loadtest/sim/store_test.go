//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A store with so many hands, and nothing before it that holds requests back, is
// M/M/c: the mean wait in it is that of Erlang's C formula. Workers past its hands
// only wait there instead of in the queue.
func TestRun_StoreAsErlangC(t *testing.T) {
	t.Parallel()
	const mean, hands, use = 4 * time.Millisecond, 8, 0.7
	load := use * hands
	want := erlangC(hands, load) * mean.Seconds() / (hands * (1 - use))
	for strategy, workers := range map[string]int{"sync": 1, "fifo": 64} {
		r, err := measure(Config{
			Strategy: strategy, Workers: workers, Capacity: endless, Parallel: hands, Service: Exponential(mean),
			Warmup: 10 * time.Second, Duration: lasting(1e6, load/mean.Seconds()),
		}.asked(poisson(load / mean.Seconds())))
		require.NoError(t, err)
		require.InEpsilon(t, want+mean.Seconds(), r.MeanSojourn.Seconds(), tolerance, strategy)
		require.Less(t, r.MeanWait.Seconds(), want/100, "%s: the wait is in the store, not in the queue", strategy)
	}
}

// What waits in the store is served in the order in which it was begun, keeps its
// worker, and is work for nobody if its client goes.
func TestRun_StoreIsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	var got []Record
	r, err := measure(Config{
		Strategy: "lifo", Workers: 3, Capacity: 8, Parallel: 1, Service: Constant(10 * ms), Duration: time.Second,
		Classes:  []Class{{Timeout: 25 * ms}},
		Requests: alike(10*ms, 0, 1*ms, 2*ms, 3*ms, 4*ms),
		Observe: func(r Record) {
			r.Sent, r.Measured = 0, false
			got = append(got, r)
		},
	})
	require.NoError(t, err)
	require.Equal(t, []Record{
		{Arrival: 0, Latency: 10 * ms, Attempts: 1},
		{Arrival: 1 * ms, Latency: 19 * ms, Attempts: 1},
		// The third has begun; the first worker that was free took the newest.
		{Arrival: 2 * ms, Latency: 25 * ms, Attempts: 1, Outcome: TimedOut},
		{Arrival: 3 * ms, Latency: 25 * ms, Attempts: 1, Outcome: TimedOut},
		{Arrival: 4 * ms, Latency: 25 * ms, Attempts: 1, Outcome: TimedOut},
	}, got)
	require.EqualValues(t, 5, r.Run)
	require.EqualValues(t, 3, r.Wasted)
	require.Empty(t, r.Shed)
}

// The classic collapse: past the capacity of the store, what is not held back waits
// in it, and is late. Who is turned away by auto leaves room for the others.
func TestRun_CollapsePastTheStore(t *testing.T) {
	t.Parallel()
	for strategy, good := range map[string][2]float64{
		"sync":        {0, 0.01},
		"caller-runs": {0, 0.01},
		"unbounded":   {0, 0.01},
		"fifo":        {0, 0.01}, // a queue of 256 is longer than 100 ms
		"auto":        {0.98, 1.03},
		"lifo":        {0.98, 1.03},
	} {
		c := standard(strategy, 256, 1.5, Class{Priority: DefaultPriority, Timeout: 5 * time.Second})
		c.Parallel, c.Duration = 8, 10*time.Second
		require.Equal(t, 2000.0, c.ServiceRate())
		r, err := measure(c)
		require.NoError(t, err)
		t.Logf("%s: goodput %.4f of capacity, served p99 %v", strategy, r.OfCapacity(), r.ServedP(99))
		require.GreaterOrEqual(t, r.OfCapacity(), good[0], strategy)
		require.LessOrEqual(t, r.OfCapacity(), good[1], strategy)
	}
}
