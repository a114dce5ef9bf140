//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fleet is ten nodes near their capacity, of which the first has that speed.
func fleet(balance Balance, speed float64) Config {
	c := Config{
		Strategy: "fifo", Workers: 8, Capacity: 256, Nodes: make([]Node, 10), Balance: balance, Service: Exponential(4 * ms),
		Warmup: time.Second, Duration: 5 * time.Second, Seed: 1,
	}
	c.Nodes[0].Speed = speed
	c.Arrivals = Poisson(0.85 * 10 * 8 / (4 * ms).Seconds())
	return c
}

// One slow node costs a balancer that does not look at the queues all that it
// sends there; those that look send it less.
func TestRun_FleetWithASlowNode(t *testing.T) {
	t.Parallel()
	for balance, good := range map[Balance][2]float64{
		RoundRobin:       {0.88, 0.96},
		Random:           {0.88, 0.96},
		LeastOutstanding: {0.999, 1},
		PowerOfTwo:       {0.995, 1},
	} {
		r, err := Run(fleet(balance, 0.4))
		require.NoError(t, err)
		require.InDelta(t, 9.4*2000, r.Capacity, 1e-6)
		t.Logf("%v: good %.4f of offered, p99 %v, %+v", balance, r.OfOffered(), r.P(99), r.Nodes[0])
		require.GreaterOrEqual(t, r.OfOffered(), good[0], balance)
		require.LessOrEqual(t, r.OfOffered(), good[1], balance)
	}
}

// Where all are alike, a balancer that knows more keeps requests shorter.
func TestRun_FleetOfEquals(t *testing.T) {
	t.Parallel()
	var last time.Duration
	for _, balance := range []Balance{LeastOutstanding, PowerOfTwo, RoundRobin, Random} {
		r, err := Run(fleet(balance, 1))
		require.NoError(t, err)
		require.Greater(t, r.MeanWait, last, balance)
		last = r.MeanWait
		for _, n := range r.Nodes {
			require.InEpsilon(t, float64(r.Attempts)/10, float64(n.Attempts), 0.1, balance)
		}
	}
}

func TestBalance_Text(t *testing.T) {
	t.Parallel()
	for _, name := range balanceNames {
		var b Balance
		require.NoError(t, b.UnmarshalText([]byte(name)))
		text, err := b.MarshalText()
		require.NoError(t, err)
		require.Equal(t, name, string(text))
	}
	require.ErrorContains(t, new(Balance).UnmarshalText([]byte("best")), "round-robin, random")
}

// BenchmarkRun_Fleet is a hundred nodes that are sent a million requests a second.
func BenchmarkRun_Fleet(b *testing.B) {
	c := Config{
		Strategy: "fifo", Workers: 8, Nodes: make([]Node, 100), Balance: PowerOfTwo, Service: Exponential(700 * time.Microsecond),
		Arrivals: Poisson(1e6), Duration: max(time.Microsecond, time.Duration(b.N)*time.Microsecond), Seed: 1,
	}
	b.ReportAllocs()
	r, err := Run(c)
	require.NoError(b, err)
	b.ReportMetric(float64(r.Offered)/b.Elapsed().Seconds(), "requests/s")
}
