//go:build !race

package judge_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

func TestSum(t *testing.T) {
	t.Parallel()
	s := judge.Sum([]judge.Run{{Ratio: 0.2}, {Ratio: 0.85}, {Ratio: 0.95}, {Ratio: 1}})
	require.Equal(t, judge.Summary{Runs: 4, Good: 2, Bad: 1, Mean: s.Mean, Median: 0.95}, s)
	require.InDelta(t, 0.75, s.Mean, 1e-9)
	require.Zero(t, judge.Sum(nil))
}

// Without a limit it takes as long as without one; with one that is too small it takes longer.
func TestLatencies(t *testing.T) {
	t.Parallel()
	require.Equal(t, []float64{1, 1}, judge.Latencies(1, 2, 0.1, func() sim.Limiter { return sim.Fixed(1 << 20) }))
	slow := judge.Latencies(1, 6, 0.9, func() sim.Limiter { return sim.Fixed(1) })
	require.IsNonDecreasing(t, slow)
	require.Greater(t, slow[5], 1.05)
}

// A search finds the number of hands, and what it has found is not searched again.
func TestBests(t *testing.T) {
	t.Parallel()
	var bests judge.Bests
	work := &drawn{Distribution: sim.Exponential(time.Millisecond)}
	u := sim.Unknown{
		Resource: sim.Resource{Work: work, Hands: 8, Crosstalk: 0.01},
		Load:     2, Seed: 1, Warmup: 200, Length: 2_000,
	}
	found := bests.Of(u)
	require.InDelta(t, 8, found.N, 1)
	draws := work.draws
	require.Positive(t, draws)
	require.Equal(t, found, bests.Of(u))
	require.Equal(t, draws, work.draws, "it is not searched again")
	u.Length = 3_000
	require.InDelta(t, 8, bests.Of(u).N, 1)
	require.Greater(t, work.draws, draws, "another experiment is")
}

// drawn counts how often it is drawn from. Its name is that of what it draws.
type drawn struct {
	sim.Distribution
	draws int
}

func (d *drawn) Draw(random *rand.Rand) time.Duration {
	d.draws++
	return d.Distribution.Draw(random)
}

func (d *drawn) String() string { return fmt.Sprint(d.Distribution) }
