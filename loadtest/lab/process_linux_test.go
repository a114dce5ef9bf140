package lab

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
