//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A batch of 1,000 puts costs the service at most a fifth of what 1,000 PUTs cost it, in
// its own CPU time. The latter come from 8 connections at once, so that they share
// commits.
func TestBatch_CostsAFifth(t *testing.T) {
	t.Parallel()
	const connections, rounds, keys = 8, 40, 1000
	s := start(t, plain)
	value := strings.Repeat("v", 100)
	spent := func(do func(c *client, worker int) error) int64 {
		before := ticks(t, s.cmd.Process.Pid)
		require.NoError(t, concurrently(connections, func(i int) error {
			c, err := dial(s.data)
			if err != nil {
				return err
			}
			defer c.close()
			return do(c, i)
		}))
		return ticks(t, s.cmd.Process.Pid) - before
	}
	singles := spent(func(c *client, worker int) error {
		for i := range rounds * keys / connections {
			if a, err := c.do(http.MethodPut, entity(fmt.Sprintf("%d.%d", worker, i)), value); err != nil || a.status != http.StatusCreated {
				return fmt.Errorf("status %d: %w", a.status, err)
			}
		}
		return nil
	})
	batches := spent(func(c *client, worker int) error {
		for i := range rounds / connections {
			var b strings.Builder
			for j := range keys {
				fmt.Fprintf(&b, `{"op":"put","key":"%s","value":"%s"}`+"\n", encode64(fmt.Sprintf("%d.%d", worker, i*keys+j)), encode64(value))
			}
			if a, err := c.do(http.MethodPost, "/v0/entities", b.String(), "Content-Type: application/x-ndjson"); err != nil || a.status != http.StatusOK {
				return fmt.Errorf("status %d: %s: %w", a.status, a.body, err)
			}
		}
		return nil
	})
	t.Logf("1,000 puts cost %.1f ms of CPU by themselves and %.1f ms as a batch: %.3f",
		float64(singles)*10/rounds, float64(batches)*10/rounds, float64(batches)/float64(singles))
	require.LessOrEqual(t, 5*batches, singles)
	s.stop()
}

// ticks returns the CPU time of a process, in hundredths of a second.
func ticks(t testing.TB, pid int) int64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(stat), ") ")
	require.True(t, found)
	var user, system int64
	_, err = fmt.Sscan(strings.Join(strings.Fields(rest)[11:13], " "), &user, &system)
	require.NoError(t, err)
	return user + system
}
