package lab

import (
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServer_TellsWhatItUses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := StartServer(t.Context(), fakeBinary(t, serves), dir, nil)
	require.NoError(t, err)
	require.NoError(t, ask(s.URL()+"/readyz"))
	mallocs, err := s.Mallocs(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 12345, mallocs, 0)

	// Time that has been used is never given back, and what has started has used
	// some. Of its own clock the system tells the same.
	before, err := s.CPU()
	require.NoError(t, err)
	require.Positive(t, before)
	require.NoError(t, ask(s.Admin()+"/environment"))
	after, err := s.CPU()
	require.NoError(t, err)
	require.Greater(t, after, before)

	require.NoError(t, s.Death())
	require.NoError(t, s.Stop())
	require.Error(t, s.Death())
	_, err = s.CPU()
	require.ErrorContains(t, err, "died")
	require.FileExists(t, filepath.Join(dir, "000001.sst"))
}

// TestProcessCPU_IsThatOfTheProcess: what this process spends between two
// readings of what it says of itself, and no more.
func TestProcessCPU_IsThatOfTheProcess(t *testing.T) {
	t.Parallel()
	own := func() time.Duration {
		var usage syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	from := own()
	got, err := processCPU(syscall.Getpid())
	require.NoError(t, err)
	// The last tick of a thread that runs on another CPU may not be counted yet.
	tick := time.Duration(runtime.NumCPU()) * 10 * time.Millisecond
	require.GreaterOrEqual(t, got, from-tick)
	require.LessOrEqual(t, got, own()+tick)
}

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]float64{
		"a_total": 3, `b_bucket{le="0.001",name="two words"}`: 1.5e6, "c": -1,
	}, parseMetrics("# HELP a_total Of 1\na_total 3\n\nb_bucket{le=\"0.001\",name=\"two words\"} 1.5e+06\nc -1\nd NaN\ne +Inf\nnothing\n"))
}
