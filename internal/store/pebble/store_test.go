package pebble

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

var modes = []SyncMode{Always, Interval, Never}

// inTurn returns the modes under which the ith fault is tried: all, or if tests are
// to be short Always, under which most is promised, and now and then another.
func inTurn(i int) []SyncMode {
	switch {
	case !testing.Short():
		return modes
	case i%3 == 0:
		return []SyncMode{Always, modes[1+i/3%2]}
	default:
		return []SyncMode{Always}
	}
}

// open opens a store that is closed at the end of the test.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	s := openOnly(t, o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// openOnly opens a store that the test closes itself, or abandons.
func openOnly(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	cached(t, &o)
	setDefault(&o.statsPatience, time.Minute) // however slow the machine is
	s, err := Open(o)
	require.NoError(t, err)
	return s
}

// apply writes and waits until the write may be acknowledged.
func apply(s *Store, writes ...store.Write) error {
	c, err := s.Apply(writes)
	if err != nil || c == nil {
		return err
	}
	return c.Wait()
}

func put(k, v string) store.Write { return store.Write{Key: []byte(k), Value: []byte(v)} }
func del(k string) store.Write    { return store.Write{Key: []byte(k), Delete: true} }

func get(t testing.TB, s *Store, k string) string {
	t.Helper()
	v, _, err := s.Get(nil, []byte(k))
	if err != nil {
		require.ErrorIs(t, err, store.ErrNotFound)
		return "absent"
	}
	return string(v)
}

func TestStore_GetApply(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := open(t, Options{Dir: t.TempDir(), Sync: mode})
			require.Equal(t, "absent", get(t, s, "a"))
			require.NoError(t, apply(s, put("a", "1"), put("b", ""), put("\x00\xff", "bytes")))
			require.Equal(t, "1", get(t, s, "a"))
			require.Equal(t, "", get(t, s, "b"))
			require.Equal(t, "bytes", get(t, s, "\x00\xff"))
			// Within a batch the order counts.
			require.NoError(t, apply(s, del("a"), put("a", "2"), put("b", "3"), del("b")))
			require.Equal(t, "2", get(t, s, "a"))
			require.Equal(t, "absent", get(t, s, "b"))

			dst, _, err := s.Get([]byte("head:"), []byte("a"))
			require.NoError(t, err)
			require.Equal(t, "head:2", string(dst))
			dst, _, err = s.Get([]byte("head:"), []byte("none"))
			require.ErrorIs(t, err, store.ErrNotFound)
			require.Equal(t, "head:", string(dst))
		})
	}
}

func TestStore_Range(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: t.TempDir()})
	for i := range 10 {
		require.NoError(t, apply(s, put(fmt.Sprint(i), fmt.Sprint("v", i))))
	}
	for _, row := range []struct{ start, end, want string }{
		{"0", "", "0123456789"},
		{"3", "6", "345"},
		{"35", "7", "456"},
		{"6", "3", ""},
		{"6", "6", ""},
		{"a", "", ""},
	} {
		for _, descending := range []bool{false, true} {
			start := []byte(row.start)
			it, err := s.Range(start, []byte(row.end), descending)
			require.NoError(t, err)
			clear(start) // arguments are not kept
			var got []byte
			for it.Next() {
				k, v, err := it.Entry()
				require.NoError(t, err)
				require.Equal(t, "v"+string(k), string(v))
				got = append(got, k...)
			}
			require.NoError(t, it.Err())
			require.NoError(t, it.Close())
			require.NoError(t, it.Close())
			if descending {
				slices.Reverse(got)
			}
			require.Equal(t, row.want, string(got), "%+v", row)
		}
	}
}

func TestStore_RangeIsASnapshot(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: t.TempDir()})
	require.NoError(t, apply(s, put("a", "1"), put("b", "1")))
	it, err := s.Range([]byte("a"), nil, false)
	require.NoError(t, err)
	require.NoError(t, apply(s, put("a", "2"), del("b"), put("c", "2")))
	var got string
	for it.Next() {
		k, v, _ := it.Entry()
		got += string(k) + string(v)
	}
	require.NoError(t, it.Close())
	require.Equal(t, "a1b1", got)
}

// A graceful stop loses nothing in any mode.
func TestStore_CloseKeepsEverything(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewCrashableMem()
			s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode})
			require.NoError(t, apply(s, put("a", "1")))
			require.NoError(t, s.Close())
			require.ErrorIs(t, s.Close(), store.ErrClosed)
			s = open(t, Options{Dir: "d", FS: fs.CrashClone(vfs.CrashCloneCfg{}), Sync: mode})
			require.Equal(t, "1", get(t, s, "a"))
		})
	}
}

// A read of an absent key asks the filters, also that of the last level, and
// reads no block of data. The index and the filter of a table stay cached.
func TestGet_AbsentReadsNoData(t *testing.T) {
	t.Parallel()
	s := openOnly(t, Options{Dir: t.TempDir(), Sync: Never, ValueBytes: -1})
	const n = 3000
	for i := range uint64(n) {
		require.NoError(t, apply(s, store.Write{Key: benchKey(nil, i), Value: make([]byte, 100)}))
	}
	db := s.cur.Load().db
	require.NoError(t, db.Flush())
	require.NoError(t, db.Compact(t.Context(), []byte{0}, []byte{255, 255}, false))
	require.NotZero(t, db.Metrics().Levels[6].TablesCount, "the last level holds them")
	blocks := func() int64 {
		m := db.Metrics()
		return m.BlockCache.Hits + m.BlockCache.Misses
	}
	read := func(from uint64, want error) int64 {
		before := blocks()
		for i := range uint64(n) {
			_, _, err := s.Get(nil, benchKey(nil, from+i))
			require.ErrorIs(t, err, want)
		}
		return blocks() - before
	}
	require.GreaterOrEqual(t, read(0, nil), int64(3*n), "index, filter and data")
	require.LessOrEqual(t, read(n, store.ErrNotFound), int64(2*n+n/10), "index and filter, and data one time in a hundred")
	require.NoError(t, s.Close())
}
