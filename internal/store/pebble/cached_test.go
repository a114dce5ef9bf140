package pebble

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/values"
)

// valueBytes are the sizes of the cache of values that tests run with, in turn: none,
// one that evicts all the time, and one that holds all.
var valueBytes = []int64{-1, values.MinBytes, 1 << 20}

var opened atomic.Int64

// cached gives o a cache of values, if it does not say which.
func cached(t testing.TB, o *Options) {
	if o.ValueBytes == 0 {
		o.ValueBytes = valueBytes[opened.Add(1)%int64(len(valueBytes))]
		t.Logf("a cache of values of %d bytes", o.ValueBytes)
	}
}

// requireAgree requires that what is read, from memory or not, is what is stored.
func requireAgree(t *testing.T, s *Store, keys []string) {
	t.Helper()
	for range 2 {
		for _, k := range keys {
			want := "absent"
			require.NoError(t, s.View(func(v store.View) error {
				if value, _, err := v.Get([]byte(k)); err == nil {
					want = string(value)
				}
				return nil
			}))
			require.Equal(t, want, get(t, s, k), "the key %s", k)
		}
	}
}

// A value that is read again costs Pebble nothing, and tells what it would have told.
func TestGet_Again(t *testing.T) {
	t.Parallel()
	w := newWall()
	s := open(t, Options{Dir: t.TempDir(), Sync: Never, ValueBytes: 1 << 20, now: w.now, SweepInterval: time.Hour})
	small, large := "small", string(make([]byte, 5000))
	require.NoError(t, apply(s, put("small", small), putFor("large", large, 100), put("huge", string(make([]byte, values.MaxValue+1)))))
	require.NoError(t, s.cur.Load().db.Flush())
	for range 3 {
		for k, value := range map[string]string{"small": small, "large": large} {
			before := s.cur.Load().db.Metrics().BlockCache
			hits := s.Stats().Values.Hits
			v, m, err := s.Get(make([]byte, 2, 10_000), []byte(k))
			require.NoError(t, err)
			require.Equal(t, "\x00\x00"+value, string(v))
			require.Equal(t, etag.Of([]byte(value)), m.Tag)
			require.Equal(t, k == "large", m.TTL == 100)
			after := s.cur.Load().db.Metrics().BlockCache
			require.Equal(t, s.Stats().Values.Hits > hits, before.Hits+before.Misses == after.Hits+after.Misses)
		}
		require.Len(t, get(t, s, "huge"), values.MaxValue+1)
	}
	require.EqualValues(t, 4, s.Stats().Values.Hits)
	require.EqualValues(t, 2, s.Stats().Values.Values)

	// What is written over a value that was read is in memory as well, without its tag
	// until somebody wants it.
	require.NoError(t, apply(s, put("small", "other")))
	for range 2 {
		v, m, err := s.Get(nil, []byte("small"))
		require.NoError(t, err)
		require.Equal(t, "other", string(v))
		require.Equal(t, store.Meta{Tag: etag.Of([]byte("other"))}, m)
	}
	require.EqualValues(t, 6, s.Stats().Values.Hits)

	// What expires is gone at its moment, and its time left is told until then.
	w.move(99_500 * time.Millisecond)
	_, m, err := s.Get(nil, []byte("large"))
	require.NoError(t, err)
	require.EqualValues(t, 1, m.TTL)
	w.move(500 * time.Millisecond)
	require.Equal(t, "absent", get(t, s, "large"))
	w.jump(-time.Minute)
	require.Equal(t, "absent", get(t, s, "large"))
	require.NoError(t, apply(s, del("small")))
	require.Equal(t, "absent", get(t, s, "small"))
}

func TestGet_AgainAllocatesNothing(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Sync: Never, ValueBytes: 1 << 20})
	key, dst := []byte("key"), make([]byte, 0, 100)
	require.NoError(t, apply(s, putFor("key", "value", 100)))
	_, _, _ = s.Get(dst, key)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = s.Get(dst, key) }))
	require.Greater(t, s.Stats().Values.Hits, uint64(100))
}

// What the memory is asked for fails once the store is closed.
func TestGet_CachedAfterClose(t *testing.T) {
	t.Parallel()
	s := openOnly(t, Options{Dir: t.TempDir(), ValueBytes: 1 << 20})
	require.NoError(t, apply(s, put("a", "1")))
	require.Equal(t, "1", get(t, s, "a"))
	require.Equal(t, "1", get(t, s, "a"))
	require.NoError(t, s.Close())
	_, _, err := s.Get(nil, []byte("a"))
	require.ErrorIs(t, err, store.ErrClosed)
}

// Keys with one writer each, that counts: by plain writes, batches, transactions, and
// deletes in between. A read that began after a write was acknowledged sees that one or
// a later one, and none sees what is older than what it has seen before, or what has not
// been begun.
func TestStore_ReadsAreOfThisMoment(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, size := range valueBytes {
			t.Run(fmt.Sprintf("%s/%d", mode, size), func(t *testing.T) {
				t.Parallel()
				s := open(t, Options{Dir: "d", FS: newFaults().mem, Sync: mode, ValueBytes: size})
				const keys, readers = 4, 3
				rounds := 1000
				if testing.Short() {
					rounds = 150
				}
				var begun, acknowledged [keys]atomic.Int64
				var writers, all sync.WaitGroup
				done := make(chan struct{})
				name := func(k int) string { return fmt.Sprintf("key%d", k) }
				for k := range keys {
					writers.Go(func() {
						random := rand.New(rand.NewPCG(uint64(k), 1))
						for n := int64(1); n <= int64(rounds); n++ {
							begun[k].Store(n)
							w := put(name(k), strconv.FormatInt(n, 10)+string(make([]byte, random.IntN(40))))
							var err error
							switch random.IntN(4) {
							case 0: // a batch, in which the last one counts
								err = apply(s, put(name(k), "0"), w, put(fmt.Sprint("other", k), "0"))
							case 1:
								var c store.Commit
								c, err = s.Transact(nil, func(store.View) ([]store.Write, error) { return []store.Write{w}, nil })
								if err == nil && c != nil {
									err = c.Wait()
								}
							case 2: // for as long as it takes
								w.TTL = 1000
								err = apply(s, w)
							default:
								err = apply(s, w)
							}
							if err != nil {
								t.Error(err)
								return
							}
							acknowledged[k].Store(n)
						}
					})
				}
				for r := range readers {
					all.Go(func() {
						random := rand.New(rand.NewPCG(uint64(r), 2))
						var seen [keys]int64
						for {
							select {
							case <-done:
								return
							default:
							}
							k := random.IntN(keys)
							least := max(seen[k], acknowledged[k].Load())
							v, m, err := s.Get(nil, []byte(name(k)))
							if err != nil {
								if least > 0 {
									t.Errorf("%v, where %d was written", err, least)
								}
								continue
							}
							if !m.Tag.IsZero() && m.Tag != etag.Of(v) {
								t.Errorf("the tag of %q is of another value", v)
							}
							text, _, _ := strings.Cut(string(v), "\x00")
							n, err := strconv.ParseInt(text, 10, 64)
							if most := begun[k].Load(); err != nil || n < least || n > most {
								t.Errorf("%s is %q, not between %d and %d", name(k), v, least, most)
							}
							seen[k] = n
						}
					})
				}
				writers.Wait()
				close(done)
				all.Wait()
			})
		}
	}
}
