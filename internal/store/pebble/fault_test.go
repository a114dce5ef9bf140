package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
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
)

// faults is a crashable file system in memory that fails on demand.
type faults struct {
	vfs.FS
	mem   *vfs.MemFS
	fault atomic.Pointer[func(errorfs.Op) error]
	torn  atomic.Pointer[string]
}

func newFaults() *faults { return faulty(vfs.NewCrashableMem()) }

// faulty makes a file system fail on demand.
func faulty(mem *vfs.MemFS) *faults {
	f := &faults{mem: mem}
	f.FS = errorfs.Wrap(f.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if p := f.fault.Load(); p != nil {
			return (*p)(op)
		}
		return nil
	}))
	return f
}

// ReuseForWrite creates a new file, because errorfs does not inject errors into
// one that is reused.
func (f *faults) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if p := f.fault.Load(); p == nil {
		// no fault
	} else if err := (*p)(errorfs.Op{Kind: errorfs.OpReuseForWrite, Path: newname}); err != nil {
		return nil, err
	}
	if err := f.FS.Remove(oldname); err != nil {
		return nil, err
	}
	return f.Create(newname, c)
}

func (f *faults) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return tearable{file, f, name}, nil
}

// tearable is a file of which a write may fail half way.
type tearable struct {
	vfs.File
	faults *faults
	name   string
}

func (f tearable) Write(p []byte) (int, error) {
	part := f.faults.torn.Load()
	if part == nil || !strings.Contains(f.name, *part) {
		return f.File.Write(p)
	}
	n, err := f.File.Write(p[:len(p)/2])
	return n, errors.Join(syscall.EIO, err, f.File.Sync())
}

func (f *faults) set(fault func(errorfs.Op) error) { f.fault.Store(&fault) }

// fails returns what sets a fault as on returns it.
func fails(err error, part string, kinds ...errorfs.OpKind) func(*faults) {
	return func(f *faults) { f.set(on(err, part, kinds...)) }
}

// tears returns what makes every write to files whose name contains part fail
// after a half, which is on the disk for good.
func tears(part string) func(*faults) {
	return func(f *faults) { f.torn.Store(&part) }
}

func (f *faults) heal() {
	f.fault.Store(nil)
	f.torn.Store(nil)
}

// crash returns what is on the disk if the machine stops now: at least what was
// synced, at most what was written.
func (f *faults) crash(percent int) *vfs.MemFS {
	return f.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, uint64(percent)))})
}

// on returns a fault of operations of those kinds on files whose name contains
// part.
func on(err error, part string, kinds ...errorfs.OpKind) func(errorfs.Op) error {
	return func(op errorfs.Op) error {
		for _, k := range kinds {
			if op.Kind == k && strings.Contains(op.Path, part) {
				return err
			}
		}
		return nil
	}
}

const (
	write    = errorfs.OpFileWrite
	syncFile = errorfs.OpFileSync
	syncData = errorfs.OpFileSyncData
	create   = errorfs.OpCreate
	reuse    = errorfs.OpReuseForWrite
	rename   = errorfs.OpRename
	link     = errorfs.OpLink
	remove   = errorfs.OpRemove
	openFile = errorfs.OpOpen
	read     = errorfs.OpFileRead
	readAt   = errorfs.OpFileReadAt
)

// lossLine is what the store logs if acknowledged writes are lost.
const lossLine = "acknowledged but not yet synced are lost"

// recorder is a log that can be asked what was written to it.
type recorder struct {
	slog.Handler
	mu       sync.Mutex
	messages []string
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{Handler: slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})}
}

func (r *recorder) Handle(ctx context.Context, record slog.Record) error {
	r.mu.Lock()
	r.messages = append(r.messages, record.Message)
	r.mu.Unlock()
	return r.Handler.Handle(ctx, record)
}

// count returns how many messages contain part.
func (r *recorder) count(part string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		if strings.Contains(m, part) {
			n++
		}
	}
	return n
}

// watcher collects OnWritable.
type watcher struct{ failed, well chan error }

func newWatcher() *watcher {
	return &watcher{failed: make(chan error, 1000), well: make(chan error, 1000)}
}

func (w *watcher) onWritable(err error) {
	if err != nil {
		w.failed <- err
	} else {
		w.well <- nil
	}
}

// load writes keys of its own from several goroutines, as many as it is
// allowed to, and notes what was acknowledged.
type load struct {
	s  *Store
	wg sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	keys    []string // acknowledged
	allowed int      // how long keys may become
	ended   bool
	bad     error
}

func startLoad(s *Store) *load {
	l := &load{s: s}
	l.changed.L = &l.mu
	for w := range 4 {
		l.wg.Go(func() { l.write(w) })
	}
	return l
}

func (l *load) write(w int) {
	for n := 0; l.mayWrite(); n++ {
		key := fmt.Sprintf("%d-%06d", w, n)
		err := apply(l.s, put(key, valueOf(key)))
		l.mu.Lock()
		switch {
		case err == nil:
			l.keys = append(l.keys, key)
			l.changed.Broadcast()
		case !errors.Is(err, store.ErrUnwritable):
			l.bad = err
		}
		l.mu.Unlock()
		if err != nil {
			time.Sleep(time.Millisecond) // so as not to spin; nothing depends on it
		}
	}
}

// valueOf returns what is stored under a key: bytes that cannot be compressed.
func valueOf(key string) string {
	var seed [32]byte
	copy(seed[:], key)
	value := make([]byte, 500)
	_, _ = rand.NewChaCha8(seed).Read(value)
	return string(value)
}

func (l *load) mayWrite() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && len(l.keys) >= l.allowed {
		l.changed.Wait()
	}
	return !l.ended
}

func (l *load) acknowledged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[:len(l.keys):len(l.keys)]
}

// allow allows n more writes than have been acknowledged.
func (l *load) allow(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed = len(l.keys) + n
	l.changed.Broadcast()
}

// more waits until n more writes have been acknowledged.
func (l *load) more(n int) {
	l.allow(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.keys) < l.allowed {
		l.changed.Wait()
	}
}

func (l *load) end(t *testing.T) {
	l.mu.Lock()
	l.ended = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.wg.Wait()
	require.NoError(t, l.bad)
}

func requireKeys(t *testing.T, s *Store, keys []string) {
	t.Helper()
	for _, k := range keys {
		v, _, err := s.Get(nil, []byte(k))
		require.NoError(t, err, "acknowledged key %s", k)
		require.True(t, string(v) == valueOf(k), "the value of %s is wrong", k)
	}
}

// requireKeysOrNone requires that no key has a wrong value, and returns how many
// have none.
func requireKeysOrNone(t *testing.T, s *Store, keys []string) (absent int) {
	t.Helper()
	for _, k := range keys {
		switch v := get(t, s, k); v {
		case "absent":
			absent++
		default:
			require.True(t, v == valueOf(k), "the value of %s is wrong", k)
		}
	}
	return absent
}

// requireOnDisk opens the file system and looks for the keys.
func requireOnDisk(t *testing.T, fs vfs.FS, keys []string) {
	t.Helper()
	s := openOnly(t, Options{Dir: "d", FS: fs})
	requireKeys(t, s, keys)
	require.NoError(t, s.Close())
}

// Whatever fails: nothing false is acknowledged, reads go on, a crash meanwhile
// loses nothing that was promised, and writes return when the disk is well.
func TestStore_FailureAndRecovery(t *testing.T) {
	t.Parallel()
	full := error(syscall.ENOSPC)
	kept := []int{0, 50} // percent of what was not synced, in each crash
	if testing.Short() {
		kept = kept[:1]
	}
	for i, row := range []struct {
		name string
		fail func(*faults)
	}{
		{"the log cannot be written", fails(syscall.EIO, ".log", write)},
		{"the log cannot be synced", fails(syscall.EIO, ".log", syncData, syncFile)},
		{"no log can be created", fails(full, ".log", create, reuse)},
		{"no table can be created", fails(full, ".sst", create)},
		{"no table can be written", fails(full, ".sst", write)},
		{"no table can be synced", fails(syscall.EIO, ".sst", syncData, syncFile)},
		{"the manifest cannot be written", fails(full, "MANIFEST", write)},
		{"the manifest cannot be synced", fails(syscall.EIO, "MANIFEST", syncFile, syncData)},
		{"no folder can be synced", func(f *faults) {
			f.set(func(op errorfs.Op) error {
				if op.Kind == syncFile && op.Path == "d" {
					return syscall.EIO
				}
				return nil
			})
		}},
		{"no space at all", fails(full, "", create, write, reuse, link, errorfs.OpFilePreallocate)},
		{"nothing can be changed", fails(syscall.EROFS, "", create, write, syncFile, syncData, reuse, link, rename, remove)},
		{"a write of the log is torn", tears(".log")},
		{"a write of a table is torn", tears(".sst")},
		{"a write of the manifest is torn", tears("MANIFEST")},
	} {
		for _, mode := range inTurn(i) {
			t.Run(row.name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				fs, w, r := newFaults(), newWatcher(), newRecorder(t)
				s := openOnly(t, Options{
					Dir: "d", FS: fs, Sync: mode, SyncInterval: 5 * time.Millisecond, Logger: slog.New(r),
					RetryInterval: 5 * time.Millisecond, OnWritable: w.onWritable, memTableBytes: 32 << 10,
				})
				l := startLoad(s)
				l.more(100)

				for _, percent := range kept {
					row.fail(fs)
					l.allow(500)
					err := <-w.failed
					require.ErrorIs(t, err, store.ErrUnwritable)
					keys := l.acknowledged()
					requireKeys(t, s, keys)
					if mode == Always {
						requireOnDisk(t, fs.crash(percent), keys)
					}
					fs.heal()
					l.more(100)
				}

				l.end(t)
				keys := l.acknowledged()
				requireKeys(t, s, keys)
				if mode == Always {
					requireOnDisk(t, fs.crash(0), keys)
				}
				// What has failed just before the disk was well may be heard of after that.
				require.Eventually(t, func() bool { return s.Writable() == nil }, time.Minute, time.Millisecond)
				require.NoError(t, s.Close())
				requireOnDisk(t, fs.crash(0), keys)
				require.Zero(t, r.count(lossLine))
			})
		}
	}
}

// A manifest that has lost its end after its sync has failed takes another instance. If the
// log has failed as well, what was acknowledged and not yet synced may be lost, and
// the log says so; under Always there is no such thing.
func TestStore_ManifestGone(t *testing.T) {
	t.Parallel()
	for i, log := range []bool{true, false} {
		for _, mode := range inTurn(i) {
			t.Run(fmt.Sprintf("the log fails too: %v/%s", log, mode), func(t *testing.T) {
				t.Parallel()
				fs, w, r := newFaults(), newWatcher(), newRecorder(t)
				s := openOnly(t, Options{
					Dir: "d", FS: fs, Sync: mode, SyncInterval: 5 * time.Millisecond, Logger: slog.New(r),
					RetryInterval: 5 * time.Millisecond, OnWritable: w.onWritable, memTableBytes: 32 << 10,
				})
				l := startLoad(s)
				l.more(200)

				// The log fails first, and the manifest when the recovery flushes.
				var lost atomic.Bool
				var once sync.Once
				gone := make(chan struct{})
				fs.set(func(op errorfs.Op) error {
					if log && on(syscall.EIO, ".log", write, syncData, syncFile)(op) != nil {
						lost.Store(true)
						return syscall.EIO
					}
					if log && !lost.Load() {
						return nil
					}
					err := on(syscall.EIO, "MANIFEST", syncFile)(op)
					if err != nil {
						once.Do(func() { // the system forgets what it could not write
							whole := content(t, fs.mem, path.Base(op.Path))
							overwrite(t, fs.mem, path.Base(op.Path), whole[:len(whole)-1])
							close(gone)
						})
					}
					return err
				})
				l.allow(1000)
				<-w.failed
				<-gone
				visible := keysOf(t, s)
				requireAgree(t, s, visible)
				fs.heal()
				<-w.well
				requireAgree(t, s, visible)

				during := l.acknowledged()
				l.more(200)
				l.end(t)
				kept := l.acknowledged()
				loses := log && mode != Always
				if loses {
					requireKeysOrNone(t, s, during)
					kept = kept[len(during):]
				}
				requireKeys(t, s, kept)
				require.NoError(t, s.Close())
				requireOnDisk(t, fs.crash(0), kept)
				require.Equal(t, loses, r.count(lossLine) > 0)
			})
		}
	}
}

// While the disk is broken: writes fail at once and without effect, reads and
// ranges go on, a checkpoint is refused.
func TestStore_WhileUnwritable(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			fs, w := newFaults(), newWatcher()
			// No sync but those that are asked for: one that came before the next write
			// would have the disk fail too early for it.
			s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode, SyncInterval: time.Hour, OnWritable: w.onWritable})
			require.NoError(t, apply(s, put("a", "1"), put("b", "1")))
			fs.set(on(syscall.ENOSPC, "", create, write, syncFile, syncData))
			err := apply(s, put("a", "2"))
			if mode == Always {
				require.ErrorIs(t, err, store.ErrUnknownOutcome)
				require.ErrorIs(t, err, store.ErrUnwritable)
			}
			if mode != Always {
				// Nothing is written until the log's buffer is.
				require.NoError(t, err)
				require.NoError(t, s.Writable())
				_ = s.Sync()
			}
			require.ErrorIs(t, <-w.failed, syscall.ENOSPC)

			err = apply(s, put("a", "3"), put("c", "3"))
			require.ErrorIs(t, err, store.ErrUnwritable)
			require.NotErrorIs(t, err, store.ErrUnknownOutcome, "it was not handed on")
			require.ErrorIs(t, s.Writable(), store.ErrUnwritable)
			require.Equal(t, "2", get(t, s, "a"))
			require.Equal(t, "absent", get(t, s, "c"))
			it, err := s.Range([]byte("a"), nil, false)
			require.NoError(t, err)
			require.True(t, it.Next())
			require.True(t, it.Next())
			require.False(t, it.Next())
			require.NoError(t, it.Close())
			require.ErrorIs(t, s.Checkpoint("c"), store.ErrUnwritable)

			// Closing tries once more to save what was acknowledged.
			err = s.Close()
			require.ErrorIs(t, err, syscall.ENOSPC)
			if mode == Always {
				require.NotContains(t, err.Error(), "lost")
			} else {
				require.ErrorContains(t, err, "lost")
			}
		})
	}
}

// While the disk hangs in the midst of a change of the manifest, for which Pebble's figures
// wait, those of before are told.
func TestStore_StatsWhileTheDiskHangs(t *testing.T) {
	t.Parallel()
	fs := newFaults()
	s := open(t, Options{Dir: "data", FS: fs, Sync: Never, statsPatience: time.Millisecond})
	require.NoError(t, apply(s, put("a", "1")))
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	fs.set(func(op errorfs.Op) error {
		if on(errors.ErrUnsupported, "MANIFEST", syncFile, syncData)(op) != nil {
			select {
			case arrived <- struct{}{}:
			default:
			}
			<-release
		}
		return nil
	})
	flushed, err := s.cur.Load().db.AsyncFlush()
	require.NoError(t, err)
	<-arrived
	tables := func() (n uint64) {
		for _, level := range s.Stats().Levels {
			n += level.Files
		}
		return n
	}
	for range 3 {
		require.Zero(t, tables())
	}
	let()
	<-flushed
	require.Eventually(t, func() bool { return tables() == 1 }, time.Minute, time.Millisecond)
}

// Closing a store whose disk has become well saves everything.
func TestStore_CloseAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		fs, w := newFaults(), newWatcher()
		s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode, SyncInterval: time.Hour, OnWritable: w.onWritable})
		require.NoError(t, apply(s, put("a", "1")))
		fs.set(on(syscall.EIO, ".log", write, syncData))
		_ = apply(s, put("b", "1"))
		_ = s.Sync()
		<-w.failed
		fs.heal()
		require.NoError(t, s.Close())
		s = openOnly(t, Options{Dir: "d", FS: fs.crash(0)})
		require.Equal(t, "1", get(t, s, "a"))
		require.Equal(t, "1", get(t, s, "b"))
		require.NoError(t, s.Close())
	}
}

// A range that was open when the store was reopened goes on in its snapshot,
// and its instance is closed after it.
func TestStore_RangeAcrossARecovery(t *testing.T) {
	t.Parallel()
	fs, w := newFaults(), newWatcher()
	s := openOnly(t, Options{Dir: "d", FS: fs, OnWritable: w.onWritable, RetryInterval: time.Millisecond, memTableBytes: 32 << 10})
	l := startLoad(s)
	l.more(500)
	keys := l.acknowledged()
	it, err := s.Range(nil, nil, false)
	require.NoError(t, err)
	require.True(t, it.Next())
	fs.set(on(syscall.EIO, ".log", write, syncData))
	l.allow(1000)
	<-w.failed
	fs.heal()
	<-w.well
	l.more(500)
	n := 1
	for it.Next() {
		_, _, err := it.Entry()
		require.NoError(t, err)
		n++
	}
	require.NoError(t, it.Err())
	require.GreaterOrEqual(t, n, len(keys))
	require.NoError(t, it.Close())
	l.end(t)
	requireKeys(t, s, l.acknowledged())
	require.NoError(t, s.Close())
}

// A power cut under Always keeps what was acknowledged, at any moment.
func TestStore_AlwaysSurvivesCrashes(t *testing.T) {
	t.Parallel()
	fs := newFaults()
	s := openOnly(t, Options{Dir: "d", FS: fs.mem, memTableBytes: 32 << 10})
	l := startLoad(s)
	for _, percent := range []int{0, 10, 50, 90, 100} {
		l.more(100)
		l.allow(100) // during the crash too
		keys := l.acknowledged()
		requireOnDisk(t, fs.crash(percent), keys)
	}
	l.end(t)
	require.NoError(t, s.Close())
}

// Under Interval a power cut loses at most what was written since the last
// sync: a write is on disk when the sync after it has returned.
func TestStore_IntervalBoundsTheLoss(t *testing.T) {
	t.Parallel()
	fs := newFaults()
	synced := make(chan struct{})
	s := openOnly(t, Options{Dir: "d", FS: fs, Sync: Interval, SyncInterval: time.Millisecond, OnFsync: func(time.Duration) { synced <- struct{}{} }})
	for i := range 10 {
		key := fmt.Sprint(i)
		require.NoError(t, apply(s, put(key, strings.Repeat("v", 10))))
		<-synced
		clone := openOnly(t, Options{Dir: "d", FS: fs.crash(0)})
		require.Equal(t, strings.Repeat("v", 10), get(t, clone, key))
		require.NoError(t, clone.Close())
	}
	// An idle store does not sync.
	go func() {
		for range synced {
			continue // the syncs of Close
		}
	}()
	require.NoError(t, s.Close())
	close(synced)
}
