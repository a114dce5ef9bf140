//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// copyState is what the test wants of the file that says how far a copy is.
type copyState struct {
	Moment           time.Time
	Copied, Verified struct{ Keys int }
}

// readCopyState returns false if there is no file yet.
func readCopyState(t *testing.T, path string) (s copyState, there bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return s, false
	}
	require.NoError(t, json.Unmarshal(text, &s))
	return s, true
}

// insistOnAll sends a request for each key over several connections, until it is
// answered other than by 503, and asserts what it is answered.
func (s *service) insistOnAll(keys []string, method string, body func(key string) string, want func(key string) (int, string)) {
	s.t.Helper()
	const connections = 16
	require.NoError(s.t, concurrently(connections, func(i int) error {
		c, err := dial(s.data)
		if err != nil {
			return err
		}
		defer c.close()
		for n := i; n < len(keys); n += connections {
			key := keys[n]
			status, content := want(key)
			a, err := c.do(method, entity(key), body(key))
			for err == nil && a.status == http.StatusServiceUnavailable {
				a, err = c.do(method, entity(key), body(key))
			}
			if err != nil {
				return err
			}
			if a.status != status || a.body != content {
				return fmt.Errorf("%s %q: status %d, %s; want %d, %s", method, key, a.status, brief(a.body), status, brief(content))
			}
		}
		return nil
	}))
}

// From a folder to a cluster: what the service had acknowledged on the one it has on
// the other, also if the copy was killed in between, and if something has been
// written there since.
func TestCassandra_Copy(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	folder := t.TempDir()
	data, backup, state := filepath.Join(folder, "data"), filepath.Join(folder, "backup"), filepath.Join(folder, "state.json")
	env := []string{"SPILLWAY_CASSANDRA_REPLICATION_FACTOR=1"}
	command := func(from string, more ...string) []string {
		return append([]string{"copy", "--from", "pebble:" + from, "--to", "cassandra:" + c.hosts(), "--state", state}, more...)
	}
	values := map[string]string{
		"\x00": "zero", "\x00\xff\n'": "\x00\xff\n", "\xff\xff\xff": "last", "empty": "",
		"long" + strings.Repeat("k", 4000): "k", "big": strings.Repeat("spillway", 1<<17),
	}
	nothing := func(string) string { return "" }
	value := func(key string) string { return values[key] }
	put := func(string) (int, string) { return http.StatusCreated, "" }
	keys := func() []string { return slices.Sorted(maps.Keys(values)) }

	// Of a running service a backup is copied, not its folder.
	s := start(t, plain, "SPILLWAY_DATA_DIR="+data, "SPILLWAY_SYNC=never")
	s.insistOnAll(keys(), http.MethodPut, value, put)
	run(t, raced, env, command(data)...).fails(t, data, "in use by a running service", "spillway backup")
	require.NoFileExists(t, state)
	run(t, plain, s.backupEnv(), "backup", backup).succeeds(t)
	r := run(t, raced, append(env, "SPILLWAY_CASSANDRA_KEYSPACE=backups"), command(backup)...)
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, fmt.Sprintf("%d keys", len(values)))
	require.NoFileExists(t, state)

	for i := range 5000 {
		values[fmt.Sprintf("small-%05d", i)] = fmt.Sprint("value ", i)
	}
	deleted := []string{"deleted-1", "small-02999"}
	s.insistOnAll(append(keys(), deleted...), http.MethodPut, value, put)
	for _, key := range deleted {
		delete(values, key)
	}
	s.insistOnAll(deleted, http.MethodDelete, nothing, func(string) (int, string) { return http.StatusAccepted, "" })
	s.stop()

	// Killed in the middle, it says how far it was at least. One that comes to its end
	// before, on a fast machine or one that stands still, leaves nothing to go on with: then
	// another is begun.
	copying := func(end func(copying *service)) (copying *service, at copyState) {
		t.Helper()
		for there := false; !there; {
			copying = launchCommand(t, raced, append(env, "SPILLWAY_WORKERS=1"), command(data)...)
			copying.eventually("some keys are copied", func() bool {
				if copying.hasEnded() {
					require.Equal(t, 0, copying.wait(), copying.stderr)
					return true
				}
				at, there = readCopyState(t, state)
				return there && at.Copied.Keys > 0
			})
			end(copying)
			at, there = readCopyState(t, state)
		}
		return copying, at
	}
	_, at := copying((*service).kill)
	t.Logf("killed with %d of %d keys copied", at.Copied.Keys, len(values))

	// Who goes on, or verifies, makes no table.
	absent := append(env, "SPILLWAY_CASSANDRA_KEYSPACE=absent")
	run(t, raced, absent, command(data)...).fails(t, "the keyspace absent is not there", state, "remove it to begin anew")
	run(t, raced, absent, append(command(data), "--verify-only", "--state", state+".verification")...).fails(t, "the keyspace absent is not there")
	require.NoFileExists(t, state+".verification")

	// It is no use to another copy.
	run(t, raced, append(env, "SPILLWAY_CASSANDRA_KEYSPACE=backups"), command(data)...).fails(t, state, "not of this copy")
	run(t, raced, env, command(backup)...).fails(t, state, "not of this copy")

	// What a service writes on the cluster meanwhile is later than all in the folder.
	written := keys()[len(values)-2]
	s = c.on(t, plain, env...)
	require.Equal(t, http.StatusCreated, s.insist(http.MethodPut, entity(written), "newer").status)
	s.stop()

	r = run(t, plain, env, command(data)...)
	require.Equal(t, 0, r.code, r.stderr)
	t.Log(r.stdout)
	require.Contains(t, r.stderr, fmt.Sprintf("going on with %d keys copied", at.Copied.Keys))
	require.Contains(t, r.stdout, fmt.Sprintf("%d keys", len(values)))
	require.Contains(t, r.stdout, "1 key of these had been written in the cluster after")
	require.NoFileExists(t, state)

	s = c.on(t, plain, env...)
	values[written] = "newer"
	s.insistOnAll(keys(), http.MethodGet, nothing, func(key string) (int, string) { return http.StatusOK, values[key] })
	s.insistOnAll(deleted, http.MethodGet, nothing, func(string) (int, string) { return http.StatusNotFound, "" })
	s.stop()

	// What is not there any more, or is another value and not newer, is found.
	c.execute(
		fmt.Sprintf("DELETE FROM spillway.entities WHERE key = 0x%x", "small-00007"),
		fmt.Sprintf("INSERT INTO spillway.entities (key, value) VALUES (0x%x, 0x%x) USING TIMESTAMP %d", "big", "t", at.Moment.UnixMicro()),
	)
	r = run(t, plain, env, command(data, "--verify-only")...)
	require.Equal(t, 1, r.code, r.stderr)
	require.Empty(t, r.stdout)
	require.Contains(t, r.stderr, `the key "small-00007" is missing`)
	require.Contains(t, r.stderr, `the key "big" has another value`)
	require.Contains(t, r.stderr, fmt.Sprintf("2 of %d keys are different", len(values)))
	require.NoFileExists(t, state)

	// Whoever interrupts it is told how to go on, also if the cluster hangs.
	asked, at := copying(func(copying *service) {
		c.nodes[0].freeze()
		_ = copying.cmd.Process.Signal(os.Interrupt) // an error says that it has ended already
		copying.wait()
		c.nodes[0].thaw()
	})
	require.Equal(t, 1, asked.wait())
	said := asked.stderr.String()
	require.NotContains(t, said, "DATA RACE")
	require.Contains(t, said, "copy: interrupted with ")
	require.Contains(t, said, "the same command goes on from there")
	require.Positive(t, at.Copied.Keys)
}
