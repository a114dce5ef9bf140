//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// permissive is the service under a umask that takes nothing away.
var permissive build = sync.OnceValues(func() (string, error) {
	binary, err := plain()
	if err != nil {
		return "", err
	}
	path := binary + "-permissive"
	return path, writeProgram(path, "#!/bin/sh\numask 0\nexec '"+binary+"' \"$@\"\n")
})

// mountOver mounts another file system over a folder, and returns what takes it away.
func mountOver(t *testing.T, dir string) (unmount func()) {
	t.Helper()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"), "mounting takes root")
	unmount = sync.OnceFunc(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	t.Cleanup(unmount)
	return unmount
}

// putAll writes keys until there are n, or one is refused, and returns those that
// were acknowledged.
func (s *service) putAll(prefix string, n int) (keys []string) {
	for i := range n {
		key := fmt.Sprint(prefix, i)
		if s.request(http.MethodPut, s.dataURL(entity(key)), valueOf(key)).status != http.StatusCreated {
			break
		}
		keys = append(keys, key)
	}
	return keys
}

func (s *service) requireAll(keys []string) {
	s.t.Helper()
	for _, key := range keys {
		a := s.request(http.MethodGet, s.dataURL(entity(key)), "")
		require.Equal(s.t, http.StatusOK, a.status, key)
		require.True(s.t, a.body == valueOf(key), "the value of %s is wrong", key)
	}
}

// all returns the files below a folder, with what they hold.
func all(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var b []byte
			b, err = os.ReadFile(path)
			files[path] = string(b)
		}
		return err
	}))
	return files
}

// A volume that is mounted over the data folder, full or not, is not taken for it:
// what was acknowledged can be read, nothing else is acknowledged, and nothing is
// changed there. Writes return when it is taken away.
func TestRunning_VolumeMountedOver(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{true, false} {
		for _, mode := range []string{"always", "interval:5ms", "never"} {
			t.Run(fmt.Sprintf("full=%v/%s", full, mode), func(t *testing.T) {
				t.Parallel()
				folder := tmpfs(t)
				env := []string{"SPILLWAY_DATA_DIR=" + folder, "SPILLWAY_SYNC=" + mode, "SPILLWAY_CACHE_BYTES=4MB"}
				s := start(t, raced, env...)
				ballast := filepath.Join(folder, "ballast")
				keys := s.putAll("before", 100)
				if full {
					exhaust(t, ballast)
					s.eventually("a write fails", func() bool {
						more := s.putAll(fmt.Sprint("full", len(keys), "-"), 1)
						keys = append(keys, more...)
						return len(more) == 0
					})
				}
				tables, err := filepath.Glob(filepath.Join(folder, "*.sst"))
				require.NoError(t, err)
				require.NotEmpty(t, tables)

				unmount := mountOver(t, folder)
				for _, path := range tables { // which somebody begins to copy
					require.NoError(t, os.WriteFile(path, []byte("a part"), 0o600))
				}
				before := all(t, folder)
				s.eventually("it says so", func() bool {
					return strings.Contains(s.stderr.String(), "another one lies at its path")
				})
				require.Equal(t, http.StatusServiceUnavailable, s.ready())
				require.Contains(t, s.request(http.MethodGet, s.adminURL("/readyz"), "").body, "another one lies at its path")
				require.Empty(t, s.putAll("foreign", 1))
				s.requireAll(keys)
				require.Equal(t, before, all(t, folder))

				unmount()
				if full {
					require.NoError(t, os.Remove(ballast))
				}
				s.eventually("writes return", func() bool { return len(s.putAll("after", 1)) == 1 })
				s.requireAll(keys)
				s.stop()
				require.Equal(t, 1, strings.Count(s.stderr.String(), "another one lies at its path"), "it says so once, however often it looks")
				s = start(t, raced, env...)
				s.requireAll(append(keys, "after0"))
				s.stop()
			})
		}
	}
}

// A data folder that is emptied under the service: within a second or so nothing is
// acknowledged any more, and a stop says that it is not as it should be.
func TestRunning_FolderEmptied(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	s := start(t, raced, "SPILLWAY_DATA_DIR="+folder)
	keys := s.putAll("key", 20)
	require.Len(t, keys, 20)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries { // the service may rename or remove some itself
		require.NoError(t, os.RemoveAll(filepath.Join(folder, e.Name())))
	}
	s.eventually("a write is refused", func() bool { return len(s.putAll("later", 1)) == 0 })
	require.Equal(t, http.StatusServiceUnavailable, s.ready())
	for _, key := range keys { // those in tables that were not open are gone
		if a := s.request(http.MethodGet, s.dataURL(entity(key)), ""); a.status != http.StatusInternalServerError {
			require.Equal(t, http.StatusOK, a.status, key)
			require.True(t, a.body == valueOf(key), "the value of %s is wrong", key)
		}
	}
	s.eventually("it says what to do", func() bool { return strings.Contains(s.stderr.String(), "put back what was there") })
	s.signal(syscall.SIGTERM)
	require.Equal(t, 1, s.wait())
}

// Removing the lock lets nobody else in, and the service goes on with another.
func TestRunning_LockRemoved(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	env := []string{"SPILLWAY_DATA_DIR=" + folder}
	s := start(t, raced, env...)
	keys := s.putAll("key", 20)
	require.NoError(t, os.Remove(filepath.Join(folder, "LOCK")))
	run(t, raced, env).fails(t, folder, "in use")
	run(t, raced, env, "check").fails(t, folder, "in use")
	run(t, raced, env, "restore", t.TempDir()).fails(t)
	s.eventually("the lock is there again", func() bool {
		_, err := os.Stat(filepath.Join(folder, "LOCK"))
		return err == nil
	})
	s.eventually("writes return", func() bool { return len(s.putAll("after", 1)) == 1 })
	s.eventually("it has said so", func() bool {
		return strings.Contains(s.stderr.String(), "the file LOCK of the data folder was removed or replaced")
	})
	run(t, raced, env).fails(t, folder, "in use")
	s.requireAll(append(keys, "after0"))
	s.stop()
}

// A log that is removed from the folder of a killed service is missed.
func TestStart_LogRemoved(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	env := []string{"SPILLWAY_DATA_DIR=" + folder}
	s := start(t, raced, env...)
	keys := s.putAll("key", 20)
	s.kill()
	logs, err := filepath.Glob(filepath.Join(folder, "*.log"))
	require.NoError(t, err)
	newest := logs[len(logs)-1]
	require.NoError(t, os.Rename(newest, newest+".away"))
	run(t, raced, env).fails(t, folder, filepath.Base(newest), "is missing")
	r := run(t, raced, env, "check")
	require.Equal(t, 1, r.code)
	r.requireOneLine(t)
	require.Contains(t, r.stderr, filepath.Base(newest))
	require.NoError(t, os.Rename(newest+".away", newest))
	s = start(t, raced, env...)
	s.requireAll(keys)
	s.stop()
}

// requirePrivate asserts that a folder has that mode, and what is below is for its
// user alone. A service that uses it may remove files meanwhile.
func requirePrivate(t *testing.T, folder string, mode fs.FileMode) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) && path != folder {
			return nil
		}
		require.NoError(t, err)
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if path == folder {
			want = mode
		}
		require.Equal(t, want.String(), info.Mode().Perm().String(), path)
		return nil
	}))
}

// Whatever the umask, what is made is for its user alone; a folder that is there
// keeps its mode, and a line says if anybody may look into it.
func TestModes(t *testing.T) {
	t.Parallel()
	const exposed = "anybody on this machine may look into the data folder"
	folder := filepath.Join(t.TempDir(), "deep", "data")
	env := []string{"SPILLWAY_DATA_DIR=" + folder}
	s := start(t, permissive, env...)
	s.putAll("key", 20)
	prepared, made := filepath.Join(t.TempDir(), "prepared"), filepath.Join(t.TempDir(), "deep", "made")
	require.NoError(t, os.Mkdir(prepared, 0o700))
	require.NoError(t, os.Chmod(prepared, 0o750))
	for dir, mode := range map[string]fs.FileMode{prepared: 0o750, made: 0o700, filepath.Join(folder, "backups", "one"): 0o700} {
		run(t, permissive, s.backupEnv(), "backup", dir).succeeds(t)
		requirePrivate(t, dir, mode)
	}
	requirePrivate(t, filepath.Dir(folder), 0o700)
	s.stop()
	require.NotContains(t, s.stderr.String(), exposed)

	restored := filepath.Join(t.TempDir(), "deep", "restored")
	run(t, permissive, []string{"SPILLWAY_DATA_DIR=" + restored}, "restore", made).succeeds(t)
	requirePrivate(t, filepath.Dir(restored), 0o700)

	require.NoError(t, os.Chmod(folder, 0o755))
	s = start(t, permissive, env...)
	require.Contains(t, s.stderr.String(), exposed)
	s.putAll("more", 20)
	s.stop()
	requirePrivate(t, folder, 0o755)
}

// A folder has several paths where it is mounted at several: by none of them is there
// a backup in the midst of the store's files.
func TestBackup_BindMount(t *testing.T) {
	t.Parallel()
	parent, other, above := t.TempDir(), t.TempDir(), t.TempDir()
	folder := filepath.Join(parent, "data")
	s := start(t, plain, "SPILLWAY_DATA_DIR="+folder)
	s.putAll("key", 20)
	for at, of := range map[string]string{other: folder, above: parent} {
		require.NoError(t, syscall.Mount(of, at, "", syscall.MS_BIND, ""), "mounting takes root")
		t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	}
	for _, alias := range []string{other, filepath.Join(above, "data")} {
		run(t, plain, s.backupEnv(), "backup", filepath.Join(alias, "monday")).fails(t, "in the data folder")
		run(t, plain, s.backupEnv(), "backup", filepath.Join(alias, "deep", "monday")).fails(t, "in the data folder")
	}
	run(t, plain, s.backupEnv(), "backup", filepath.Join(other, "backups", "monday")).succeeds(t)
	run(t, plain, s.backupEnv(), "backup", filepath.Join(above, "monday")).succeeds(t)
	s.stop()
}
