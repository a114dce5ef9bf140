package pebble

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// wall is a wall clock and a monotonic one that tests set.
type wall struct{ at, passed atomic.Int64 }

func newWall() *wall {
	w := new(wall)
	w.at.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	return w
}

func (w *wall) now() (time.Time, time.Duration) {
	return time.UnixMilli(w.at.Load()), time.Duration(w.passed.Load())
}

// move has time pass.
func (w *wall) move(by time.Duration) {
	w.at.Add(by.Milliseconds())
	w.passed.Add(int64(by))
}

// jump sets the wall clock alone.
func (w *wall) jump(by time.Duration) { w.at.Add(by.Milliseconds()) }

func putFor(k, v string, ttl uint32) store.Write {
	return store.Write{Key: []byte(k), Value: []byte(v), TTL: ttl}
}

func keysOf(t testing.TB, s *Store) (keys []string) {
	t.Helper()
	it, err := s.Range(nil, nil, false)
	require.NoError(t, err)
	for it.Next() {
		k, _, err := it.Entry()
		if err == nil {
			keys = append(keys, string(k))
		} else {
			require.ErrorIs(t, err, store.ErrNotFound)
		}
	}
	require.NoError(t, it.Err())
	require.NoError(t, it.Close())
	return keys
}

// A value is there until its time is over, for everybody alike, and for good.
func TestStore_Expires(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWall()
			dir := t.TempDir()
			s := openOnly(t, Options{Dir: dir, Sync: mode, now: w.now, SweepInterval: time.Hour})
			long := strings.Repeat("l", 5000)
			require.NoError(t, apply(s, putFor("a", "1", 10), putFor("b", "2", 20), putFor("c", long, 10), put("d", "4"), putFor("e", "", 10)))
			w.move(9001 * time.Millisecond)
			v, m, err := s.Get(nil, []byte("a"))
			require.NoError(t, err)
			require.Equal(t, "1", string(v))
			require.EqualValues(t, 1, m.TTL, "rounded up")
			v, m, err = s.Get(nil, []byte("c"))
			require.NoError(t, err)
			require.Equal(t, long, string(v))
			require.Equal(t, store.Meta{TTL: 1, Tag: etag.Of([]byte(long))}, m)
			require.Equal(t, []string{"a", "b", "c", "d", "e"}, keysOf(t, s))

			w.move(999 * time.Millisecond)
			requireLeft := func(s *Store) {
				for _, k := range []string{"a", "c", "e"} {
					require.Equal(t, "absent", get(t, s, k))
				}
				require.Equal(t, []string{"b", "d"}, keysOf(t, s))
				require.NoError(t, s.View(func(v store.View) error {
					_, _, err := v.Get([]byte("a"))
					require.ErrorIs(t, err, store.ErrNotFound)
					_, m, err := v.Get([]byte("b"))
					require.EqualValues(t, 10, m.TTL)
					return err
				}))
			}
			requireLeft(s)
			w.jump(-time.Minute) // the clock is set back
			requireLeft(s)
			w.move(time.Minute)
			copied := filepath.Join(t.TempDir(), "copy")
			require.NoError(t, s.Checkpoint(copied))
			require.NoError(t, s.Close())
			for _, dir := range []string{dir, copied} {
				s := openOnly(t, Options{Dir: dir, Sync: mode, now: w.now, SweepInterval: time.Hour})
				requireLeft(s)
				require.NoError(t, apply(s, put("a", "again"), put("b", "for good")))
				at := w.at.Load()
				w.move(time.Hour)
				require.Equal(t, "again", get(t, s, "a"))
				require.Equal(t, "for good", get(t, s, "b"), "who puts without a time puts for good")
				w.at.Store(at)
				require.NoError(t, s.Close())
			}
		})
	}
}

// What was written before values had heads is as it was, whatever it is, and what is
// written now may be anything as well.
func TestStore_ValuesOfOlderFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Dir: dir}
	o.setDefaults()
	p := o.pebbleOptions()
	p.Logger = quiet{}
	db, err := pebble.Open(dir, p)
	require.NoError(t, err)
	var head format.Prefix
	values := map[string]string{"empty": "", "short": "v", "long": strings.Repeat("v", 10_000), "zeros": strings.Repeat("\x00", 100), "alike": string(head[:]) + "\x01"}
	for k, v := range values {
		require.NoError(t, db.Set([]byte(k), []byte(v), pebble.Sync))
	}
	require.NoError(t, db.Close())

	r, err := OpenReader(dir)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	report, err := Check(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	require.NoFileExists(t, filepath.Join(dir, format.ValuesName), "who only reads changes nothing")

	s := openOnly(t, Options{Dir: dir})
	for k, v := range values {
		require.Equal(t, v, get(t, s, k))
	}
	for _, tail := range []string{"", "\x00", "\x01", "\x03", "\xff", "\x02" + strings.Repeat("x", 30)} {
		v := string(s.prefix[:]) + tail
		require.NoError(t, apply(s, put("k", v)))
		require.Equal(t, v, get(t, s, "k"))
	}
	require.NoError(t, s.Close())
	again := open(t, Options{Dir: dir})
	require.Equal(t, s.prefix, again.prefix)
	for k, v := range values {
		require.Equal(t, v, get(t, again, k))
	}
}

// A version before there were heads finds a marker of Pebble's with a format that it
// does not know.
func TestStore_OlderVersionsRefuse(t *testing.T) {
	t.Parallel()
	require.True(t, strings.HasPrefix(format.ValuesName, format.VersionMarker))
	_, err := format.Version(format.ValuesName)
	require.ErrorIs(t, err, format.ErrNewer)
	require.ErrorContains(t, err, "it is in format 1001")
}

func TestStore_DamagedValuesNote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, openOnly(t, Options{Dir: dir}).Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, format.ValuesName), []byte("00"), 0o600))
	_, err := Open(Options{Dir: dir})
	requireOneLine(t, err, format.ValuesName, "damaged")
	report, err := Check(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, format.ValuesName, report.Damage[0].File)

	require.NoError(t, os.Remove(filepath.Join(dir, format.ValuesName)))
	_, err = Open(Options{Dir: dir})
	requireOneLine(t, err, format.ValuesName, "missing")
	report, err = Check(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, format.ValuesName, report.Damage[0].File)
}

// Steps of many at once are in order: each sees what the one before has written.
func TestStore_TransactIsOneStep(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := open(t, Options{Dir: t.TempDir(), Sync: mode})
			const workers, rounds = 8, 50
			var all sync.WaitGroup
			for worker := range workers {
				all.Go(func() {
					for range rounds {
						room := 1 << 20
						c, err := s.Transact([]store.Look{{Key: []byte("n"), Room: &room}}, func(v store.View) ([]store.Write, error) {
							old, _, err := v.Get([]byte("n"))
							if err != nil && len(old) > 0 {
								return nil, err
							}
							return []store.Write{put("n", string(old)+"x")}, nil
						})
						if err == nil && c != nil {
							err = c.Wait()
						}
						if err == nil {
							err = apply(s, put(fmt.Sprint(worker), "plain"))
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			require.Len(t, get(t, s, "n"), workers*rounds)
		})
	}
}

// What has expired gives its space back, whatever has become of its key since.
func TestStore_SweepsWhatHasExpired(t *testing.T) {
	t.Parallel()
	w := newWall()
	s := open(t, Options{Dir: t.TempDir(), Sync: Never, now: w.now, SweepInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	const n = 3000
	for i := range n {
		require.NoError(t, apply(s, putFor(fmt.Sprintf("gone%05d", i), strings.Repeat("v", 100), 10), put(fmt.Sprintf("kept%05d", i), "v")))
	}
	require.NoError(t, apply(s, putFor("later", "v", 1000), putFor("replaced", "old", 10), putFor("deleted", "v", 10)))
	require.NoError(t, s.cur.Load().db.Flush())
	require.NoError(t, s.cur.Load().db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	require.NoError(t, apply(s, put("replaced", "new"), del("deleted")))
	require.NoError(t, s.cur.Load().db.Flush())
	removed := func() int {
		n, _ := s.sweep()
		return n
	}
	n0, next := s.sweep()
	require.Zero(t, n0, "nothing has expired")
	require.Equal(t, w.at.Load()+10_000, next)
	w.move(10 * time.Second)
	require.NoError(t, apply(s, putFor("gone00007", "anew", 100)))
	require.Equal(t, n-1, removed())
	require.Zero(t, removed(), "once is enough")
	require.NoError(t, s.cur.Load().db.Flush())
	require.Zero(t, removed(), "what was removed does not show again")
	require.Equal(t, "new", get(t, s, "replaced"))
	require.Equal(t, "v", get(t, s, "later"))
	require.Equal(t, "anew", get(t, s, "gone00007"))
	it, err := s.cur.Load().db.NewIter(nil)
	require.NoError(t, err)
	stored := 0
	for ok := it.First(); ok; ok = it.Next() {
		stored++
	}
	require.NoError(t, it.Close())
	require.Equal(t, n+3, stored)
}

// requireSwept waits until nothing is stored any more.
func requireSwept(t testing.TB, s *Store) {
	t.Helper()
	require.Eventually(t, func() bool {
		it, err := s.cur.Load().db.NewIter(nil)
		require.NoError(t, err)
		found := it.First()
		require.NoError(t, it.Close())
		return !found
	}, time.Minute, time.Millisecond)
}

// It happens by itself.
func TestStore_SweepLoop(t *testing.T) {
	t.Parallel()
	w := newWall()
	s := open(t, Options{Dir: t.TempDir(), now: w.now, SweepInterval: time.Millisecond})
	require.NoError(t, apply(s, putFor("a", "v", 1)))
	w.move(time.Second)
	requireSwept(t, s)
}

// The sweeper is told of a value when it can find it, not before.
func TestStore_SweeperIsToldOfWhatIsVisible(t *testing.T) {
	t.Parallel()
	w := newWall()
	var s *Store
	told := false
	s = open(t, Options{Dir: t.TempDir(), Sync: Never, SweepInterval: time.Hour, now: func() (time.Time, time.Duration) {
		told = told || s != nil && s.soonest.Load() != 0
		return w.now()
	}})
	require.NoError(t, apply(s, putFor("a", "v", 7), putFor("b", "v", 5), put("c", "v"), putFor("d", "v", 6)))
	require.False(t, told)
	require.Equal(t, w.at.Load()+5000, s.soonest.Load())
}

// It happens in whatever is left of the store: after a power cut that comes as soon as
// the first value that expires is there, after flushes and compactions, and in copies.
func TestStore_SweepsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, s *Store, mem *vfs.MemFS) (dir string, fs vfs.FS){
		"after a power cut": func(_ *testing.T, _ *Store, mem *vfs.MemFS) (string, vfs.FS) {
			return "d", mem.CrashClone(vfs.CrashCloneCfg{})
		},
		"after a power cut behind a compaction": func(t *testing.T, s *Store, mem *vfs.MemFS) (string, vfs.FS) {
			t.Helper()
			require.NoError(t, s.cur.Load().db.Flush())
			require.NoError(t, s.cur.Load().db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
			return "d", mem.CrashClone(vfs.CrashCloneCfg{})
		},
		"in a copy": func(t *testing.T, s *Store, mem *vfs.MemFS) (string, vfs.FS) {
			t.Helper()
			require.NoError(t, s.Checkpoint("copy"))
			return "copy", mem
		},
	} {
		for _, transact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, transact=%t", name, transact), func(t *testing.T) {
				t.Parallel()
				w, mem := newWall(), vfs.NewCrashableMem()
				s := open(t, Options{Dir: "d", FS: mem, now: w.now, SweepInterval: time.Hour})
				if transact {
					c, err := s.Transact(nil, func(store.View) ([]store.Write, error) { return []store.Write{putFor("a", "v", 1)}, nil })
					require.NoError(t, err)
					require.NoError(t, c.Wait())
				} else {
					require.NoError(t, apply(s, putFor("a", "v", 1)))
				}
				dir, fs := leave(t, s, mem)
				w.move(time.Second)
				left := open(t, Options{Dir: dir, FS: fs, now: w.now, SweepInterval: time.Millisecond})
				requireSwept(t, left)
			})
		}
	}
}

// Who writes nothing that expires has nobody go over the store.
func TestStore_NotesOnlyWhatExpires(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openOnly(t, Options{Dir: dir})
	require.NoError(t, apply(s, put("\x00", "v"), del("b")))
	require.False(t, s.cur.Load().expiring.Load())
	require.NoError(t, s.Close())
	s = openOnly(t, Options{Dir: dir})
	require.False(t, s.cur.Load().expiring.Load())
	require.NoError(t, apply(s, putFor("a", "v", 1000)))
	require.True(t, s.cur.Load().expiring.Load())
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: dir})
	require.True(t, s.cur.Load().expiring.Load())
	require.Equal(t, []string{"\x00", "a"}, keysOf(t, s))
}

// A power cut in the midst of steps, at any change of the file system, leaves all writes
// of each or none, and under Always those that were acknowledged. So it is for keys of
// one writer, and for those that all write.
func TestStore_PowerCutsLeaveStepsWhole(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			const writers, keys = 3, 40
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 2))
			key := func(of string, i int) string { return fmt.Sprintf("%s %02d", of, i) }
			found := 0
			for cycle := range cycles(t) {
				mem := vfs.NewCrashableMem()
				var acknowledged, sent [writers]atomic.Int64
				var countdown atomic.Int64 // to the cut, once it is positive
				var left *vfs.MemFS
				var then [writers]int64
				cut := make(chan struct{})
				percent := []int{0, 10, 50, 90, 100}[cycle%5]
				fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && countdown.Add(-1) == 0 {
						for w := range writers {
							then[w] = acknowledged[w].Load()
						}
						left = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, uint64(cycle)))})
						close(cut)
					}
					return nil
				}))
				o := Options{Dir: "d", FS: fs, Sync: mode, SyncInterval: time.Millisecond, memTableBytes: 64 << 10, Logger: slog.New(slog.DiscardHandler)}
				s := openOnly(t, o)
				countdown.Store(1 + r.Int64N(200))
				filler := strings.Repeat("v", r.IntN(500))
				var all sync.WaitGroup
				for w := range writers {
					all.Go(func() {
						for {
							select {
							case <-cut:
								return
							default:
							}
							n := sent[w].Add(1)
							c, err := s.Transact(nil, func(store.View) (writes []store.Write, _ error) {
								for i := range keys {
									writes = append(writes, put(key(fmt.Sprint(w), i), fmt.Sprint(n, filler)), put(key("all", i), fmt.Sprint(w, n, filler)))
								}
								return writes, nil
							})
							if err == nil && c != nil {
								err = c.Wait()
							}
							if err != nil {
								t.Errorf("writer %d: %v", w, err)
								return
							}
							acknowledged[w].Store(n)
						}
					})
				}
				all.Wait()
				require.NoError(t, s.Close())
				require.NotNil(t, left, "the power was cut")
				o.FS = left
				after := openOnly(t, o)
				whole := func(of string) string {
					first := get(t, after, key(of, 0))
					for i := range keys {
						require.Equal(t, first, get(t, after, key(of, i)), "cycle %d: %s, key %d", cycle, of, i)
					}
					return first
				}
				whole("all")
				for w := range writers {
					var n int64
					if value := whole(fmt.Sprint(w)); value != "absent" {
						found++
						_, err := fmt.Sscanf(value, "%d", &n)
						require.NoError(t, err)
					}
					require.LessOrEqual(t, n, sent[w].Load())
					if mode == Always {
						require.GreaterOrEqual(t, n, then[w], "cycle %d: writer %d", cycle, w)
					}
				}
				require.NoError(t, after.Close())
			}
			t.Logf("%d steps were left", found)
		})
	}
}
