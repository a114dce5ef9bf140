package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// written fills a store with some tables and a log, and returns the keys.
func written(t *testing.T, s *Store) (keys []string) {
	t.Helper()
	for i := range 200 {
		key := fmt.Sprintf("%06d", i)
		require.NoError(t, apply(s, put(key, valueOf(key))))
		keys = append(keys, key)
		if i%50 == 25 {
			require.NoError(t, s.cur.Load().db.Flush())
		}
	}
	return keys
}

// requireReadOnly asserts that the store refuses writes for that reason, and all
// else goes on.
func requireReadOnly(t *testing.T, s *Store, keys []string, reason string) {
	t.Helper()
	require.ErrorIs(t, s.Writable(), store.ErrUnwritable)
	require.ErrorContains(t, s.Writable(), reason)
	require.ErrorIs(t, apply(s, put("new", "v")), store.ErrUnwritable)
	require.ErrorIs(t, s.Checkpoint(filepath.Join(t.TempDir(), "c")), store.ErrUnwritable)
	requireKeys(t, s, keys)
}

// Who tries to start on the folder of a store that comes back probes it as well. Neither
// takes the other for a failure of the disk.
func TestStore_ProbesAtOnce(t *testing.T) {
	t.Parallel()
	s := openOnly(t, Options{Dir: filepath.Join(t.TempDir(), "data")})
	var probing sync.WaitGroup
	for range 4 {
		probing.Go(func() {
			for range 100 {
				assert.NoError(t, s.probe())
			}
		})
	}
	probing.Wait()
	require.NoError(t, s.Close())
}

// Another folder at the path, as a volume that is mounted there: the store that was
// opened goes on to be read, nothing is changed in the other, and writes return with
// the folder.
func TestStore_AnotherFolder(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, full := range []bool{false, true} { // the disk has failed before
			t.Run(fmt.Sprintf("%s/full=%v", mode, full), func(t *testing.T) {
				t.Parallel()
				dir, r := filepath.Join(t.TempDir(), "data"), newRecorder(t)
				s := openOnly(t, Options{Dir: dir, Sync: mode, RetryInterval: time.Hour, Logger: slog.New(r), CacheBytes: 1 << 20})
				keys := written(t, s)
				if full {
					s.cur.Load().disk.loseLog(syscall.ENOSPC)
				}
				moved := dir + "-moved"
				require.NoError(t, os.Rename(dir, moved))
				require.NoError(t, os.Mkdir(dir, 0o700))
				// The operator has begun to copy.
				require.NoError(t, os.WriteFile(filepath.Join(dir, "000004.sst"), []byte("theirs"), 0o600))
				before := contents(t, dir)
				s.watch()
				s.attempt()
				s.attempt()
				requireReadOnly(t, s, keys, "another one lies at its path")
				require.ErrorContains(t, s.Writable(), "put back what was there")
				require.Equal(t, 1, r.count("the store cannot write"))
				require.Equal(t, before, contents(t, dir))

				// A whole copy of it is another folder, too.
				require.NoError(t, os.RemoveAll(dir))
				copyDir(t, dir, moved)
				before = contents(t, dir)
				s.attempt()
				s.attempt()
				requireReadOnly(t, s, keys, "another one lies at its path")
				require.Equal(t, before, contents(t, dir))

				require.NoError(t, os.RemoveAll(dir))
				require.NoError(t, os.Rename(moved, dir))
				require.NoError(t, s.comeBack(nil))
				require.NoError(t, s.Writable())
				requireKeys(t, s, keys)
				require.NoError(t, apply(s, put("new", "v")))
				require.NoError(t, s.Close())
				s = openOnly(t, Options{Dir: dir})
				requireKeys(t, s, keys)
				require.Equal(t, "v", get(t, s, "new"))
				require.NoError(t, s.Close())
			})
		}
	}
}

// A folder that is stopped on while another lies at its path is not changed there.
func TestStore_CloseOnAnotherFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := openOnly(t, Options{Dir: dir, Sync: Never})
	require.NoError(t, apply(s, put("a", "1")))
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.ErrorContains(t, s.Close(), "another one lies at its path")
	require.Empty(t, contents(t, dir))
}

// What is no longer in the folder as the store has put it there stops writes within
// a second, and is not opened again, on a disk in memory too.
func TestStore_FolderChanged(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what string
		// change changes the folder "d" of the open store, of which snapshot was taken
		// some writes ago.
		change func(t *testing.T, fs, snapshot *vfs.MemFS)
		reason string
		// own says that the folder is the store's all the same: what is in memory is
		// written there.
		own bool
	}{
		{"it is emptied", func(t *testing.T, fs, _ *vfs.MemFS) { clearFolder(t, fs) }, format.OpenedName, false},
		{"it is emptied and filled with another store", func(t *testing.T, fs, _ *vfs.MemFS) {
			other := vfs.NewCrashableMem()
			require.NoError(t, openOnly(t, Options{Dir: "d", FS: other}).Close())
			clearFolder(t, fs)
			fillFolder(t, fs, other)
		}, "somebody else has opened it", false},
		{"it is what it was before", func(t *testing.T, fs, snapshot *vfs.MemFS) {
			clearFolder(t, fs)
			fillFolder(t, fs, snapshot)
		}, "MANIFEST", false},
		{"a backup is put in its place", func(t *testing.T, fs, snapshot *vfs.MemFS) {
			clearFolder(t, fs)
			fillFolder(t, fs, snapshot)
			require.NoError(t, fs.Remove("d/"+format.OpenedName))
		}, format.OpenedName, false},
		{"the manifest is gone", func(t *testing.T, fs, _ *vfs.MemFS) {
			for _, name := range named(t, fs, format.ManifestPrefix, "") {
				unlessGone(t, fs.Remove("d/"+name))
			}
			removeLogs(t, fs)
		}, "MANIFEST", false},
		{"a table and the log are gone", func(t *testing.T, fs, _ *vfs.MemFS) {
			require.NoError(t, fs.Remove("d/"+largest(t, fs)))
			removeLogs(t, fs)
		}, ".sst is missing", true},
	} {
		for _, mode := range modes {
			t.Run(row.what+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				fs, r := vfs.NewCrashableMem(), newRecorder(t)
				s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode, RetryInterval: time.Hour, Logger: slog.New(r)})
				keys := written(t, s)
				snapshot := copyOf(fs)
				for i := range 50 {
					key := fmt.Sprintf("later%d", i)
					require.NoError(t, apply(s, put(key, valueOf(key))))
					keys = append(keys, key)
				}
				require.NoError(t, s.cur.Load().db.Flush())
				require.NoError(t, s.cur.Load().db.Compact(t.Context(), nil, []byte("z"), false)) // so that no other begins
				requireKeys(t, s, keys)                                                           // and so opens all tables
				require.Eventually(t, func() bool {                                               // and none is left that nothing needs
					m := s.cur.Load().db.Metrics()
					return m.Table.ZombieCount == 0 && m.Table.ObsoleteCount == 0
				}, time.Minute, time.Millisecond)
				require.NoError(t, fs.MkdirAll("aside", 0o700))
				for _, name := range named(t, fs, "", "") { // which stay as they are
					unlessGone(t, fs.Link("d/"+name, "aside/"+name))
				}

				row.change(t, fs, snapshot)
				s.watch()
				require.ErrorContains(t, s.Writable(), ".log")
				before := everything(t, fs)
				s.attempt()
				s.attempt()
				requireReadOnly(t, s, keys, row.reason)
				if !row.own {
					require.Equal(t, before, everything(t, fs))
				}
				for _, part := range []string{"probe", ".tmp"} {
					require.Empty(t, named(t, fs, "", part))
				}

				// It is put back as it was.
				clearFolder(t, fs)
				aside, err := fs.List("aside")
				require.NoError(t, err)
				for _, name := range aside {
					if name != datadir.LockName {
						require.NoError(t, fs.Link("aside/"+name, "d/"+name))
					}
				}
				err = nil
				for range 3 { // the first may be one failure behind
					if err = s.comeBack(nil); err == nil {
						break
					}
				}
				require.NoError(t, err)
				requireKeys(t, s, keys)
				require.NoError(t, apply(s, put("new", "v")))
				require.NoError(t, s.Close())
			})
		}
	}
}

// everything returns the contents of the files of the folder "d", by their names.
func everything(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, name := range named(t, fs, "", "") {
		if name != datadir.LockName {
			all[name] = string(content(t, fs, name))
		}
	}
	return all
}

// clearFolder removes all files of the folder "d".
func clearFolder(t *testing.T, fs vfs.FS) {
	t.Helper()
	for _, name := range named(t, fs, "", "") {
		if name != datadir.LockName {
			unlessGone(t, fs.Remove("d/"+name))
		}
	}
}

// unlessGone checks what became of a file of an open store, which may have removed it
// meanwhile if it has no use for it any more.
func unlessGone(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
}

// fillFolder copies the files of the folder "d" from one file system to another.
func fillFolder(t *testing.T, to, from vfs.FS) {
	t.Helper()
	for _, name := range named(t, from, "", "") {
		if name != datadir.LockName {
			overwrite(t, to, name, content(t, from, name))
		}
	}
}

func removeLogs(t *testing.T, fs vfs.FS) {
	t.Helper()
	for _, name := range named(t, fs, "", ".log") {
		unlessGone(t, fs.Remove("d/"+name))
	}
}

// A log that is removed from under the store stops writes, and what it held is
// saved from memory.
func TestStore_LogRemoved(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			fs, w := newFaults(), newWatcher()
			// A flush takes longer than the patience that follows from the interval.
			s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode, RetryInterval: time.Microsecond, OnWritable: w.onWritable})
			keys := written(t, s)
			removeLogs(t, fs.mem)
			require.ErrorContains(t, <-w.failed, "removed or replaced") // within a second
			<-w.well
			requireKeys(t, s, keys)
			requireOnDisk(t, fs.crash(0), keys)
			require.NoError(t, apply(s, put("new", "v")))
			require.NoError(t, s.Close())
		})
	}
}

// A lock file that somebody removes does not let another store in, and is made anew.
func TestStore_LockRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := openOnly(t, Options{Dir: dir, RetryInterval: time.Hour})
	keys := written(t, s)
	require.NoError(t, os.Remove(filepath.Join(dir, datadir.LockName)))
	_, err := Open(Options{Dir: dir})
	requireOneLine(t, err, "in use")
	s.watch()
	requireReadOnly(t, s, keys, "LOCK")
	require.NoError(t, s.comeBack(nil))
	require.FileExists(t, filepath.Join(dir, datadir.LockName))
	require.NoError(t, apply(s, put("new", "v")))
	requireKeys(t, s, keys)
	require.NoError(t, s.Close())
}

// A log that somebody has removed from the folder of a killed store is missed, by a
// start and by Check, unless nothing needed it.
func TestOpen_LogRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := openOnly(t, Options{Dir: dir, memTableBytes: 32 << 10})
	keys := written(t, s)
	killed := filepath.Join(t.TempDir(), "killed")
	copyDir(t, killed, dir)
	require.NoError(t, s.Close())

	logs := matching(t, killed, "*.log")
	newest := logs[len(logs)-1]
	aside := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Rename(newest, aside))
	before := contents(t, killed)
	_, err := Open(Options{Dir: killed})
	requireOneLine(t, err, filepath.Base(newest), "is missing", "put it back", format.LogsName)
	requireDamaged(t, killed, filepath.Base(newest))
	after := contents(t, killed)
	delete(after, datadir.LockName)
	delete(before, datadir.LockName)
	require.Equal(t, before, after)
	require.NoError(t, os.Rename(aside, newest))
	s = openOnly(t, Options{Dir: killed})
	requireKeys(t, s, keys)
	require.NoError(t, s.Close())

	// A stop leaves nothing in logs.
	for _, log := range matching(t, dir, "*.log") {
		require.NoError(t, os.Remove(log))
	}
	report, err := Check(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	s = openOnly(t, Options{Dir: dir})
	requireKeys(t, s, keys)
	require.NoError(t, s.Close())
}

// Whatever a power cut leaves, no log is missed that somebody else has not removed:
// TestStore_PowerCuts. Of each log that a killed store needs it is noticed if it is
// gone, also after it has gone through many.
func TestOpen_EachNeededLogIsMissed(t *testing.T) {
	t.Parallel()
	fs := newFaults()
	s := openOnly(t, Options{Dir: "d", FS: fs, memTableBytes: 32 << 10})
	fs.set(on(syscall.EIO, ".sst", openFile)) // no table is read, some logs stay longer
	written(t, s)
	for range 5 {
		killed := copyOf(fs.mem)
		note := string(content(t, killed, format.LogsName))
		require.Contains(t, note, s.files.newest)
		manifests := named(t, killed, format.ManifestPrefix, "")
		needed, known := format.MinUnflushed(content(t, killed, manifests[len(manifests)-1]))
		require.True(t, known)
		for _, log := range named(t, killed, "", ".log") {
			n, ok := format.LogNumber(log)
			require.True(t, ok)
			without := copyOf(killed)
			require.NoError(t, without.Remove("d/"+log))
			opened, err := Open(Options{Dir: "d", FS: without, Logger: slog.New(slog.DiscardHandler)})
			if n >= needed {
				requireOneLine(t, err, log, "is missing")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, opened.Close())
		}
		for i := range 80 {
			require.NoError(t, apply(s, put(fmt.Sprint(i), strings.Repeat("v", 1000))))
		}
	}
	fs.heal()
	require.NoError(t, s.Close())
}

// A panic within Pebble leaves no reference to the instance behind, for which a later
// Close would wait.
func TestStore_PanicLeavesNoReference(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		s := openOnly(t, Options{Dir: t.TempDir(), Sync: mode})
		close(s.closing)
		s.loops.Wait()
		require.NoError(t, s.cur.Load().db.Close()) // Pebble panics if it is used from here
		require.Panics(t, func() { _ = apply(s, put("a", "1")) })
		require.Panics(t, func() { _, _ = s.Range([]byte("a"), nil, false) })
		require.Panics(t, func() { _ = s.Sync() })
		require.EqualValues(t, 1, s.cur.Load().refs.Load(), mode)
		s.cache.Unref()
		require.NoError(t, s.lock.Close())
	}
}
