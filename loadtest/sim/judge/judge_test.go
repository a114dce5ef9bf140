//go:build !race

package judge_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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

// Who is told does as well as itself from the first request on, and one at a time does not.
func TestStarts(t *testing.T) {
	t.Parallel()
	require.Equal(t, []float64{1, 1}, judge.Starts(1, 2, 1.2, func() sim.Limiter { return &sim.Told{} }))
	require.Less(t, judge.Starts(1, 6, 1.2, func() sim.Limiter { return sim.Fixed(1) })[0], 0.5)
}

// A search finds the number of hands, and what it has found is not searched again.
func TestBests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bests.json")
	bests, err := judge.OpenBests(file)
	require.NoError(t, err, "a file that is not there is empty")
	u := sim.Unknown{
		Resource: sim.Resource{Work: sim.Exponential(time.Millisecond), Hands: 8, Crosstalk: 0.01},
		Load:     2, Seed: 1, Warmup: 200, Length: 2_000,
	}
	found := bests.Of(u)
	require.InDelta(t, 8, found.N, 1)
	require.NoError(t, bests.Save())
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	data = bytes.Replace(data, fmt.Appendf(nil, `"N":%d`, found.N), []byte(`"N":99`), 1)
	require.NoError(t, os.WriteFile(file, data, 0o600))
	again, err := judge.OpenBests(file)
	require.NoError(t, err)
	require.Equal(t, 99, again.Of(u).N, "it is not searched again")
	u.Length = 3_000
	require.InDelta(t, 8, again.Of(u).N, 1, "another experiment is")
}
