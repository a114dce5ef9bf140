package pebble

import (
	"fmt"
	"strings"
	"sync"
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

// hang has the nth operation hang that is chosen, until let is called. All others work, of
// the same kind too.
func (f *faults) hang(nth int64, chosen func(errorfs.Op) bool) (arrived <-chan struct{}, let func()) {
	first, release := make(chan struct{}), make(chan struct{})
	var met atomic.Int64
	f.set(func(op errorfs.Op) error {
		if chosen(op) && met.Add(1) == nth {
			close(first)
			<-release
		}
		return nil
	})
	return first, sync.OnceFunc(func() { close(release) })
}

// of chooses operations of these kinds on files whose name contains part.
func of(part string, kinds ...errorfs.OpKind) func(errorfs.Op) bool {
	chosen := on(syscall.EIO, part, kinds...)
	return func(op errorfs.Op) bool { return chosen(op) != nil }
}

// within requires that f ends though the disk hangs: in a second, were the machine not slow.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		if took := time.Since(began); took > time.Second {
			t.Logf("%s took %v", what, took)
		}
	case <-time.After(patience):
		t.Fatalf("%s waits for the disk operation that hangs", what)
	}
}

// patience is for slow machines.
const patience = 30 * time.Second

const (
	list      = errorfs.OpList
	stat      = errorfs.OpStat
	diskUsage = errorfs.OpGetDiskUsage
)

// One operation of the disk hangs, of each kind in turn, and all others work. What does not
// need what it does goes on, and once the log has failed for a moment the store comes back,
// unless it must know what becomes of that operation: then as soon as it ends.
func TestHang_OneOperation(t *testing.T) {
	t.Parallel()
	read := func(s *Store) { _, _, _ = s.Get(nil, []byte("cold0100")) }
	flush := func(s *Store) {
		_ = apply(s, put("cold0100", valueOf("cold0100")))
		_, _ = s.cur.Load().db.AsyncFlush()
	}
	// fill begins another log, in the midst of a write.
	fill := func(s *Store) {
		for i := range 100 {
			_ = apply(s, put(fmt.Sprint("fill", i), strings.Repeat("v", 1<<10)))
		}
	}
	condition := func(s *Store) {
		c, err := s.Transact(looksAt("cold0100"), func(store.View) ([]store.Write, error) {
			return []store.Write{put("cold0100", valueOf("cold0100"))}, nil
		})
		if err == nil && c != nil {
			_ = c.Wait()
		}
	}
	// fillByConditions is fill by steps that keep a value whose time is over meanwhile.
	fillByConditions := func(s *Store) {
		for i := range 100 {
			c, err := s.Transact(looksAt("cold0100e"), func(store.View) ([]store.Write, error) {
				return []store.Write{put(fmt.Sprint("fill", i), strings.Repeat("v", 1<<10))}, nil
			})
			if err == nil && c != nil {
				_ = c.Wait()
			}
		}
	}
	scan := func(s *Store) {
		it, err := s.Range([]byte("cold0100"), []byte("cold0110"), false)
		if err == nil {
			it.Next()
			_ = it.Close()
		}
	}
	view := func(s *Store) {
		_ = s.View(func(v store.View) error {
			_, _, err := v.Get([]byte("cold0100"))
			return err
		})
	}
	// fail makes the store unwritable, from which it has to come back.
	fail := func(s *Store) { s.cur.Load().disk.loseLog(syscall.EIO) }
	always := []SyncMode{Always}
	for i, row := range []struct {
		name    string
		hangs   func(errorfs.Op) bool
		provoke func(*Store)
		// writes: a write does not need it. back: nor does the recovery, in these modes.
		writes bool
		back   []SyncMode
		// in are the modes in which it happens, all for nil; nth is which operation hangs.
		in  []SyncMode
		nth int64
	}{
		{"a GET reads a table", of(".sst", readAt), read, true, modes, nil, 0},
		{"a new table is opened", func(op errorfs.Op) bool {
			_, old := coldTables(t).Stat(op.Path)
			return old != nil && of(".sst", openFile)(op)
		}, flush, true, modes, nil, 0},
		{"a range reads a table", of(".sst", readAt), scan, true, modes, nil, 0},
		{"a batch of reads reads a table", of(".sst", readAt), view, true, modes, nil, 0},
		{"a conditional write reads a table", of(".sst", readAt), condition, true, modes, nil, 0},
		{"the sweeper reads a table", of(".sst", readAt), func(s *Store) { s.sweep() }, true, modes, nil, 0},
		{"a compaction creates a table", of(".sst", create), flush, true, modes, nil, 2},
		{"a compaction removes a table", of(".sst", errorfs.OpRemove), flush, true, modes, nil, 0},
		{"a flush creates a table", of(".sst", create), flush, true, always, nil, 0},
		{"a flush writes a table", of(".sst", write), flush, true, always, nil, 0},
		{"a flush syncs a table", of(".sst", syncFile, syncData), flush, true, always, nil, 0},
		{"a flush writes the manifest", of("MANIFEST", write), flush, true, nil, nil, 0},
		{"a flush syncs the manifest", of("MANIFEST", syncFile, syncData), flush, true, nil, nil, 0},
		{"a flush notes the length of the manifest", of(format.MarkName, create, write), flush, true, nil, nil, 0},
		{"a flush removes a log", of(".log", errorfs.OpRemove), flush, true, modes, nil, 0},
		{"the log is written", of(".log", write), fill, false, nil, nil, 0},
		{"the log is synced", of(".log", syncData, syncFile), func(s *Store) { _ = apply(s, put("a", "1")); _ = s.Sync() }, false, nil, nil, 0},
		{"the log is written ahead", of(".log", errorfs.OpFileWriteAt), fill, false, nil, always, 0},
		{"the log is created", of(".log", create, reuse), fill, false, nil, nil, 0},
		{"the log is created by a conditional write", of(".log", create, reuse), fillByConditions, false, nil, nil, 0},
		{"the names of the logs are noted", of(format.LogsName, errorfs.OpFileWriteAt), fill, false, nil, nil, 0},
		{"the folder is synced for a log", func(op errorfs.Op) bool { return op.Kind == syncFile && op.Path == "d" }, fill, false, nil, nil, 0},
		{"the log is looked for", of(".log", stat), func(s *Store) { s.watch() }, true, modes, nil, 0},
		{"the space that is left is asked for", of("", diskUsage), func(s *Store) { s.Stats() }, true, modes, nil, 0},
		{"a backup links a table", of(".sst", link), func(s *Store) { _ = s.Checkpoint("copy") }, true, modes, nil, 0},
		{"a backup copies the log", of("copy", write), func(s *Store) { _ = s.Checkpoint("copy") }, true, modes, nil, 0},
		{"a backup creates a file", of("copy", create), func(s *Store) { _ = s.Checkpoint("copy") }, true, modes, nil, 0},
		{"a backup makes its folder", of("copy", errorfs.OpMkdirAll), func(s *Store) { _ = s.Checkpoint("copy") }, true, modes, nil, 0},
		{"a recovery lists the folder", of("", list), fail, false, nil, nil, 0},
		{"a recovery makes its probe", of("probe", create, write, syncFile), fail, false, nil, nil, 0},
		{"a recovery reads the manifest", of("MANIFEST", errorfs.OpFileRead), fail, false, nil, nil, 0},
	} {
		if row.in == nil {
			row.in = inTurn(i)
		}
		for _, mode := range row.in {
			t.Run(row.name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				mem := copyOf(coldTables(t))
				fs, w := faulty(mem), newWatcher()
				s := openOnly(t, Options{
					Dir: "d", FS: fs, Sync: mode, SyncInterval: time.Hour, SweepInterval: time.Hour, CacheBytes: 1 << 20, ValueBytes: 1 << 10,
					RetryInterval: 5 * time.Millisecond, OnWritable: w.onWritable, statsPatience: 10 * time.Millisecond, memTableBytes: 64 << 10,
				})
				require.Equal(t, valueOf("cold0300"), get(t, s, "cold0300")) // which is in memory from now on

				require.NoError(t, apply(s, putFor("cold0100e", "v", 1000)))
				arrived, let := fs.hang(max(1, row.nth), row.hangs)
				defer let()
				var provoked sync.WaitGroup
				provoked.Go(func() { row.provoke(s) })
				select {
				case <-arrived:
				case <-time.After(patience):
					t.Fatal("nothing hangs")
				}
				written := 0
				others := func(when string) {
					t.Helper()
					within(t, "a GET "+when, func() {
						requireRead(t, s, "cold0300")
						requireRead(t, s, "cold0250")
					})
					within(t, "a GET of nothing "+when, func() {
						_, _, err := s.Get(nil, []byte("cold0300x"))
						if err == nil {
							t.Error("it is there")
						}
					})
					within(t, "a range "+when, func() {
						it, err := s.Range([]byte("cold0300"), []byte("cold0310"), false)
						if err != nil {
							t.Error(err)
							return
						}
						n := 0
						for it.Next() {
							n++
						}
						if err := it.Err(); err != nil || n != 10 {
							t.Errorf("%d entries, %v", n, err)
						}
						_ = it.Close()
					})
					within(t, "the figures "+when, func() { s.Stats() })
				}
				writes := func(when string) {
					t.Helper()
					within(t, "a PUT "+when, func() {
						key := fmt.Sprint("other", written)
						written++
						if err := apply(s, put(key, valueOf(key))); err != nil {
							t.Error(err)
						}
						requireRead(t, s, key)
					})
					within(t, "a conditional PUT "+when, func() {
						key := fmt.Sprint("other", written)
						written++
						c, err := s.Transact(looksAt("cold0300"), func(v store.View) ([]store.Write, error) {
							if _, err := v.Stat([]byte("cold0300")); err != nil {
								return nil, err
							}
							return []store.Write{put(key, valueOf(key))}, nil
						})
						if err == nil && c != nil {
							err = c.Wait()
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				others("while it hangs")
				if row.writes {
					writes("while it hangs")
					s.cur.Load().disk.loseLog(syscall.EIO)
				}
				back := false
				for _, m := range row.back {
					back = back || m == mode
				}
				others("while the store cannot write")
				if !back {
					let()
				}
				if row.writes || s.Writable() != nil {
					within(t, "the recovery", func() { <-w.well })
				}
				if back {
					writes("when the store has come back")
				}
				others("when the store has come back")
				let()
				provoked.Wait()
				fs.heal()
				if row.writes {
					writes("when nothing hangs any more")
				}
				require.NoError(t, s.Close())
				after := openOnly(t, Options{Dir: "d", FS: fs.crash(0)})
				for i := range written {
					requireRead(t, after, fmt.Sprint("other", i))
				}
				for i := range 400 {
					requireRead(t, after, fmt.Sprintf("cold%04d", i))
				}
				require.NoError(t, after.Close())
			})
		}
	}
}

// looksAt announces that keys are looked at, without their values.
func looksAt(keys ...string) (looks []store.Look) {
	for _, k := range keys {
		looks = append(looks, store.Look{Key: []byte(k)})
	}
	return looks
}

// requireRead is for goroutines of their own.
func requireRead(t *testing.T, s *Store, key string) {
	t.Helper()
	v, _, err := s.Get(nil, []byte(key))
	if err != nil || string(v) != valueOf(key) {
		t.Errorf("%s: %d bytes, %v", key, len(v), err)
	}
}

// coldTables returns a closed store with keys from cold0000 to cold0399, in several tables of
// several blocks.
var coldTables = func() func(t *testing.T) *vfs.MemFS {
	var once sync.Once
	fs := vfs.NewCrashableMem()
	return func(t *testing.T) *vfs.MemFS {
		t.Helper()
		once.Do(func() {
			s := openOnly(t, Options{Dir: "d", FS: fs, Sync: Always})
			for i := range 400 {
				key := fmt.Sprintf("cold%04d", i)
				require.NoError(t, apply(s, put(key, valueOf(key))))
				if i%100 == 99 {
					require.NoError(t, s.cur.Load().db.Flush())
				}
			}
			require.NoError(t, s.cur.Load().db.Compact(t.Context(), []byte("a"), []byte("d"), false))
			require.NoError(t, s.Close())
		})
		return fs
	}
}()
