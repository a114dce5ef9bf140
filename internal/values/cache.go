package values

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/etag"
)

// Options configure a Cache.
type Options struct {
	// Bytes is the memory that the cache may take, its own records of what it keeps
	// included. Less than MinBytes means that nothing is kept.
	Bytes int64
	// Now returns the time in milliseconds since 1970, and never runs backwards.
	Now func() int64
	// shards is for tests. 0 means as many as are useful.
	shards int
}

const (
	// MinBytes is the least memory in which something is kept.
	MinBytes = 4 << 10
	// MaxValue is the length above which values are not kept, however large the cache
	// is: what they take longest for, a copy, a hit does not spare.
	MaxValue = 64 << 10

	shardBytes = 2 << 20 // at least, where there is more than one
	maxShards  = 256     // so that they are large enough for large values
	bareShards = 16      // without memory
)

// Meta is what is kept with a value.
type Meta struct {
	// Tag is the validator of the value, zero if it is not known.
	Tag etag.Tag
	// Expires is when the value is gone, in milliseconds since 1970, 0 for never.
	Expires int64
}

// Cache keeps values. All methods are safe for concurrent use. One that keeps nothing
// still knows which tickets hold.
type Cache struct {
	now    func() int64
	seed   maphash.Seed
	shards []shard
	shift  uint // of a hash, to the number of its shard
	memory []byte
	// largest is the length of the largest record that is kept.
	largest int
	changes sync.Pool // of *Change
}

// New returns a cache. It takes memory as it fills.
func New(o Options) (*Cache, error) {
	if o.Bytes < MinBytes {
		o.Bytes = 0
	}
	n := o.shards
	if n == 0 {
		n = 1
		for n < maxShards && o.Bytes/int64(2*n) >= shardBytes {
			n *= 2
		}
		if o.Bytes == 0 {
			n = bareShards
		}
	}
	// An index of a shard refers to 32 GiB.
	each := min(o.Bytes/int64(n)&^7, maxShardBytes)
	memory, err := allocate(each * int64(n))
	if err != nil {
		return nil, fmt.Errorf("no memory for a cache of %d bytes: %w", o.Bytes, err)
	}
	c := &Cache{
		now: o.Now, seed: maphash.MakeSeed(), memory: memory,
		shards: make([]shard, n), shift: uint(64 - bits.Len(uint(n-1))),
	}
	c.changes.New = func() any { return &Change{cache: c} }
	for i := range c.shards {
		from := int64(i) * each
		c.shards[i].init(memory[from:from+each:from+each], c.seed)
	}
	c.largest = c.shards[0].small.size / 4
	return c, nil
}

// Close gives the memory back. What is called later finds nothing.
func (c *Cache) Close() {
	for i := range c.shards {
		c.shards[i].close()
	}
	release(c.memory)
}

// Clear forgets everything, what fills are under way included.
func (c *Cache) Clear() {
	for i := range c.shards {
		c.shards[i].clear()
	}
}

// Stats are figures of the cache.
type Stats struct {
	// Hits and Misses are the totals of Gets.
	Hits, Misses uint64
	// Bytes is the memory of what can be found, and Values how many those are.
	Bytes, Values uint64
}

// Stats returns the figures, none of a cache that keeps nothing.
func (c *Cache) Stats() (sum Stats) {
	if !c.Keeps(nil, 0) {
		return sum
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		sum.Hits += s.stats.Hits
		sum.Misses += s.stats.Misses
		sum.Bytes += s.stats.Bytes
		sum.Values += s.stats.Values
		s.mu.Unlock()
	}
	return sum
}

// shard returns the shard of a key, and the key's hash.
func (c *Cache) shard(key []byte) (*shard, uint64) {
	hash := maphash.Bytes(c.seed, key)
	return &c.shards[hash>>c.shift], hash // a shift by 64 is 0
}

// Ticket is the right to fill the record of a key with what the store says, unless it
// is changed meanwhile. Its zero value is no right.
type Ticket struct {
	hash, version uint64
	valid         bool
}

// Ticket returns a ticket for what the store is asked from now on.
func (c *Cache) Ticket(key []byte) Ticket {
	s, hash := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ticketLocked(hash)
}

// Holds reports whether what the store has said since the ticket was taken still holds.
// It may say no though it does.
func (c *Cache) Holds(t Ticket) bool {
	s := c.lockIf(t)
	if s != nil {
		s.mu.Unlock()
	}
	return s != nil
}

// lockIf returns the shard of a ticket, locked, if the ticket holds, and nil otherwise.
func (c *Cache) lockIf(t Ticket) *shard {
	if !t.valid {
		return nil
	}
	s := &c.shards[t.hash>>c.shift]
	s.mu.Lock()
	if s.ticketLocked(t.hash) == t {
		return s
	}
	s.mu.Unlock()
	return nil
}

// Get appends the value of key to dst, and reports whether there is one. The ticket is
// for what the store is asked from now on.
func (c *Cache) Get(dst, key []byte) ([]byte, Meta, Ticket, bool) {
	s, hash := c.shard(key)
	for {
		s.mu.Lock()
		t := s.ticketLocked(hash)
		r := s.findLocked(hash, key)
		if r == nil || !r.filled() {
			s.stats.Misses++
			s.mu.Unlock()
			return dst, Meta{}, t, false
		}
		value := r.value()
		if n := len(value); cap(dst)-len(dst) < n {
			// Not under the lock.
			s.mu.Unlock()
			dst = bufpool.Grow(dst, n)
			continue
		}
		s.stats.Hits++
		r.touch()
		m, head := r.meta(), len(dst)
		dst = append(dst, value...)
		s.mu.Unlock()
		if m.Expires != 0 && m.Expires <= c.now() {
			s.mu.Lock()
			s.stats.Hits--
			s.stats.Misses++
			s.mu.Unlock()
			return dst[:head], Meta{}, t, false
		}
		return dst, m, t, true
	}
}

// Keeps reports whether a value of that length may be kept.
func (c *Cache) Keeps(key []byte, length int) bool {
	return length <= MaxValue && len(key) <= maxKey && recordSize(len(key), length, 1) <= c.largest
}

// Fill keeps a value that the store has said since the ticket was taken. It may be
// kept until then, and does nothing if it must not be.
func (c *Cache) Fill(t Ticket, key, value []byte, m Meta) {
	if !c.Keeps(key, len(value)) {
		return
	}
	if s := c.lockIf(t); s != nil {
		defer s.mu.Unlock()
		s.fillLocked(t.hash, key, value, m)
	}
}

// SetTag adds its tag to a value that Get has found without one.
func (c *Cache) SetTag(t Ticket, key []byte, tag etag.Tag) {
	if s := c.lockIf(t); s != nil {
		defer s.mu.Unlock()
		if r := s.findLocked(t.hash, key); r != nil && r.filled() {
			m := r.meta()
			m.Tag = tag
			r.setMeta(m)
		}
	}
}

// Change is a batch of writes, from before the store sees it until it shows it to
// everybody. It is for one goroutine.
type Change struct {
	cache *Cache
	keys  []changed
}

// changed is a key of a Change.
type changed struct {
	hash uint64
	// version is what W1 has made of that of the stripe, if that was the first change
	// under way, else 0.
	version uint64
	meta    Meta // of what is written
	known   bool // there was a record
	ended   bool
}

// Change begins a change, which must be ended.
func (c *Cache) Change() *Change {
	return c.changes.Get().(*Change)
}

// Add is W1 for a key, of whose new value that is known, if it has one.
func (w *Change) Add(key []byte, m Meta) {
	s, hash := w.cache.shard(key)
	k := changed{hash: hash, meta: m}
	s.mu.Lock()
	stripe := s.stripe(hash)
	stripe.version++
	if stripe.changes++; stripe.changes == 1 {
		k.version = stripe.version
	}
	if r := s.findLocked(hash, key); r != nil {
		k.known = true
		s.emptyLocked(r)
	}
	s.mu.Unlock()
	w.keys = append(w.keys, k)
}

// Known reports whether the key that was added as that one, counted from 0, had been
// read lately, so that it may be worth a Put.
func (w *Change) Known(i int) bool { return w.keys[i].known }

// Put is W2 for the key that was added as that one, with what was written.
func (w *Change) Put(i int, key, value []byte) {
	k := &w.keys[i]
	k.ended = true
	s := &w.cache.shards[k.hash>>w.cache.shift]
	s.mu.Lock()
	defer s.mu.Unlock()
	stripe := s.stripe(k.hash)
	stripe.changes--
	if k.version == stripe.version && stripe.changes == 0 && w.cache.Keeps(key, len(value)) {
		s.fillLocked(k.hash, key, value, k.meta)
	}
}

// End is W2 for all keys that were not Put.
func (w *Change) End() {
	for i := range w.keys {
		if k := &w.keys[i]; !k.ended {
			s := &w.cache.shards[k.hash>>w.cache.shift]
			s.mu.Lock()
			s.stripe(k.hash).changes--
			s.mu.Unlock()
		}
	}
	w.keys = w.keys[:0]
	w.cache.changes.Put(w)
}
