//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder that is not as it was left stops the start with one line that names
// the file and says what to do, and is not changed by it.
func TestStart_DamagedFolder(t *testing.T) {
	t.Parallel()
	// Of a killed service, and of one that was stopped.
	for _, killed := range []bool{false, true} {
		folder := filepath.Join(t.TempDir(), "data")
		for range 2 { // the second start leaves tables
			s := start(t, raced, "SPILLWAY_DATA_DIR="+folder)
			for _, k := range []string{"a", "b", "c"} {
				require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity(k)), "value").status)
			}
			if killed {
				s.kill()
			} else {
				s.stop()
			}
		}
		for _, row := range []struct {
			what, glob string
			damage     func(path string) error
			says       []string
		}{
			{"a table is missing", "*.sst", os.Remove, []string{"does not exist", "spillway restore"}},
			{"a table is cut", "*.sst", func(p string) error { return os.Truncate(p, 10) }, []string{".sst", "spillway restore"}},
			{"the manifest is cut", "MANIFEST-*", func(p string) error { return os.Truncate(p, 100) }, []string{"MANIFEST-", "is damaged", "spillway restore"}},
			{"the manifest is empty", "MANIFEST-*", func(p string) error { return os.Truncate(p, 0) }, []string{"MANIFEST-", "is damaged", "spillway restore"}},
			{"the manifest is missing", "MANIFEST-*", os.Remove, []string{"MANIFEST-", "spillway restore"}},
			{"a bit of the manifest is flipped", "MANIFEST-*", flip, []string{"MANIFEST-", "is damaged", "spillway restore"}},
			{"the marker of the manifest is missing", "marker.manifest.*", os.Remove, []string{"marker.manifest.", "spillway restore"}},
			{"a newer version has written it", "marker.format-version.*", func(p string) error {
				return os.Rename(p, filepath.Join(filepath.Dir(p), "marker.format-version.000099.999"))
			}, []string{"format 999", "newer version"}},
			{"an older program has written it", "marker.*", func(p string) error {
				return os.Rename(p, filepath.Join(filepath.Dir(p), "CURRENT"))
			}, []string{"spillway restore"}},
		} {
			damaged := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.CopyFS(damaged, os.DirFS(folder)))
			paths, err := filepath.Glob(filepath.Join(damaged, row.glob))
			require.NoError(t, err)
			require.NotEmpty(t, paths, row.what)
			for _, p := range paths {
				require.NoError(t, row.damage(p))
			}
			before := names(t, damaged)
			r := run(t, raced, []string{"SPILLWAY_DATA_DIR=" + damaged})
			require.Equal(t, 1, r.code, "%s: %s", row.what, r.stderr)
			r.requireOneLine(t)
			for _, s := range append(row.says, damaged) {
				require.Contains(t, r.stderr, s, row.what)
			}
			for _, name := range before {
				require.FileExists(t, filepath.Join(damaged, name), row.what)
			}
		}
	}
}

// flip flips a bit in the middle of a file.
func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 4
	return os.WriteFile(path, b, 0o644)
}

// names returns the tables and manifests of a folder.
func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	for _, glob := range []string{"*.sst", "MANIFEST-*"} {
		paths, err := filepath.Glob(filepath.Join(folder, glob))
		require.NoError(t, err)
		for _, p := range paths {
			all = append(all, filepath.Base(p))
		}
	}
	return all
}

// tmpfs returns the folder of a small file system of its own, in memory.
func tmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"), "mounting takes root")
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// exhaust writes a file until there is no space left.
func exhaust(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	for size := 1 << 20; size > 0; size /= 2 {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		err = nil
	}
	require.NoError(t, f.Close())
}

// unprivileged is the service without root's right to write where the permissions
// do not allow it.
var unprivileged build = sync.OnceValues(func() (string, error) {
	binary, err := raced()
	if err != nil {
		return "", err
	}
	path := binary + "-unprivileged"
	script := "#!/bin/sh\nexec setpriv --bounding-set=-dac_override,-dac_read_search -- '" + binary + "' \"$@\"\n"
	return path, writeProgram(path, script)
})

// A service whose disk fails while it runs refuses writes, and says so wherever one
// may ask. It serves reads, and goes on by itself when the disk is well again.
func TestRunning_DiskFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		binary     build
		folder     func(t *testing.T) string
		fail, heal func(t *testing.T, folder string)
	}{
		{
			"no space", raced, tmpfs,
			func(t *testing.T, folder string) { exhaust(t, filepath.Join(folder, "ballast")) },
			func(t *testing.T, folder string) { require.NoError(t, os.Remove(filepath.Join(folder, "ballast"))) },
		},
		{
			"no permission", unprivileged, func(t *testing.T) string { return t.TempDir() },
			func(t *testing.T, folder string) { require.NoError(t, os.Chmod(filepath.Join(folder, "data"), 0o500)) },
			func(t *testing.T, folder string) { require.NoError(t, os.Chmod(filepath.Join(folder, "data"), 0o700)) },
		},
	} {
		for _, mode := range []string{"always", "interval:5ms", "never"} {
			t.Run(row.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				folder := row.folder(t)
				env := []string{"SPILLWAY_DATA_DIR=" + filepath.Join(folder, "data"), "SPILLWAY_SYNC=" + mode, "SPILLWAY_CACHE_BYTES=4MB"}
				s := start(t, row.binary, env...)
				var keys []string
				put := func() answer {
					key := fmt.Sprint("key", len(keys))
					a := s.request(http.MethodPut, s.dataURL(entity(key)), valueOf(key))
					if a.status == http.StatusCreated {
						keys = append(keys, key)
					}
					return a
				}
				verify := func() {
					for _, key := range keys {
						a := s.request(http.MethodGet, s.dataURL(entity(key)), "")
						require.Equal(t, http.StatusOK, a.status, key)
						require.True(t, a.body == valueOf(key), "the value of %s is wrong", key)
					}
				}
				for range 10 {
					require.Equal(t, http.StatusCreated, put().status)
				}

				row.fail(t, folder)
				s.eventually("a write fails", func() bool { return put().status != http.StatusCreated })
				require.Equal(t, http.StatusServiceUnavailable, s.ready())
				require.Zero(t, s.metrics()["spillway_store_writable"])
				for _, method := range []string{http.MethodPut, http.MethodDelete} {
					a := s.request(method, s.dataURL(entity(keys[0])), "")
					require.Equal(t, "the store cannot write at the moment; the write has had no effect", a.requireProblem(t, http.StatusServiceUnavailable))
					require.Empty(t, a.shed())
				}
				verify()
				a := s.request(http.MethodGet, s.dataURL("/v0/entities?start=key0&end=key1"), "")
				require.Equal(t, http.StatusOK, a.status)
				require.True(t, a.body == keys[0]+"\n"+valueOf(keys[0]))

				row.heal(t, folder)
				s.eventually("writes return", func() bool { return put().status == http.StatusCreated })
				require.Equal(t, http.StatusOK, s.ready())
				require.EqualValues(t, 1, s.metrics()["spillway_store_writable"])
				verify()
				s.stop() // and has said all
				require.Equal(t, 1, strings.Count(s.stderr.String(), "the store cannot write, reads go on"))
				require.Equal(t, 1, strings.Count(s.stderr.String(), "the store can write again"))
				s = start(t, row.binary, env...)
				verify()
				s.stop()
			})
		}
	}
}

// valueOf returns what is stored under a key: 100 kB of its own.
func valueOf(key string) string {
	var seed [32]byte
	copy(seed[:], key)
	value := make([]byte, 100_000)
	_, _ = rand.NewChaCha8(seed).Read(value)
	return string(value)
}

// A folder that cannot be written stops the start with one line.
func TestStart_UnwritableFolder(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		binary build
		folder func(t *testing.T) string
		says   string
	}{
		{"no space", raced, func(t *testing.T) string {
			volume := tmpfs(t)
			folder := filepath.Join(volume, "data")
			require.NoError(t, os.Mkdir(folder, 0o700))
			exhaust(t, filepath.Join(volume, "ballast"))
			return folder
		}, "no space left on device"},
		{"a read-only file system", raced, func(t *testing.T) string {
			folder := tmpfs(t)
			require.NoError(t, syscall.Mount("", folder, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
			return folder
		}, "read-only file system"},
		{"no permission", unprivileged, func(t *testing.T) string {
			folder := t.TempDir()
			require.NoError(t, os.Chmod(folder, 0o500))
			return folder
		}, "permission denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			folder := row.folder(t)
			r := run(t, row.binary, []string{"SPILLWAY_DATA_DIR=" + folder})
			require.Equal(t, 1, r.code, r.stderr)
			r.requireOneLine(t)
			require.Contains(t, r.stderr, "cannot write to the data folder "+folder)
			require.Contains(t, r.stderr, row.says)
		})
	}
}

// Tables that are damaged under the running service: a read has the true value or
// an error that says why, others are served, and writes go on.
func TestRunning_DamagedTable(t *testing.T) {
	t.Parallel()
	env := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
	folder := strings.TrimPrefix(env, "SPILLWAY_DATA_DIR=")
	s := start(t, raced, env)
	for i := range 8 {
		key := fmt.Sprint("key", i)
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity(key)), valueOf(key)).status)
	}
	s.stop()

	s = start(t, raced, env)
	var tables []string
	s.eventually("there is one table", func() bool { // what else a stop has left goes in the background
		var err error
		tables, err = filepath.Glob(filepath.Join(folder, "*.sst"))
		return err == nil && len(tables) == 1
	})
	damage(t, tables[0])
	read := func() (served, failed []string) {
		for i := range 8 {
			key := fmt.Sprint("key", i)
			a := s.request(http.MethodGet, s.dataURL(entity(key)), "")
			if a.status == http.StatusOK {
				require.True(t, a.body == valueOf(key), "the value of %s is wrong", key)
				served = append(served, key)
				continue
			}
			require.Contains(t, a.requireProblem(t, http.StatusInternalServerError), "cannot read: ")
			failed = append(failed, key)
		}
		return served, failed
	}
	served, failed := read()
	require.NotEmpty(t, served)
	require.NotEmpty(t, failed)
	s.eventually("it says which table", func() bool {
		_, said, found := strings.Cut(s.stderr.String(), "the store found corrupt data")
		return found && strings.Contains(said, filepath.Base(tables[0]))
	})
	a, err := s.try(http.MethodGet, s.dataURL("/v0/entities?start=k"), "")
	require.True(t, err != nil || a.status == http.StatusInternalServerError, "a range over what cannot be read ends without its end: %d", a.status)
	require.Equal(t, http.StatusOK, s.ready())

	require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity("new")), "v").status)
	require.Equal(t, "v", s.request(http.MethodGet, s.dataURL(entity("new")), "").body)
	damage(t, tables[0]) // a second time is none
	served, failed = read()
	require.Len(t, served, 8)
	require.Empty(t, failed)
	s.stop()
}

// damage flips a byte in the middle of a file, in place.
func damage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, info.Size()/2)
	require.NoError(t, err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b, info.Size()/2)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
