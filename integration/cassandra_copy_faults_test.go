//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copy to three nodes is killed again and again, while nodes are killed, hang, or
// are too few for a quorum, in both passes. The same command goes on each time, from
// where it was at least, and what the cluster has at the end is what the folder has.
func TestCassandra_CopyUnderFaults(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	folder := t.TempDir()
	data, path := filepath.Join(folder, "data"), filepath.Join(folder, "state.json")
	keys := make([]string, 40_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%05d", i)
	}
	nothing := func(string) string { return "" }
	value := func(key string) string { return strings.Repeat(key, 20) }
	s := start(t, plain, "SPILLWAY_DATA_DIR="+data, "SPILLWAY_SYNC=never")
	s.insistOnAll(keys, http.MethodPut, value, func(string) (int, string) { return http.StatusCreated, "" })
	s.stop()

	command := []string{"copy", "--from", "pebble:" + data, "--to", "cassandra:" + c.hosts(), "--state", path}
	env := []string{"SPILLWAY_WORKERS=1"} // so that there is time for faults
	lives := 0
	var before copyState
	// life runs the copy until it has got somewhere, lets something happen, waits until
	// it has got on in spite of that, and kills it. A copy that comes to its end before, on
	// a fast machine or one that stands still, leaves nothing to go on with: then there is
	// another, which begins anew.
	life := func(somewhere func(copyState) bool, fault func(copying *service)) {
		t.Helper()
		for there := false; !there; {
			lives++
			copying := launchCommand(t, plain, env, command...)
			got := func(far func(at copyState) bool) (at copyState) {
				for !far(at) {
					last := at.done()
					ended := false
					copying.eventually("the copy gets on", func() (there bool) {
						if ended = copying.hasEnded(); ended {
							require.Equal(t, 0, copying.wait(), copying.stderr)
							return true
						}
						at, there = readCopyState(t, path)
						return there && (far(at) || at.done() > last)
					})
					if ended {
						return at
					}
				}
				return at
			}
			from := before
			at := got(func(at copyState) bool { return at.done() > from.done() && somewhere(at) })
			fault(copying)
			got(func(now copyState) bool { return now.done() > at.done() })
			copying.kill()
			if lives > 1 && from.done() > 0 {
				require.Contains(t, copying.stderr.String(), fmt.Sprintf("going on with %d keys copied", from.Copied.Keys))
			}
			before, there = readCopyState(t, path) // it may have got on until it was dead
		}
		t.Logf("killed with %d keys copied and %d verified", before.Copied.Keys, before.Verified.Keys)
	}
	anywhere := func(copyState) bool { return true }
	verifying := func(at copyState) bool { return at.Verified.Keys > 0 }
	tooFew := func(copying *service) {
		c.nodes[0].freeze()
		c.nodes[2].freeze()
		copying.eventually("it says that it tries again", func() bool {
			return strings.Contains(copying.stderr.String(), "trying again") || copying.hasEnded()
		})
		c.nodes[0].thaw()
		c.nodes[2].thaw()
	}

	life(anywhere, func(*service) { c.nodes[1].kill() })
	back := sync.OnceFunc(c.nodes[1].start)
	life(anywhere, func(*service) { back() }) // with that node dead from the start
	c.nodes[1].await()
	life(anywhere, func(*service) { c.nodes[2].freeze() })
	c.nodes[2].thaw()
	life(anywhere, tooFew)
	env = nil
	life(verifying, func(*service) { c.nodes[2].kill() })
	env = []string{"SPILLWAY_WORKERS=1"}
	c.nodes[2].start()
	c.nodes[2].await()
	life(verifying, tooFew)

	c.await()
	r := run(t, plain, nil, command...)
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, fmt.Sprintf("%d keys", len(keys)))
	require.NoFileExists(t, path)
	r = run(t, plain, nil, append(command, "--verify-only")...)
	require.Equal(t, 0, r.code, r.stderr)
	s = c.on(t, plain)
	s.insistOnAll(keys, http.MethodGet, nothing, func(key string) (int, string) { return http.StatusOK, value(key) })
	s.stop()
}

// done is how much both passes have done.
func (s copyState) done() int { return s.Copied.Keys + s.Verified.Keys }
