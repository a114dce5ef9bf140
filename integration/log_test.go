//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever reads the log and stalls stops nothing: not requests, not the admin
// plane, not the end. What is dropped is counted, and told in its place.
func TestLog_StalledReader(t *testing.T) {
	t.Parallel()
	s := start(t, plain)
	put := func(key string) {
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity(key)), "v").status)
	}
	dropped := func() float64 { return s.metrics().sum("spillway_log_lines_dropped_total") }
	require.Zero(t, dropped())

	s.stderr.mu.Lock()
	for n := 0; dropped() == 0; n++ {
		require.Less(t, n, 1000, "200,000 lines were kept")
		for range 100 {
			s.switchTo("lifo")
			s.switchTo("fifo")
		}
		put(fmt.Sprint("k", n))
	}
	s.stderr.mu.Unlock()
	s.eventually("the log goes on", func() bool {
		before := dropped()
		s.switchTo("lifo")
		s.switchTo("fifo")
		return dropped() == before
	})
	s.eventually("the gap is told", func() bool { return strings.Contains(s.stderr.String(), "were dropped here") })

	s.stderr.mu.Lock()
	for range 1000 { // more than the pipe holds
		s.switchTo("lifo")
		s.switchTo("fifo")
	}
	s.signal(syscall.SIGTERM)
	s.awaitEnd()
	s.stderr.mu.Unlock()
	require.Equal(t, 0, s.wait())
}

// Whoever reads the log and goes does not take the service along.
func TestLog_ReaderGone(t *testing.T) {
	t.Parallel()
	s := start(t, plain, "SPILLWAY_SYNC=never")
	s.stderr.mu.Lock()
	s.stderr.gone = true
	s.stderr.mu.Unlock()
	for n := range 100 {
		s.switchTo("lifo")
		s.switchTo("fifo")
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity(fmt.Sprint("k", n))), "v").status)
	}
	s.eventually("lines are dropped", func() bool { // once the pipe is closed
		s.switchTo("lifo")
		s.switchTo("fifo")
		return s.metrics().sum("spillway_log_lines_dropped_total") > 0
	})
	s.stop()
}

// awaitEnd waits until the process has ended, also if somebody holds up wait.
func (s *service) awaitEnd() {
	s.t.Helper()
	s.eventually("the process has ended", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		_, state, _ := bytes.Cut(stat, []byte(") "))
		return err != nil || bytes.HasPrefix(state, []byte("Z"))
	})
}
