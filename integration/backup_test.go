//go:build integration

package integration

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// backupEnv returns the environment of a command beside the service.
func (s *service) backupEnv(more ...string) []string {
	return append([]string{"SPILLWAY_ADMIN_LISTEN=" + s.admin}, more...)
}

// succeeds asserts that a command has done what it should.
func (r result) succeeds(t *testing.T) result {
	t.Helper()
	require.Equal(t, 0, r.code, r.stderr)
	require.Empty(t, r.stderr)
	return r
}

// fails asserts that a command has said in one line why it could not.
func (r result) fails(t *testing.T, words ...string) {
	t.Helper()
	require.Equal(t, 1, r.code, r.stderr)
	require.Empty(t, r.stdout)
	r.requireOneLine(t)
	for _, word := range words {
		require.Contains(t, r.stderr, word)
	}
}

// sequence is a writer that numbers its writes, so that it can be told from a copy of
// the store when it was made: for each number there is a key, and another key holds
// the last number.
type sequence struct {
	name        string
	sent, acked atomic.Int64 // numbers
}

func (w *sequence) key(n int64) string { return fmt.Sprintf("%s-%06d", w.name, n) }

func (w *sequence) value(n int64) string { return strings.Repeat(w.key(n)+".", 50+int(n%100)) }

func (w *sequence) last() string { return w.name + "-last" }

// write writes until stop.
func (w *sequence) write(s *service, stop *atomic.Bool) error {
	c, err := dial(s.data)
	if err != nil {
		return err
	}
	defer c.close()
	for n := int64(1); !stop.Load(); n++ {
		w.sent.Store(n)
		for _, key := range []string{w.key(n), w.last()} {
			for {
				a, err := c.do(http.MethodPut, entity(key), w.value(n))
				if err != nil {
					return err
				}
				if a.status == http.StatusCreated {
					break
				}
				if a.shed() == "" {
					return fmt.Errorf("PUT %s: status %d: %s", key, a.status, a.body)
				}
			}
		}
		w.acked.Store(n)
	}
	return nil
}

// verify reads from a copy that was ordered when number low had been acknowledged,
// and was there when number high had been sent.
func (w *sequence) verify(s *service, low, high int64) error {
	c, err := dial(s.data)
	if err != nil {
		return err
	}
	defer c.close()
	get := func(key string) (string, error) {
		a, err := c.do(http.MethodGet, entity(key), "")
		if err == nil && a.status != http.StatusOK && a.status != http.StatusNotFound {
			err = fmt.Errorf("GET %s: status %d: %s", key, a.status, a.body)
		}
		return a.body, err
	}
	there := int64(0)
	for n := int64(1); n <= w.sent.Load(); n++ {
		got, err := get(w.key(n))
		if err != nil {
			return err
		}
		switch {
		case got == w.value(n) && there == n-1:
			there = n
		case got != "":
			return fmt.Errorf("%s is there, but %s is not, or it is torn: %s", w.key(n), w.key(n-1), brief(got))
		}
	}
	if there < low || there > high {
		return fmt.Errorf("%s: the copy ends with number %d, want one from %d to %d", w.name, there, low, high)
	}
	last, err := get(w.last())
	if err == nil && last != w.value(there) && (there == 1 && last != "" || there > 1 && last != w.value(there-1)) {
		err = fmt.Errorf("%s is %s, but the last key is number %d", w.last(), brief(last), there)
	}
	return err
}

// A backup that is made while clients write and strategies are switched has all
// that was acknowledged before, nothing that was sent later, of each client's
// writes no later one without the earlier ones, and no torn value.
func TestBackup_WhileClientsWrite(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sync   string
		binary build
	}{
		{"always", plain}, {"always", raced}, {"interval:10ms", plain}, {"never", raced},
	} {
		t.Run(test.sync, func(t *testing.T) {
			t.Parallel()
			s := start(t, test.binary, "SPILLWAY_SYNC="+test.sync, "SPILLWAY_QUEUE_CAPACITY=4", "SPILLWAY_CACHE_BYTES=8MB")
			all := make([]*sequence, 8)
			var stop atomic.Bool
			written := make(chan error, 1)
			for i := range all {
				all[i] = &sequence{name: fmt.Sprintf("writer%d", i)}
			}
			go func() {
				written <- concurrently(len(all)+1, func(i int) error {
					if i < len(all) {
						return all[i].write(s, &stop)
					}
					for n, names := 0, strategies.Names(); !stop.Load(); n++ {
						if err := s.trySwitch(names[n%len(names)]); err != nil {
							return err
						}
					}
					return nil
				})
			}()
			more := func(n int64) {
				t.Helper()
				goal := all[0].acked.Load() + n
				s.eventually("more is written", func() bool { return all[0].acked.Load() >= goal })
			}
			type copied struct {
				dir       string
				low, high []int64
			}
			var copies []copied
			for range 3 {
				more(50)
				c := copied{dir: filepath.Join(t.TempDir(), "backup")}
				for _, w := range all {
					c.low = append(c.low, w.acked.Load())
				}
				run(t, plain, s.backupEnv(), "backup", c.dir).succeeds(t)
				for _, w := range all {
					c.high = append(c.high, w.sent.Load())
				}
				copies = append(copies, c)
			}
			more(50)
			stop.Store(true)
			require.NoError(t, <-written)
			s.stop()

			for i, c := range copies {
				folder := filepath.Join(t.TempDir(), "restored")
				env := "SPILLWAY_DATA_DIR=" + folder
				run(t, plain, []string{env}, "restore", c.dir).succeeds(t)
				require.Contains(t, run(t, plain, []string{env}, "check").succeeds(t).stdout, "is sound")
				second := start(t, test.binary, env)
				require.NoError(t, concurrently(len(all), func(i int) error { return all[i].verify(second, c.low[i], c.high[i]) }), "backup %d", i)
				second.stop()
				run(t, plain, nil, "check", c.dir).succeeds(t)
			}
		})
	}
}

// elsewhere returns a folder on another file system than the tests' folders, if
// there is one, so that files are copied to it rather than linked.
func elsewhere(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "spillway-backup-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// fill writes values of 1 MiB and returns how many.
func fill(t *testing.T, s *service) int {
	t.Helper()
	const n = 40
	c := s.dial()
	for i := range n {
		a, err := c.do(http.MethodPut, entity(fmt.Sprint("large", i)), large(i))
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, a.status, a.body)
	}
	return n
}

func large(i int) string { return strings.Repeat(fmt.Sprintf("%07d.", i), 1<<17) }

// requireFilled asserts that a service on that folder has what fill has written.
func requireFilled(t *testing.T, folder string, n int) {
	t.Helper()
	s := start(t, plain, "SPILLWAY_DATA_DIR="+folder)
	c := s.dial()
	for i := range n {
		a, err := c.do(http.MethodGet, entity(fmt.Sprint("large", i)), "")
		require.NoError(t, err)
		require.True(t, a.body == large(i), "value %d: status %d, %d bytes", i, a.status, len(a.body))
	}
	s.stop()
}

// begin starts a command, and returns a function that waits for its end.
func begin(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, wait func() result) {
	t.Helper()
	binary, err := plain()
	require.NoError(t, err)
	cmd = exec.Command(binary, args...)
	cmd.Env = environment(t, env)
	var stdout, stderr output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	exited := make(chan struct{})
	require.NoError(t, startProcess(cmd, syscall.SIGKILL, exited))
	wait = func() result {
		<-exited
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error says that it has ended already
		<-exited
	})
	return cmd, wait
}

// await polls until a file is there, or a command has ended.
func await(path string, ended func() bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if _, err := os.Lstat(path); err == nil || ended() {
			return
		}
	}
}

// A backup that ends with the service, or because whoever has asked goes away, is
// not there, or restore refuses it, or it is whole. The service has lost nothing.
func TestBackup_CutOff(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	env := "SPILLWAY_DATA_DIR=" + folder
	s := start(t, plain, env)
	n := fill(t, s)
	s.stop()
	outcomes := make(map[string]int)
	for cycle := range 9 {
		s := start(t, plain, env)
		dir := filepath.Join(elsewhere(t), "backup")
		cmd, wait := begin(t, s.backupEnv(), "backup", dir)
		// When some part of it is there, of which there are several.
		part := []string{"", "marker.*", "*.sst"}[rand.IntN(3)]
		s.eventually("a part of the backup is there", func() bool {
			found, err := filepath.Glob(filepath.Join(dir, part))
			require.NoError(t, err)
			return len(found) > 0
		})
		what := []string{"killed", "stopped", "interrupted"}[cycle%3]
		switch what {
		case "killed":
			s.kill()
		case "stopped":
			s.stop()
		case "interrupted":
			_ = cmd.Process.Signal(syscall.SIGINT) // an error says that it has ended already
		}
		ended := wait()
		if what == "interrupted" {
			s.stop() // waits until the service has given the backup up
		}
		restored := filepath.Join(t.TempDir(), "restored")
		r := run(t, plain, []string{"SPILLWAY_DATA_DIR=" + restored}, "restore", dir)
		_, err := os.Stat(dir)
		switch {
		case r.code == 0:
			requireFilled(t, restored, n)
			outcomes[what+": whole"]++
		case os.IsNotExist(err):
			require.NotZero(t, ended.code)
			outcomes[what+": nothing"]++
		default:
			require.Equal(t, "killed", what, "only a kill may leave something behind")
			require.NotZero(t, ended.code)
			r.fails(t, dir+" is no finished backup")
			require.NoDirExists(t, restored)
			outcomes[what+": refused"]++
		}
	}
	t.Logf("%v", outcomes)
	requireFilled(t, folder, n)
}

// A restore that is killed leaves behind what no service starts on, and what another
// restore makes whole. One that is interrupted leaves nothing.
func TestRestore_CutOff(t *testing.T) {
	t.Parallel()
	s := start(t, plain)
	n := fill(t, s)
	dir := filepath.Join(t.TempDir(), "backup")
	run(t, plain, s.backupEnv(), "backup", dir).succeeds(t)
	s.stop()
	outcomes := make(map[string]int)
	for cycle := range 6 {
		restored := filepath.Join(t.TempDir(), "restored")
		env := []string{"SPILLWAY_DATA_DIR=" + restored}
		cmd, wait := begin(t, env, "restore", dir)
		var ended atomic.Bool
		over := make(chan result, 1)
		go func() {
			over <- wait()
			ended.Store(true)
		}()
		await(filepath.Join(restored, "SPILLWAY-RESTORE-UNFINISHED"), ended.Load)
		signal := []os.Signal{syscall.SIGKILL, syscall.SIGTERM}[cycle%2]
		_ = cmd.Process.Signal(signal) // an error says that it has ended already
		r := <-over
		_, there := os.Stat(restored)
		_, err := os.Stat(filepath.Join(restored, "SPILLWAY-RESTORE-UNFINISHED"))
		switch {
		case r.code == 0:
			outcomes["whole"]++
		case signal == syscall.SIGTERM && os.IsNotExist(there):
			outcomes["nothing"]++
			continue
		case signal == syscall.SIGTERM:
			// It had done all, and gave heed to no signal any more.
			require.Equal(t, -1, r.code, "what is interrupted leaves nothing: %s", r.stderr)
			require.Error(t, err)
			outcomes["ended at the very end"]++
		case err == nil:
			run(t, plain, env).fails(t, restored, "a restore into it was interrupted", "spillway restore")
			run(t, plain, env, "check").fails(t, restored, "a restore into it was interrupted")
			run(t, plain, env, "restore", dir).succeeds(t)
			outcomes["begun anew"]++
		default:
			outcomes["killed at the very end"]++
		}
		requireFilled(t, restored, n)
	}
	t.Logf("%v", outcomes)
}

// What would do harm, or is of no use, is refused in one line, and nothing changes.
func TestBackup_Refusals(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	env := "SPILLWAY_DATA_DIR=" + folder
	// Nobody else takes a port of this address when the service has stopped.
	s := start(t, plain, env, "SPILLWAY_ADMIN_LISTEN=127.0.0.78:0")
	n := fill(t, s)
	dir := filepath.Join(t.TempDir(), "backup")
	run(t, plain, s.backupEnv(), "backup", dir).succeeds(t)

	for _, row := range []struct {
		args  []string
		words []string
	}{
		{[]string{"backup", dir}, []string{dir, "not empty"}},
		{[]string{"backup", folder}, []string{"in the data folder"}},
		{[]string{"backup", filepath.Join(folder, "monday")}, []string{"in the data folder", filepath.Join(folder, "backups")}},
		{[]string{"check"}, []string{folder, "in use by a running service"}},
		{[]string{"restore", dir}, []string{folder, "in use by a running service"}},
		{[]string{"restore", folder}, []string{folder}},
	} {
		run(t, plain, s.backupEnv(env), row.args...).fails(t, row.words...)
	}
	for _, args := range [][]string{{"backup"}, {"restore"}, {"backup", "one", "two"}, {"check", "one", "two"}} {
		r := run(t, plain, s.backupEnv(env), args...)
		require.Equal(t, 2, r.code, "%v", args)
		r.requireOneLine(t)
	}
	inside := filepath.Join(folder, "backups", "monday")
	run(t, plain, s.backupEnv(), "backup", inside).succeeds(t)
	s.stop()

	run(t, plain, []string{env}, "restore", dir).fails(t, folder, "not empty")
	run(t, plain, s.backupEnv(), "backup", dir+"2").fails(t, "does not answer", s.admin)
	run(t, plain, []string{env}, "check").succeeds(t)
	requireFilled(t, folder, n)

	// A damaged table is named, and not restored.
	tables, err := filepath.Glob(filepath.Join(inside, "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	f, err := os.OpenFile(tables[0], os.O_RDWR, 0)
	require.NoError(t, err)
	content, err := io.ReadAll(f)
	require.NoError(t, err)
	// Not in place, as the store has the same file.
	require.NoError(t, f.Close())
	require.NoError(t, os.Remove(tables[0]))
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(tables[0], content, 0o644))
	r := run(t, plain, nil, "check", inside)
	require.Equal(t, 1, r.code)
	r.requireOneLine(t)
	require.Contains(t, r.stderr, tables[0])
	empty := filepath.Join(t.TempDir(), "restored")
	r = run(t, plain, []string{"SPILLWAY_DATA_DIR=" + empty}, "restore", inside)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, tables[0])
	require.Contains(t, r.stderr, "nothing was restored")
	require.NoDirExists(t, empty)
	requireFilled(t, folder, n)
}

// The command knows token and certificate by the settings of the service, and sends
// the token to nobody else.
func TestBackup_TokenAndTLS(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cert, key := certificate(t, folder, "first")
	secure := []string{"SPILLWAY_TLS_CERT=" + cert, "SPILLWAY_TLS_KEY=" + key}
	s := start(t, plain, append(secure, "SPILLWAY_ADMIN_TOKEN=secret")...)
	dir := filepath.Join(t.TempDir(), "backup")
	token := filepath.Join(folder, "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))

	run(t, plain, s.backupEnv(secure...), "backup", dir).fails(t, "token", "SPILLWAY_ADMIN_TOKEN")
	run(t, plain, s.backupEnv(append(secure, "SPILLWAY_ADMIN_TOKEN=wrong")...), "backup", dir).fails(t, "token")
	run(t, plain, s.backupEnv("SPILLWAY_ADMIN_TOKEN=secret"), "backup", dir).fails(t, s.admin)
	otherCert, otherKey := certificate(t, t.TempDir(), "other")
	run(t, plain, s.backupEnv("SPILLWAY_TLS_CERT="+otherCert, "SPILLWAY_TLS_KEY="+otherKey, "SPILLWAY_ADMIN_TOKEN=secret"), "backup", dir).fails(t, "certificate is not the one in "+otherCert)
	require.NoDirExists(t, dir)
	run(t, plain, s.backupEnv(append(secure, "SPILLWAY_ADMIN_TOKEN_FILE="+token)...), "backup", dir).succeeds(t)
	run(t, plain, nil, "check", dir).succeeds(t)
	s.stop()
}
