package pebble

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// A stop waits no longer than 5 s for the flush that makes the next start faster,
// also if it has begun, and loses nothing by that.
func TestStore_CloseInTime(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fs := newFaults()
				s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode})
				var keys []string
				for i := range 100 {
					keys = append(keys, fmt.Sprint(i))
					require.NoError(t, apply(s, put(keys[i], valueOf(keys[i]))))
				}
				// To create a table takes a minute, though nothing fails.
				s.cur.Load().disk.hooks.pause = func(stop <-chan struct{}) {
					select {
					case <-time.After(time.Minute):
					case <-stop:
					}
				}
				start := time.Now()
				require.NoError(t, s.Close())
				require.Equal(t, 5*time.Second, time.Since(start))
				requireOnDisk(t, fs.crash(0), keys)
			})
		})
	}
}

// A stop beside an operation of the disk that hangs ends in time, and loses nothing, unless
// it is the log that hangs. What is left ends with the operation.
func TestStore_CloseBesideAHang(t *testing.T) {
	t.Parallel()
	flush := func(s *Store) { _, _ = s.cur.Load().db.AsyncFlush() }
	for _, row := range []struct {
		name    string
		hangs   func(errorfs.Op) bool
		provoke func(*Store) // nil: the stop itself does
		log     bool         // nothing more can be saved
	}{
		{"a GET reads a table", of(".sst", readAt), func(s *Store) { _, _, _ = s.Get(nil, []byte("cold0100")) }, false},
		{"the sweeper reads a table", of(".sst", readAt), func(s *Store) { s.loops.Go(func() { s.sweep() }) }, false},
		{"the folder is looked at", of(".log", stat), func(s *Store) { s.loops.Go(s.watch) }, false},
		{"a flush creates a table", of(".sst", create), flush, false},
		{"a flush writes a table", of(".sst", write), flush, false},
		{"a flush syncs a table", of(".sst", syncFile, syncData), flush, false},
		{"a flush syncs the manifest", of("MANIFEST", syncFile, syncData), flush, false},
		{"a flush removes a log", of(".log", errorfs.OpRemove), flush, false},
		{"the stop flushes", of(".sst", write), nil, false},
		{"the stop syncs the mark", of(format.MarkName, syncFile), nil, false},
		{"the log is synced", of(".log", syncData, syncFile), func(s *Store) { go s.save() }, true},
	} {
		for _, mode := range modes {
			if row.log && mode == Always {
				continue // then it hangs for who writes, and for nobody else
			}
			cold := coldTables(t)
			t.Run(row.name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					fs := faulty(copyOf(cold))
					s := openOnly(t, Options{
						Dir: "d", FS: fs, Sync: mode, SyncInterval: time.Hour, SweepInterval: time.Hour, CacheBytes: 1 << 20, ValueBytes: 1 << 10,
					})
					require.NoError(t, apply(s, put("acknowledged", valueOf("acknowledged"))))
					arrived, let := fs.hang(1, row.hangs)
					defer let()
					if row.provoke != nil {
						go row.provoke(s)
						<-arrived
					}
					closed := make(chan error, 1)
					go func() { closed <- s.Close() }()
					var err error
					select {
					case err = <-closed:
					case <-time.After(closePatience + time.Second):
						t.Fatal("the stop waits for it")
					}
					<-arrived
					require.ErrorContains(t, err, "has not ended an operation")
					if row.log {
						require.ErrorContains(t, err, "may be lost")
						return
					}
					require.ErrorContains(t, err, "all that was acknowledged is saved")
					requireOnDisk(t, fs.crash(0), []string{"acknowledged", "cold0100"})
				})
			})
		}
	}
}
