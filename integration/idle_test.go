//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An idle service that is scraped once a second uses less than 1% of a CPU. CPU
// time is counted, not time, so that a busy machine does not matter; the best of
// eight counts, since what the kernel accounts has some noise.
func TestIdle_CPU(t *testing.T) {
	t.Parallel()
	const seconds = 4
	s := start(t, plain)
	for i := range 4 { // what happens once happens before
		_, err := s.dial().do("PUT", entity(fmt.Sprint("k", i)), "v")
		require.NoError(t, err)
		s.metrics()
	}
	var shares []float64
	for range 8 {
		tick := time.NewTicker(time.Second)
		before, begin := s.cpuTime(), time.Now()
		for range seconds {
			<-tick.C
			s.metrics()
		}
		share := float64(s.cpuTime()-before) / float64(time.Since(begin))
		tick.Stop()
		shares = append(shares, share)
		if share < 0.01 {
			break
		}
	}
	t.Logf("share of a CPU: %.4f", shares)
	require.Less(t, shares[len(shares)-1], 0.01)
	s.stop()
}

// clockTick is the unit of /proc/PID/stat. It is the same on all architectures
// of Linux that Go runs on.
const clockTick = time.Second / 100

// cpuTime returns the CPU time that the service has used so far, in user mode
// and in the kernel.
func (s *service) cpuTime() time.Duration {
	s.t.Helper()
	return cpuTime(s.t, s.cmd.Process.Pid)
}

func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	// The name, in parentheses, may hold blanks. Field 3 is the first behind it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var ticks int
	for _, f := range fields[14-3 : 16-3] { // utime and stime
		n, err := strconv.Atoi(string(f))
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
