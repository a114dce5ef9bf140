package pebble

import (
	"fmt"
	"log/slog"
	"path"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// A sync that takes long holds back what waits for it, and nothing else: what is
// acknowledged meanwhile is on the disk, reads go on, and nothing fails.
func TestStore_SlowSyncs(t *testing.T) {
	t.Parallel()
	for _, part := range []string{".log", ".sst", "MANIFEST", "the folder"} {
		for _, mode := range modes {
			t.Run(part+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				fs, w := newFaults(), newWatcher()
				s := openOnly(t, Options{
					Dir: "d", FS: fs, Sync: mode, SyncInterval: 5 * time.Millisecond,
					OnWritable: w.onWritable, memTableBytes: 32 << 10,
				})
				l := startLoad(s)
				l.more(100)

				waits, release := make(chan struct{}, 1), make(chan struct{})
				fs.set(func(op errorfs.Op) error {
					if on(syscall.EIO, part, syncFile, syncData)(op) != nil || part == "the folder" && op.Kind == syncFile && op.Path == "d" {
						select {
						case waits <- struct{}{}:
						default:
						}
						<-release
					}
					return nil
				})
				l.allow(500)
				<-waits
				keys := l.acknowledged()
				requireKeys(t, s, keys)
				if mode == Always {
					requireOnDisk(t, fs.crash(0), keys)
				}
				require.NoError(t, s.Writable())
				fs.heal()
				close(release)
				l.more(100)

				l.end(t)
				keys = l.acknowledged()
				requireKeys(t, s, keys)
				require.NoError(t, s.Close())
				requireOnDisk(t, fs.crash(0), keys)
				require.Empty(t, w.failed)
			})
		}
	}
}

// writeTables returns the file system of a closed store and its keys, in
// ascending order, in tables that do not overlap.
func writeTables(t *testing.T) (fs *vfs.MemFS, keys []string) {
	t.Helper()
	fs = vfs.NewCrashableMem()
	s := openOnly(t, Options{Dir: "d", FS: fs, Sync: Never, memTableBytes: 64 << 10})
	for i := range 500 {
		key := fmt.Sprintf("%06d", i)
		require.NoError(t, apply(s, put(key, valueOf(key))))
		keys = append(keys, key)
	}
	require.NoError(t, s.Close())
	return fs, keys
}

// largest returns the largest table.
func largest(t *testing.T, fs vfs.FS) (name string) {
	t.Helper()
	size := -1
	for _, n := range named(t, fs, "", ".sst") {
		if b := content(t, fs, n); len(b) > size {
			name, size = n, len(b)
		}
	}
	return name
}

// requireTrueOrError reads every key, by Get and in ranges: what is read is true,
// and what cannot be read is an error and not absent. It returns how many can be
// read.
func requireTrueOrError(t *testing.T, s *Store, keys []string) (read int) {
	t.Helper()
	for _, k := range keys {
		v, _, err := s.Get([]byte("head"), []byte(k))
		if err != nil {
			require.NotErrorIs(t, err, store.ErrNotFound, k)
			require.Equal(t, "head", string(v))
			continue
		}
		require.True(t, string(v) == "head"+valueOf(k), "the value of %s is wrong", k)
		read++
	}
	for from := 0; from < len(keys); from += len(keys) / 5 {
		it, err := s.Range([]byte(keys[from]), nil, false)
		if err != nil {
			continue
		}
		for _, k := range keys[from:] {
			if !it.Next() {
				require.Error(t, it.Err(), "the range ends before %s", k)
				break
			}
			key, value, err := it.Entry()
			if err != nil {
				break
			}
			require.Equal(t, k, string(key))
			require.True(t, string(value) == valueOf(k), "the value of %s is wrong", k)
		}
		_ = it.Close()
	}
	return read
}

// While the disk cannot read a table, or any, reads of it fail and others do not;
// afterwards all is as before.
func TestStore_FailingReads(t *testing.T) {
	t.Parallel()
	from, keys := writeTables(t)
	one := largest(t, from)
	for i, row := range []struct {
		name  string
		fault func(errorfs.Op) error
		none  bool // can be read
	}{
		{"one table cannot be opened", on(syscall.EIO, one, openFile), false},
		{"one table cannot be read", on(syscall.EIO, one, read, readAt), false},
		{"no table can be opened", on(syscall.EMFILE, ".sst", openFile), true},
		{"no table can be read", on(syscall.EIO, ".sst", read, readAt), true},
	} {
		for _, mode := range inTurn(i) {
			t.Run(row.name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				fs, r := faulty(copyOf(from)), newRecorder(t)
				fs.set(row.fault) // now, as an open table stays open
				s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode, CacheBytes: 1 << 20, Logger: slog.New(r)})
				n := requireTrueOrError(t, s, keys)
				require.Equal(t, row.none, n == 0, "%d can be read", n)
				require.Less(t, n, len(keys))
				require.NotZero(t, r.count("the store cannot read"))
				require.NoError(t, s.Writable(), "what cannot be read is no reason not to write")
				require.NoError(t, apply(s, put("new", "v")))
				require.Equal(t, "v", get(t, s, "new"))
				fs.heal()
				for requireTrueOrError(t, s, keys) < len(keys) {
					continue // it has shared an attempt from before to open the table
				}
				require.NoError(t, s.Close())
			})
		}
	}
}

// A read that fails once while a table is opened does no harm to the reads that
// come after it.
func TestTable_OpenedAgain(t *testing.T) {
	t.Parallel()
	from, keys := writeTables(t)
	one := largest(t, from)
	for n := range int64(6) {
		fs := faulty(copyOf(from))
		var reads atomic.Int64
		fs.set(func(op errorfs.Op) error {
			err := on(syscall.EIO, one, readAt)(op)
			if err != nil && reads.Add(1) != n+1 {
				return nil
			}
			return err
		})
		s := openOnly(t, Options{Dir: "d", FS: fs, Logger: slog.New(newRecorder(t))})
		requireTrueOrError(t, s, keys)
		require.Greater(t, reads.Load(), n)
		require.Equal(t, len(keys), requireTrueOrError(t, s, keys), "after read %d has failed", n+1)
		require.NoError(t, s.Close())
	}
}

// A folder of which a file cannot be read is refused with the name of the file, and
// left as it is.
func TestOpen_UnreadableFile(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		mem := vfs.NewCrashableMem()
		s := openOnly(t, Options{Dir: "d", FS: mem, Sync: mode, memTableBytes: 32 << 10})
		var keys []string
		for i := range 100 {
			key := fmt.Sprintf("%06d", i)
			require.NoError(t, apply(s, put(key, valueOf(key))))
			keys = append(keys, key)
		}
		_ = s.Sync()
		killed := killedAtRest(t, mem)
		require.NoError(t, s.Close())
		for _, file := range []string{".log", "MANIFEST-", "OPTIONS-", format.MarkName} {
			for _, kind := range []errorfs.OpKind{openFile, read, readAt} {
				fs := faulty(copyOf(killed))
				before := stored(t, fs.mem)
				var injected atomic.Bool
				fs.set(func(op errorfs.Op) error {
					err := on(syscall.EIO, file, kind)(op)
					if err != nil {
						injected.Store(true)
					}
					return err
				})
				s, err := Open(Options{Dir: "d", FS: fs, Sync: mode, Logger: slog.New(newRecorder(t))})
				if injected.Load() {
					requireOneLine(t, err, "cannot open the data folder d", file, "input/output error")
					require.Equal(t, before, stored(t, fs.mem), "%s, %v", file, kind)
					fs.heal()
					s, err = Open(Options{Dir: "d", FS: fs, Sync: mode, Logger: slog.New(newRecorder(t))})
				}
				require.NoError(t, err)
				requireKeys(t, s, keys)
				require.NoError(t, s.Close())
			}
		}
	}
}

// stored returns what the files of the folder "d" hold, by their names.
func stored(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, name := range named(t, fs, "", "") {
		if path.Base(name) != "LOCK" {
			all[name] = string(content(t, fs, name))
		}
	}
	return all
}
