package versus

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// small is a comparison of these peers that takes next to no time.
func small(t *testing.T, names ...string) lab.PairOptions {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	o := lab.PairOptions{
		Loads: []lab.PairLoad{
			{Op: workload.Get, Connections: 1},
			{Op: workload.Get, Connections: 4, Rate: 500},
			{Op: workload.Put, Connections: 4},
		},
		Filler: self, Dir: filepath.Join(t.TempDir(), "stores"), Keys: 300,
		Rounds: 2, Passes: 2, Requests: 400, Duration: 100 * time.Millisecond,
		Progress: func(string) {},
	}
	for _, name := range names {
		o.Contestants = append(o.Contestants, lab.Contestant{
			Name: name, Binary: self, Env: []string{"SPILLWAY_PEER=" + name, "SPILLWAY_SYNC=never", "SPILLWAY_CACHE_BYTES=8388608"},
		})
	}
	return o
}

func TestPair_MeasuresEachContestantUnderEachLoad(t *testing.T) {
	t.Parallel()
	o := small(t, "bare", "plain")
	var steps []string
	o.Progress = func(next string) { steps = append(steps, next) }
	r, err := lab.Pair(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, r.Groups, len(o.Loads)*len(o.Contestants))
	require.Equal(t, "plain, GET, 4 connections, 500/s", r.Groups[3].Label)
	for _, g := range r.Groups {
		for round := range o.Rounds {
			require.Positive(t, g.Metrics["served_rps"].Values[round])
			require.Positive(t, g.Metrics["latency_p50_ms"].Values[round])
			require.NotContains(t, g.Metrics, "latency_p99_9_ms", "of so few it is a guess")
			// The clones hold all keys, and nobody is over a limit.
			require.Zero(t, g.Metrics["non2xx_percent"].Values[round])
		}
	}
	require.NoDirExists(t, o.Dir)

	// The second pass is in the reverse order of the first, and the second round
	// begins with it.
	at := func(round, pass, peer string) int {
		for i, step := range steps {
			if step == "round "+round+" of 2, pass "+pass+" of 2: GET, 1 connection to "+peer {
				return i
			}
		}
		require.Fail(t, "not measured", "round %s, pass %s, %s in %q", round, pass, peer, steps)
		return 0
	}
	require.Less(t, at("1", "1", "bare"), at("1", "1", "plain"))
	require.Less(t, at("1", "2", "plain"), at("1", "2", "bare"))
	require.Less(t, at("2", "1", "plain"), at("2", "1", "bare"))
}

func TestPair_SaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	// A contestant that does not start.
	o := small(t, "bare", "nginx")
	r, err := lab.Pair(t.Context(), o)
	require.ErrorContains(t, err, `round 1 of 2: nginx: the service did not start`)
	require.ErrorContains(t, err, `no peer "nginx"`)
	require.Zero(t, r.Rounds())
	require.NoDirExists(t, o.Dir)

	// A folder that is somebody's.
	o = small(t, "bare")
	require.NoError(t, os.Mkdir(o.Dir, 0o755))
	_, err = lab.Pair(t.Context(), o)
	require.ErrorIs(t, err, os.ErrExist)
	require.DirExists(t, o.Dir)
}

// TestPair_KeepsTheRoundsThatAreComplete when it is interrupted.
func TestPair_KeepsTheRoundsThatAreComplete(t *testing.T) {
	t.Parallel()
	o := small(t, "bare")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.Progress = func(next string) {
		if next == "round 2 of 2, pass 2 of 2: PUT, 4 connections to bare" {
			stop()
		}
	}
	r, err := lab.Pair(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, r.Rounds())
	require.NoDirExists(t, o.Dir)
}
