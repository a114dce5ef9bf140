//go:build !race

package sim

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fleet is ten nodes near their capacity, of which the first has that speed.
func fleet(balance string, speed float64) Config {
	c := Config{
		Strategy: "fifo", Workers: 8, Capacity: 256, Nodes: make([]Node, 10), Balance: balance, Service: Exponential(4 * ms),
		Warmup: time.Second, Duration: 5 * time.Second, Seed: 1,
	}
	c.Nodes[0].Speed = speed
	return c.asked(poisson(0.85 * 10 * 8 / (4 * ms).Seconds()))
}

// One slow node costs a balancer that does not look at the queues all that it
// sends there; those that look send it less.
func TestRun_FleetWithASlowNode(t *testing.T) {
	t.Parallel()
	for balance, good := range map[string][2]float64{
		RoundRobin:       {0.88, 0.96},
		Random:           {0.88, 0.96},
		LeastOutstanding: {0.999, 1},
		PowerOfTwo:       {0.995, 1},
	} {
		r, err := measure(fleet(balance, 0.4))
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
	for _, balance := range []string{LeastOutstanding, PowerOfTwo, RoundRobin, Random} {
		r, err := measure(fleet(balance, 1))
		require.NoError(t, err)
		require.Greater(t, r.MeanWait, last, balance)
		last = r.MeanWait
		for _, n := range r.Nodes {
			require.InEpsilon(t, float64(r.Attempts)/10, float64(n.Attempts), 0.1, balance)
		}
	}
}

// sojourns is how long a request is in a fleet, in units of the mean service time,
// where each of so many nodes has one worker that is busy for a share use of its
// time, and work and gaps between arrivals are exponential.
var sojourns = map[string]func(nodes int, use float64) float64{
	// A random part of Poisson arrivals is Poisson arrivals: M/M/1.
	Random: func(_ int, use float64) float64 { return 1 / (1 - use) },
	// The gaps of every nth arrival are a sum of n exponential ones: E_n/M/1, in
	// which a request finds a geometric number before it, of parameter x.
	RoundRobin: func(nodes int, use float64) float64 {
		x, n := 0.5, float64(nodes)
		for range 1000 {
			x = math.Pow(n*use/(n*use+1-x), n)
		}
		return 1 / (1 - x)
	},
	// Of many nodes the share with k requests or more is use to the power 2^k - 1
	// (Mitzenmacher 2001; Vvedenskaya, Dobrushin and Karpelevich 1996).
	PowerOfTwo: func(_ int, use float64) (sum float64) {
		for k := range 20 {
			sum += math.Pow(use, math.Pow(2, float64(k+1))-2)
		}
		return sum
	},
	// As long as there are idle nodes, and among many there are, nobody waits.
	LeastOutstanding: func(int, float64) float64 { return 1 },
}

// Requests are as long in a fleet as queueing theory says, under every balancer of
// which it says something.
func TestRun_FleetTheory(t *testing.T) {
	t.Parallel()
	const mean = 4 * time.Millisecond
	for balance, theory := range sojourns {
		for _, use := range []float64{0.5, 0.8} {
			const nodes = 200
			rate := use * nodes / mean.Seconds()
			r, err := measure(Config{
				Strategy: "fifo", Workers: 1, Capacity: endless, Nodes: make([]Node, nodes), Balance: balance,
				Service: Exponential(mean), Warmup: time.Second, Duration: lasting(4e5, rate), Seed: 4,
			}.asked(poisson(rate)))
			require.NoError(t, err)
			want := theory(nodes, use) * mean.Seconds()
			t.Logf("%v at %g: %.4g, by theory %.4g", balance, use, r.MeanSojourn.Seconds(), want)
			require.InEpsilon(t, want, r.MeanSojourn.Seconds(), 2*tolerance, "%v at %g", balance, use)
		}
	}
}

// The hash of a client's name says where all goes that it sends: greed is the
// affair of one node, and clients are spread over all.
func TestRun_FleetByClient(t *testing.T) {
	t.Parallel()
	c := fleet(ClientHash, 1)
	c.Classes = make([]Class, 2)
	r, err := measure(c.asked(poisson(0.85*c.ServiceRate()), "greedy", "other*1000"))
	require.NoError(t, err)
	most := int64(0)
	for _, n := range r.Nodes {
		most = max(most, n.Attempts)
		require.Greater(t, n.Attempts, r.Attempts/2/10*7/10, "%+v", r.Nodes)
	}
	require.InEpsilon(t, float64(r.Attempts)*(0.5+0.5/10), float64(most), 0.05)
}

// Who is refused by a node that is busy is served by another, if the balancer
// sends what comes again elsewhere.
func TestRun_FleetRetriesElsewhere(t *testing.T) {
	t.Parallel()
	for balance, refused := range map[string]int64{
		RoundRobin: 0,
		// All come from one client, whose node has room for two.
		ClientHash: 8,
		// A node that refuses at once has the fewest outstanding requests for ever: it
		// gets all from when the other has more of them, and all that come again.
		LeastOutstanding: 5,
	} {
		var requests []Request
		for i := range 10 {
			requests = append(requests, Request{At: time.Duration(i) * time.Second, Client: clientOf(0)})
		}
		r, err := measure(Config{
			Strategy: "fifo", Workers: 1, Capacity: 1, Nodes: []Node{{}, {Workers: 10}}, Balance: balance,
			Requests: recorded(requests), Service: Constant(time.Hour), Duration: time.Minute, Seed: 1,
			Classes: []Class{{Retry: Retry{Attempts: 3, Backoff: ms}}},
		})
		require.NoError(t, err)
		require.Equal(t, refused, r.Refused, balance)
	}
}

// clientOf returns the name of a client whose node, of two, is that.
func clientOf(node uint64) string {
	for i := 0; ; i++ {
		if name := "client" + strconv.Itoa(i); hashOf(name)%2 == node {
			return name
		}
	}
}

// BenchmarkRun_Fleet is a hundred nodes that are sent a million requests a second.
func BenchmarkRun_Fleet(b *testing.B) {
	c := Config{
		Strategy: "fifo", Workers: 8, Nodes: make([]Node, 100), Balance: PowerOfTwo, Service: Exponential(700 * time.Microsecond),
		Duration: max(time.Microsecond, time.Duration(b.N)*time.Microsecond), Seed: 1,
	}.asked(poisson(1e6))
	requests := 0
	c.Observe = func(Record) { requests++ }
	b.ReportAllocs()
	require.NoError(b, Run(b.Context(), c))
	b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
}
