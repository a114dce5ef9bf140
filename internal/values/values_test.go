package values

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
)

// clock is a time that tests set.
type clock struct{ now int64 }

func (c *clock) read() int64 { return c.now }

func newCache(t testing.TB, bytes int64, shards int) *Cache {
	t.Helper()
	c, err := New(Options{Bytes: bytes, Now: new(clock).read, shards: shards})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// fill is a read that has missed and found that value.
func (c *Cache) fill(key, value string) {
	_, _, ticket, _ := c.Get(nil, []byte(key))
	c.Fill(ticket, []byte(key), []byte(value), Meta{})
}

// holds reports whether there is that value.
func (c *Cache) holds(key, value string) bool {
	got, _, _, ok := c.Get(nil, []byte(key))
	return ok && string(got) == value
}

func (c *Cache) begin(keys ...string) *Change {
	w := c.Change()
	for _, key := range keys {
		w.Add([]byte(key), Meta{})
	}
	return w
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		bytes  int64
		shards int
	}{
		{-1, bareShards}, {0, bareShards}, {MinBytes - 1, bareShards},
		{MinBytes, 1}, {1 << 20, 1}, {4 << 20, 2}, {5 << 20, 2}, {128 << 20, 64}, {8 << 30, 256},
	} {
		c, err := New(Options{Bytes: row.bytes})
		require.NoError(t, err)
		require.Len(t, c.shards, row.shards)
		require.LessOrEqual(t, int64(len(c.memory)), max(0, row.bytes))
		c.Close()
	}
	// More than there are addresses.
	_, err := New(Options{Bytes: 1 << 62})
	require.ErrorContains(t, err, "no memory for a cache of 4611686018427387904 bytes")
}

// Without memory nothing is kept, and tickets hold as they do otherwise.
func TestCache_WithoutMemory(t *testing.T) {
	t.Parallel()
	c, err := New(Options{})
	require.NoError(t, err)
	key := []byte("k")
	_, _, ticket, ok := c.Get(nil, key)
	require.False(t, ok)
	require.False(t, c.Keeps(key, 0))
	c.Fill(ticket, key, nil, Meta{})
	c.SetTag(ticket, key, etag.Tag{})
	require.True(t, c.Holds(ticket))
	w := c.Change()
	w.Add(key, Meta{})
	require.False(t, w.Known(0))
	require.False(t, c.Holds(ticket))
	require.False(t, c.Holds(c.Ticket(key)), "a change is under way")
	w.End()
	require.False(t, c.Holds(ticket))
	ticket = c.Ticket(key)
	require.True(t, c.Holds(ticket))
	c.Clear()
	require.False(t, c.Holds(ticket))
	require.Equal(t, Stats{}, c.Stats())
	c.Close()
}

func TestCache_Keeps(t *testing.T) {
	t.Parallel()
	large := newCache(t, 64<<20, 1)
	require.True(t, large.Keeps([]byte("k"), MaxValue))
	require.False(t, large.Keeps([]byte("k"), MaxValue+1))
	require.True(t, large.Keeps(make([]byte, maxKey), 0))
	require.False(t, large.Keeps(make([]byte, maxKey+1), 0))
	small := newCache(t, MinBytes, 1)
	require.True(t, small.Keeps([]byte("k"), 40))
	require.False(t, small.Keeps([]byte("k"), 400))
	small.fill("k", string(make([]byte, 400)))
	require.Zero(t, small.Stats().Values)
}

func TestCache_Closed(t *testing.T) {
	t.Parallel()
	c, err := New(Options{Bytes: 1 << 20})
	require.NoError(t, err)
	c.fill("k", "v")
	w := c.begin("k")
	_, _, ticket, _ := c.Get(nil, []byte("other"))
	before := c.Stats()
	c.Close()
	require.Equal(t, before, c.Stats())
	require.False(t, c.holds("k", "v"))
	c.Fill(ticket, []byte("other"), []byte("v"), Meta{})
	c.begin("k").End()
	w.Put(0, []byte("k"), []byte("v"))
	w.End()
	c.Clear()
}

func TestCache_Meta(t *testing.T) {
	t.Parallel()
	now := &clock{now: 1000}
	c, err := New(Options{Bytes: 1 << 20, Now: now.read})
	require.NoError(t, err)
	defer c.Close()
	key, value := []byte("key"), []byte("value")
	_, _, ticket, _ := c.Get(nil, key)
	c.Fill(ticket, key, value, Meta{Expires: 2000})
	now.now = 1999
	dst := append(make([]byte, 0, 64), "before "...)
	got, m, ticket, ok := c.Get(dst, key)
	require.True(t, ok)
	require.Equal(t, "before value", string(got))
	require.Equal(t, Meta{Expires: 2000}, m)
	c.SetTag(ticket, key, etag.Of(value))
	_, m, _, _ = c.Get(nil, key)
	require.Equal(t, Meta{Expires: 2000, Tag: etag.Of(value)}, m)
	// A value is never found at its moment, or later.
	now.now = 2000
	got, _, ticket, ok = c.Get(dst, key)
	require.False(t, ok)
	require.Equal(t, "before ", string(got))
	require.Equal(t, Stats{Hits: 2, Misses: 2, Bytes: c.Stats().Bytes, Values: 1}, c.Stats())
	// Nor is a tag set to another value.
	w := c.begin("key")
	w.Put(0, key, []byte("newer"))
	w.End()
	c.SetTag(ticket, key, etag.Of(value))
	_, m, _, _ = c.Get(nil, key)
	require.Zero(t, m)
}

// The interleavings of fills with changes, each a step of its own, by the rules of the
// package.
func TestCache_Fills(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why  string
		do   func(c *Cache, read func() (fill func(value string)))
		want string // that the key holds, "" for nothing
	}{
		{"nothing happens between read and fill", func(_ *Cache, read func() func(string)) {
			read()("old")
		}, "old"},
		{"of two fills of the same the second is left out", func(_ *Cache, read func() func(string)) {
			a, b := read(), read()
			a("old")
			b("old")
		}, "old"},
		{"a write begins and ends between read and fill", func(c *Cache, read func() func(string)) {
			fill := read()
			c.begin("k").End()
			fill("old")
		}, ""},
		{"a write begins between read and fill", func(c *Cache, read func() func(string)) {
			fill := read()
			w := c.begin("k")
			fill("old")
			w.End()
		}, ""},
		{"the read begins within a write", func(c *Cache, read func() func(string)) {
			w := c.begin("k")
			fill := read()
			fill("old")
			w.End()
		}, ""},
		{"the read begins within a write and fills after it", func(c *Cache, read func() func(string)) {
			w := c.begin("k")
			fill := read()
			w.End()
			fill("old")
		}, ""},
		{"the read begins after a write", func(c *Cache, read func() func(string)) {
			c.begin("k").End()
			read()("new")
		}, "new"},
		{"the value is cleared between read and fill", func(c *Cache, read func() func(string)) {
			fill := read()
			c.Clear()
			fill("old")
		}, ""},
		{"a write puts what was known", func(c *Cache, read func() func(string)) {
			read()("old")
			w := c.begin("k")
			w.Put(0, []byte("k"), []byte("new"))
			w.End()
		}, "new"},
		{"a write puts more than there was room for", func(c *Cache, read func() func(string)) {
			read()("old")
			w := c.begin("k")
			w.Put(0, []byte("k"), []byte("newer and longer"))
			w.End()
		}, "newer and longer"},
		{"a write puts less", func(c *Cache, read func() func(string)) {
			read()("old")
			w := c.begin("k")
			w.Put(0, []byte("k"), nil)
			w.End()
		}, ""},
		{"a write puts what another overlaps", func(c *Cache, read func() func(string)) {
			read()("old")
			a := c.begin("k")
			b := c.begin("k")
			a.Put(0, []byte("k"), []byte("a"))
			b.Put(0, []byte("k"), []byte("b"))
			a.End()
			b.End()
		}, ""},
		{"a write puts what another, which began before and ended, overlapped", func(c *Cache, read func() func(string)) {
			read()("old")
			a := c.begin("k")
			b := c.begin("k")
			a.End()
			b.Put(0, []byte("k"), []byte("b"))
			b.End()
		}, ""},
		{"a write puts what another, which began later and ended, overlapped", func(c *Cache, read func() func(string)) {
			read()("old")
			a := c.begin("k")
			b := c.begin("k")
			b.End()
			a.Put(0, []byte("k"), []byte("a"))
			a.End()
		}, ""},
		{"a write puts after all was cleared", func(c *Cache, read func() func(string)) {
			read()("old")
			w := c.begin("k")
			c.Clear()
			w.Put(0, []byte("k"), []byte("new"))
			w.End()
		}, ""},
		{"a batch puts a key twice", func(c *Cache, read func() func(string)) {
			read()("old")
			w := c.begin("k", "k")
			w.Put(0, []byte("k"), []byte("a"))
			w.Put(1, []byte("k"), []byte("b"))
			w.End()
		}, ""},
		{"a fill of before comes after a put", func(c *Cache, read func() func(string)) {
			read()("old")
			w := c.begin("k")
			fill := read()
			w.Put(0, []byte("k"), []byte("new"))
			fill("old")
			w.End()
			fill("old")
		}, "new"},
	} {
		t.Run(row.why, func(t *testing.T) {
			t.Parallel()
			c := newCache(t, 1<<20, 1)
			row.do(c, func() func(string) {
				_, _, ticket, _ := c.Get(nil, []byte("k"))
				return func(value string) { c.Fill(ticket, []byte("k"), []byte(value), Meta{}) }
			})
			if got, _, _, ok := c.Get(nil, []byte("k")); ok {
				require.Equal(t, row.want, string(got))
			} else {
				require.Empty(t, row.want)
			}
			// Whatever happened, the next one may fill.
			if _, _, ticket, ok := c.Get(nil, []byte("k")); !ok {
				require.True(t, ticket.valid)
			}
		})
	}
}

// A key that is not known need not be put.
func TestChange_Known(t *testing.T) {
	t.Parallel()
	c := newCache(t, 1<<20, 1)
	c.fill("a", "1")
	w := c.begin("a", "b")
	require.True(t, w.Known(0))
	require.False(t, w.Known(1))
	w.End()
	require.False(t, c.holds("a", "1"))
	// Having been written it still is.
	w = c.begin("a")
	require.True(t, w.Known(0))
	w.End()
}

// What is read again and again stays, whatever passes through.
func TestCache_Scan(t *testing.T) {
	t.Parallel()
	c := newCache(t, 1<<20, 1)
	value := string(make([]byte, 100))
	const hot = 1000
	warm := func() (hits int) {
		for i := range hot {
			key := fmt.Sprint("hot", i)
			if c.holds(key, value) {
				hits++
			} else {
				c.fill(key, value)
			}
		}
		return hits
	}
	for range 4 {
		warm()
	}
	for i := range 100_000 {
		c.fill(fmt.Sprint("scan", i), value)
	}
	require.Greater(t, warm(), hot*95/100)
	c.check(t)
}

// Everything is kept until the memory is full.
func TestCache_Fits(t *testing.T) {
	t.Parallel()
	for _, length := range []int{100, 1000, 5000} {
		c := newCache(t, 4<<20, 1)
		value := string(make([]byte, length))
		n := 4 << 20 * 7 / 10 / recordSize(8, length, 0)
		for i := range n {
			c.fill(fmt.Sprintf("%08d", i), value)
		}
		for i := range n {
			require.True(t, c.holds(fmt.Sprintf("%08d", i), value), "%d of %d values of %d bytes", i, n, length)
		}
		c.check(t)
	}
}

// What goes for a value that moves into the main queue leaves the index whole.
func TestCache_Promotes(t *testing.T) {
	t.Parallel()
	c := newCache(t, 4*MinBytes, 1)
	for i := range 3000 {
		key, value := fmt.Sprintf("%08d", i), string(make([]byte, 90+i%60))
		c.fill(key, value)
		for range 1 + i%3 {
			require.True(t, c.holds(key, value))
		}
		if !testing.Short() || i%10 == 0 {
			c.check(t)
		}
	}
}

// A key that is written again and again takes nothing from others.
func TestCache_WrittenAgain(t *testing.T) {
	t.Parallel()
	c := newCache(t, MinBytes, 1)
	for i := range 8 {
		c.fill(fmt.Sprint("key", i), "value")
	}
	for i := range 10_000 {
		w := c.begin("key0")
		w.Put(0, []byte("key0"), fmt.Appendf(nil, "%5d", i))
		w.End()
	}
	for i := 1; i < 8; i++ {
		require.True(t, c.holds(fmt.Sprint("key", i), "value"))
	}
	require.True(t, c.holds("key0", " 9999"))
}

func TestCache_AllocatesNothing(t *testing.T) {
	c := newCache(t, 1<<20, 1)
	key, value := []byte("key"), make([]byte, 100)
	dst := make([]byte, 0, 200)
	_, _, ticket, _ := c.Get(dst, key)
	c.Fill(ticket, key, value, Meta{})
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, _, _, ok := c.Get(dst, key); !ok {
			panic("not found")
		}
		w := c.Change()
		w.Add(key, Meta{})
		w.Put(0, key, value)
		w.End()
	}))
}

// check checks what holds at every moment between two operations.
func (c *Cache) check(t testing.TB) {
	t.Helper()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		var used int
		sum := Stats{Hits: s.stats.Hits, Misses: s.stats.Misses}
		for at, e := range s.index {
			if e == 0 {
				continue
			}
			used++
			r := s.at(e)
			require.True(t, r.isLive())
			require.Equal(t, at, s.lookLocked(s.hash(r), r.key()), "a record is found by its key")
			require.LessOrEqual(t, recordSize(r.keyLength(), len(r.value()), r.meta().Expires), max(r.room(), recordSize(r.keyLength(), len(r.value()), r.meta().Expires)*boolInt(!r.filled())))
			if r.filled() {
				sum.Bytes += uint64(r.room())
				sum.Values++
			}
		}
		require.Equal(t, s.used, used)
		require.Equal(t, s.stats, sum)
		live := 0
		for _, q := range []*ring{&s.small, &s.main} {
			require.LessOrEqual(t, q.used(), q.size)
			at := q.head
			for at < q.tail {
				r := record(s.memory[q.start+at%q.size:])
				require.Positive(t, r.room())
				require.Zero(t, r.room()%8)
				require.LessOrEqual(t, at%q.size+r.room(), q.size, "a record is in one piece")
				live += boolInt(r.isLive())
				at += r.room()
			}
			require.Equal(t, q.tail, at)
		}
		require.Equal(t, used, live, "all that are live are in the index")
		for i := range s.stripes {
			require.GreaterOrEqual(t, s.stripes[i].changes, int64(0))
		}
		s.mu.Unlock()
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// interpret has a cache that evicts all the time do what the bytes say, beside a map
// that holds what the store would, and checks what is found.
func interpret(t testing.TB, program []byte, size int64, shards int) {
	t.Helper()
	now := &clock{now: 1}
	c, err := New(Options{Bytes: size, Now: now.read, shards: shards})
	require.NoError(t, err)
	defer c.Close()
	type entry struct {
		value string
		meta  Meta
	}
	stored := map[string]entry{} // what everybody sees
	type read struct {
		ticket Ticket
		key    string
		found  entry
		ok     bool
	}
	type write struct {
		change *Change
		keys   []string
		values []entry
		shown  bool // the store shows it
	}
	var reads []read
	var writes []*write
	show := func(w *write) {
		if !w.shown {
			w.shown = true
			for i, key := range w.keys {
				if stored[key] = w.values[i]; w.values[i].meta.Expires < 0 {
					delete(stored, key)
				}
			}
		}
	}
	next := func() int {
		if len(program) == 0 {
			return 0
		}
		b := program[0]
		program = program[1:]
		return int(b)
	}
	key := func() string {
		n := next() % 12 // few, so that much happens to each
		return string(bytes.Repeat([]byte{byte(n)}, 1+n%13))
	}
	for serial := 0; len(program) > 0; serial++ {
		value := func() entry {
			e := entry{value: fmt.Sprint(serial) + string(make([]byte, next()*next()/64))}
			if n := next(); n%4 == 0 {
				e.meta.Expires = now.now + int64(n/8)
			}
			e.meta.Tag[3] = byte(serial)
			return e
		}
		switch next() % 12 {
		case 0, 1, 2, 3: // a read, which asks the store if it has missed
			k := key()
			got, m, ticket, ok := c.Get(nil, []byte(k))
			want, there := stored[k]
			if ok {
				require.True(t, there, "%q", k)
				require.Equal(t, want.value, string(got))
				require.Equal(t, want.meta, m)
				require.True(t, m.Expires == 0 || m.Expires > now.now)
				continue
			}
			reads = append(reads, read{ticket, k, want, there})
		case 4, 5, 6: // one that has asked fills
			if len(reads) > 0 {
				i := next() % len(reads)
				r := reads[i]
				reads = append(reads[:i], reads[i+1:]...)
				if r.ok {
					c.Fill(r.ticket, []byte(r.key), []byte(r.found.value), r.found.meta)
				}
			}
		case 7: // a write begins
			w := &write{change: c.Change()}
			for range 1 + next()%3 {
				w.keys, w.values = append(w.keys, key()), append(w.values, value())
				last := &w.values[len(w.values)-1]
				if next()%5 == 0 {
					last.meta.Expires = -1 // it deletes
				}
				w.change.Add([]byte(w.keys[len(w.keys)-1]), last.meta)
			}
			writes = append(writes, w)
		case 8: // a write is shown
			if len(writes) > 0 {
				show(writes[next()%len(writes)])
			}
		case 9, 10: // a write ends, or fails without effect
			if len(writes) == 0 {
				continue
			}
			i := next() % len(writes)
			w := writes[i]
			writes = append(writes[:i], writes[i+1:]...)
			if fails := next()%4 == 0; !fails || w.shown {
				show(w)
				for i := range w.keys {
					if w.values[i].meta.Expires >= 0 && w.change.Known(i) {
						w.change.Put(i, []byte(w.keys[i]), []byte(w.values[i].value))
					}
				}
			}
			w.change.End()
		case 11:
			switch next() % 8 {
			case 0: // the store comes back without some of what it had
				for k := range stored {
					if next()%2 == 0 {
						delete(stored, k)
					}
				}
				c.Clear()
			case 1, 2, 3:
				now.now += int64(next())
			default:
				for i := range 20 {
					c.fill(fmt.Sprint("scan", serial, i), string(make([]byte, next())))
				}
			}
		}
	}
	for _, w := range writes {
		w.change.End()
	}
	c.check(t)
}

func TestCache_Model(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	n := 300
	if testing.Short() {
		n = 100
	}
	for i := range n {
		program := make([]byte, random.IntN(20_000))
		for j := range program {
			program[j] = byte(random.Uint32())
		}
		size, shards := int64(MinBytes)<<random.IntN(4), 1<<random.IntN(2)
		if !t.Run(fmt.Sprintf("seed=%d/%d/size=%d/shards=%d", seed, i, size, shards), func(t *testing.T) {
			interpret(t, program, size, shards)
		}) {
			return
		}
	}
}

func FuzzCache(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		program := make([]byte, 2000)
		for j := range program {
			program[j] = byte(random.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) { interpret(t, program, MinBytes, 1) })
}

// Many read and write at once. A reader never finds less than was written, by anybody
// and acknowledged, before it began, nor more than was begun.
func TestCache_Concurrent(t *testing.T) {
	t.Parallel()
	const keys, goroutines = 8, 4
	c := newCache(t, MinBytes, 1)
	var stored [keys]struct {
		sync.RWMutex
		n int
	}
	rounds := 20_000
	if testing.Short() {
		rounds = 4000
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 0))
			var seen [keys]int
			for range rounds {
				k := random.IntN(keys)
				key := fmt.Appendf(nil, "key%d", k)
				if random.IntN(4) == 0 {
					w := c.Change()
					w.Add(key, Meta{})
					stored[k].Lock()
					stored[k].n++
					n := stored[k].n
					stored[k].Unlock()
					if w.Known(0) {
						w.Put(0, key, fmt.Appendf(nil, "%d", n))
					}
					w.End()
					seen[k] = max(seen[k], n)
					continue
				}
				stored[k].RLock()
				least := stored[k].n // somebody else may not have ended
				stored[k].RUnlock()
				_ = least
				got, _, ticket, ok := c.Get(nil, key)
				var n int
				if ok {
					_, err := fmt.Sscan(string(got), &n)
					if err != nil {
						t.Error(err)
					}
				} else {
					stored[k].RLock()
					n = stored[k].n
					stored[k].RUnlock()
					c.Fill(ticket, key, fmt.Appendf(nil, "%d", n), Meta{})
				}
				if n < seen[k] {
					t.Errorf("key %d: %d after %d", k, n, seen[k])
				}
				seen[k] = n
			}
		})
	}
	wg.Wait()
	c.check(t)
}
