package pebble

import (
	"fmt"
	"path"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// A fenced disk is waited for only if a change is under way that could spoil the folder for
// a successor, and the successor makes no table that the fenced one may still create.
func TestDisk_Settled(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		hangs func(errorfs.Op) bool
		file  string
		waits bool
		taken []string
	}{
		{"a table is created", of(".sst", create), "000007.sst", false, []string{"000007.sst"}},
		{"a table is written", of(".sst", write), "000007.sst", false, nil},
		{"a table is synced", of(".sst", syncFile), "000007.sst", false, nil},
		{"a file is removed", of(".sst", remove), "000007.sst", false, nil},
		{"a manifest is created", of("MANIFEST", create), format.ManifestPrefix + "000008", true, nil},
		{"a manifest is written", of("MANIFEST", write), format.ManifestPrefix + "000008", true, nil},
		{"a manifest is synced", of("MANIFEST", syncFile), format.ManifestPrefix + "000008", true, nil},
		{"options are written", of("OPTIONS", write), "OPTIONS-000009", true, nil},
		{"a log is created", of(".log", create), "000010.log", true, nil},
		{"a log is written", of(".log", write), "000010.log", true, nil},
		{"a log is synced", of(".log", syncFile), "000010.log", true, nil},
		{"a file of a backup is written", of("backup", write), "../backup/000007.sst", false, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			fs := newFaults()
			require.NoError(t, fs.mem.MkdirAll("d", 0o700))
			require.NoError(t, fs.mem.MkdirAll("backup", 0o700))
			var files possessions
			files.found(manifest{}, nil)
			hooks := diskHooks{
				failed: func(error) {}, broken: func(error) {}, pause: func(<-chan struct{}) {},
				remove: func(string) bool { return false },
			}
			d := newDisk(fs, "d", &files, hooks)
			arrived, let := fs.hang(1, row.hangs)
			defer let()
			done := make(chan struct{})
			go func() {
				defer close(done)
				name := path.Join("d", row.file)
				f, err := d.Create(name, vfs.WriteCategoryUnspecified)
				if err != nil {
					return
				}
				_, _ = f.Write([]byte("content"))
				_ = f.Sync()
				_ = f.Close()
				_ = d.Remove(name)
			}()
			<-arrived
			d.fence()
			stop := make(chan struct{})
			if row.waits {
				close(stop)
				require.ErrorContains(t, d.settled(stop), "1 changes of the folder are still under way")
			} else {
				require.NoError(t, d.settled(stop))
			}
			require.Equal(t, row.taken, d.unfinished())
			next := newDisk(fs, "d", &files, hooks)
			next.taken = d.unfinished()
			names, err := next.List("d")
			require.NoError(t, err)
			require.Subset(t, names, row.taken)
			let()
			<-done
			require.NoError(t, d.settled(nil))
			require.Empty(t, d.unfinished())
		})
	}
}

// A range that is under way goes on after a recovery in tables that it has not opened yet,
// though the store needs them no longer.
func TestStore_RangeKeepsItsTables(t *testing.T) {
	t.Parallel()
	fs := faulty(copyOf(coldTables(t)))
	w := newWatcher()
	fs.set(on(syscall.EIO, ".sst", openFile)) // so that none is open
	s := openOnly(t, Options{Dir: "d", FS: fs, OnWritable: w.onWritable, RetryInterval: 5 * time.Millisecond})
	old := named(t, fs.mem, "", ".sst")
	it, err := s.Range([]byte("cold"), nil, false)
	require.NoError(t, err)
	s.cur.Load().disk.loseLog(syscall.EIO)
	<-w.failed
	<-w.well
	fs.heal()
	for i := range 400 {
		key := fmt.Sprintf("cold%04d", i)
		require.NoError(t, apply(s, put(key, "new")))
	}
	db := s.cur.Load().db
	require.NoError(t, db.Flush())
	require.NoError(t, db.Compact(t.Context(), []byte("a"), []byte("d"), false))
	require.Eventually(t, func() bool {
		s.removals.mu.Lock()
		defer s.removals.mu.Unlock()
		return len(s.removals.names) >= len(old)
	}, time.Minute, time.Millisecond, "the old tables would be removed")
	n := 0
	for it.Next() {
		_, value, err := it.Entry()
		require.NoError(t, err)
		require.Equal(t, valueOf(fmt.Sprintf("cold%04d", n)), string(value))
		n++
	}
	require.NoError(t, it.Err())
	require.Equal(t, 400, n)
	require.NoError(t, it.Close())
	require.Eventually(t, func() bool {
		there := named(t, fs.mem, "", ".sst")
		for _, name := range old {
			for _, left := range there {
				if left == name {
					return false
				}
			}
		}
		return true
	}, time.Minute, time.Millisecond)
	require.NoError(t, s.Close())
}

// While no table can be made, Pebble's flush is repeated as often as the store tries to come
// back, and not without a pause, as Pebble would.
func TestStore_FlushesAtThePaceOfTheAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := newFaults()
		s := openOnly(t, Options{Dir: "d", FS: fs, RetryInterval: time.Minute})
		var created atomic.Int64
		fs.set(func(op errorfs.Op) error {
			if of(".sst", create)(op) {
				if created.Add(1) > 1000 {
					return nil // or the test would not end
				}
				return syscall.ENOSPC
			}
			return nil
		})
		require.NoError(t, apply(s, put("a", "1")))
		_, err := s.cur.Load().db.AsyncFlush()
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.Less(t, created.Load(), int64(50))
		fs.heal()
		time.Sleep(10 * time.Minute)
		require.NoError(t, s.Writable())
		require.NoError(t, s.Close())
	})
}
