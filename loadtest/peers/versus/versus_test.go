package versus

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spillway/loadtest"
)

// small is a comparison of these peers that takes next to no time.
func small(t *testing.T, names ...string) Options {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	o := Options{
		Loads: []Load{
			{Op: loadtest.Get, Name: "GET", Connections: 1},
			{Op: loadtest.Get, Name: "GET", Connections: 4, Rate: 500},
			{Op: loadtest.Put, Name: "PUT", Connections: 4},
		},
		Filler: self, Dir: filepath.Join(t.TempDir(), "stores"), Keys: 300,
		Rounds: 2, Passes: 2, Requests: 400, Duration: 100 * time.Millisecond,
		Progress: func(string) {},
	}
	for _, name := range names {
		o.Contestants = append(o.Contestants, Contestant{
			Name: name, Binary: self, Env: []string{"SPILLWAY_PEER=" + name, "SPILLWAY_SYNC=never", "SPILLWAY_CACHE_BYTES=8388608"},
		})
	}
	return o
}

func TestRun_MeasuresEachContestantUnderEachLoad(t *testing.T) {
	t.Parallel()
	o := small(t, "bare", "plain")
	var steps []string
	o.Progress = func(next string) { steps = append(steps, next) }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []string{"bare", "plain"}, r.Contestants)
	require.Len(t, r.Rounds, o.Rounds)
	for _, round := range r.Rounds {
		require.Len(t, round, len(o.Loads))
		for _, load := range round {
			require.Len(t, load, len(o.Contestants))
			for _, f := range load {
				require.Positive(t, f.RPS)
				require.Positive(t, f.P50)
				require.LessOrEqual(t, f.P50, f.P999)
				// The clones hold all keys, and nobody is over a limit.
				require.Zero(t, f.Refused)
			}
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

func TestRun_SaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	// A contestant that does not start.
	o := small(t, "bare", "nginx")
	r, err := Run(t.Context(), o)
	require.ErrorContains(t, err, `round 1 of 2: nginx: the service did not start`)
	require.ErrorContains(t, err, `no peer "nginx"`)
	require.Empty(t, r.Rounds)
	require.NoDirExists(t, o.Dir)

	// A folder that is somebody's.
	o = small(t, "bare")
	require.NoError(t, os.Mkdir(o.Dir, 0o755))
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, os.ErrExist)
	require.DirExists(t, o.Dir)
}

// TestRun_KeepsTheRoundsThatAreComplete when it is interrupted.
func TestRun_KeepsTheRoundsThatAreComplete(t *testing.T) {
	t.Parallel()
	o := small(t, "bare")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.Progress = func(next string) {
		if next == "round 2 of 2, pass 2 of 2: PUT, 4 connections to bare" {
			stop()
		}
	}
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, r.Rounds, 1)
	require.NoDirExists(t, o.Dir)
}

func TestTally_CostsAreByWhatWasServed(t *testing.T) {
	t.Parallel()
	sum := tally{requests: 400, served: 100, cpu: 2 * time.Millisecond, mallocs: 50, seconds: 0.5}
	require.Equal(t, Figures{RPS: 200, CPUMicros: 20, Mallocs: 0.5, Refused: 0.75, Requests: 100}, sum.figures())
	// Nothing is not a number to divide by.
	sum = tally{requests: 400, cpu: 2 * time.Millisecond}
	require.Equal(t, Figures{CPUMicros: 2000, Refused: 1}, sum.figures())
	require.Equal(t, Figures{}, new(tally).figures())
}
