package values

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"unsafe"
)

const (
	// stripes is how many there are in a shard: few enough to be cheap, and many enough
	// that a read is seldom kept from filling by a write of another key.
	stripes = 128
	// stripeShift leaves those bits of a hash that neither name a shard nor, as its
	// lower half does, a place of the index.
	stripeShift = 40

	// An index has up to a slot of 8 bytes, and half a ghost of 4 bytes, for so many bytes of
	// the shard: enough for records of 100 bytes and a key, and full before the memory is
	// if they are smaller. It begins with firstIndex slots and grows by a quarter, so that
	// the memory of a cache that is not full is not touched here and there.
	indexEvery = 112
	firstIndex = 256
	// Of an index's slots at most so many sixteenths are used, so that those who look
	// for what is not there find an empty one soon.
	indexFull = 13

	smallShare = 10 // of the memory of a shard, a tenth is the small queue
	// promoted is how often a record must have been read in the small queue to be
	// moved to the main one.
	promoted = 2
	// maxRounds is how many records of the main queue are let go round for one that is
	// added, so that the lock is not held long.
	maxRounds = 32

	maxShardBytes = 16 << 30
)

// stripe guards the keys whose hashes lead to it: see the rules in doc.go.
type stripe struct {
	version uint64
	changes int64
}

// shard is a part of the cache, with memory and a lock of its own.
type shard struct {
	seed maphash.Seed

	mu sync.Mutex
	// memory is that of the rings, the small one first. It is empty once closed.
	memory []byte
	// index refers to records: the lower half of an element is the upper half of the
	// memory's offset of one, in units of 8 bytes and from 1, and its upper half is
	// that part of its hash by which it is placed. 0 is nothing. It is the beginning of
	// the memory that there is for it.
	index []uint64
	used  int // slots of the index
	// ghosts are parts of the hashes of what has left the small queue, placed by
	// others. A newer one takes the place of an older.
	ghosts      []uint32
	haunted     bool // there may be a ghost
	small, main ring
	stripes     [stripes]stripe
	stats       Stats
	_           [64]byte // so that no two locks share a line
}

func (s *shard) init(memory []byte, seed maphash.Seed) {
	s.seed = seed
	if len(memory) == 0 {
		return
	}
	n := max(8, len(memory)/indexEvery)
	s.index = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), n) //nolint:gosec // the memory is aligned and long enough
	s.index = s.index[:min(firstIndex, n)]
	ghosts := max(2, n/2) &^ 1
	memory = memory[8*n:]
	s.ghosts = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(memory))), ghosts) //nolint:gosec // the same
	s.memory = memory[4*ghosts:]
	small := len(s.memory) / smallShare &^ 7
	s.small = ring{size: small}
	s.main = ring{start: small, size: (len(s.memory) - small) &^ 7}
}

func (s *shard) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.stripes {
		s.stripes[i].version++
	}
	clear(s.index)
	if s.haunted {
		clear(s.ghosts)
		s.haunted = false
	}
	s.used = 0
	s.small.clear()
	s.main.clear()
	s.stats.Bytes, s.stats.Values = 0, 0
}

func (s *shard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory, s.index, s.ghosts = nil, nil, nil
}

func (s *shard) stripe(hash uint64) *stripe { return &s.stripes[hash>>stripeShift%stripes] }

// ticketLocked is R1.
func (s *shard) ticketLocked(hash uint64) Ticket {
	stripe := s.stripe(hash)
	return Ticket{hash: hash, version: stripe.version, valid: stripe.changes == 0}
}

// home returns where the search for a hash begins, and what it looks for.
func (s *shard) home(hash uint64) (at int, mark uint64) {
	mark = hash & 0xffffffff
	return int(mark * uint64(len(s.index)) >> 32), mark << 32
}

// lookLocked returns the place in the index of the record of a key, or -1.
func (s *shard) lookLocked(hash uint64, key []byte) int {
	if len(s.index) == 0 {
		return -1
	}
	at, mark := s.home(hash)
	for {
		e := s.index[at]
		if e == 0 {
			return -1
		}
		if e&^0xffffffff == mark && bytes.Equal(s.at(e).key(), key) {
			return at
		}
		if at++; at == len(s.index) {
			at = 0
		}
	}
}

// at returns the record that an element of the index refers to.
func (s *shard) at(e uint64) record { return s.memory[(e&0xffffffff-1)*8:] }

func (s *shard) findLocked(hash uint64, key []byte) record {
	if at := s.lookLocked(hash, key); at >= 0 {
		return s.at(s.index[at])
	}
	return nil
}

// fillLocked has the key hold the value.
func (s *shard) fillLocked(hash uint64, key, value []byte, m Meta) {
	if len(s.index) == 0 {
		return // closed
	}
	to := &s.small
	freq := byte(0)
	size := recordSize(len(key), len(value), m.Expires)
	if at := s.lookLocked(hash, key); at >= 0 {
		e := s.index[at]
		r := s.at(e)
		if r.filled() {
			return // somebody else has read the same
		}
		if r.room() >= size {
			r.setValue(value)
			r.setMeta(m)
			r.touch()
			s.countLocked(r, 1)
			return
		}
		if s.main.has(int(e&0xffffffff-1) * 8) {
			to = &s.main
		}
		freq = r.freq()
		s.dropLocked(at)
	} else if s.wasGhostLocked(hash) {
		to = &s.main
	}
	at := s.addLocked(to, hash, size)
	if at < 0 {
		return
	}
	r := record(s.memory[at:])
	r.setKey(key)
	r.setValue(value)
	r.setMeta(m)
	r.setFreq(freq)
	s.countLocked(r, 1)
}

// emptyLocked makes a record hold nothing.
func (s *shard) emptyLocked(r record) {
	if r.filled() {
		s.countLocked(r, -1)
		r.empty()
	}
}

func (s *shard) countLocked(r record, n int) {
	s.stats.Bytes += uint64(n * r.room())
	s.stats.Values += uint64(n)
}

// addLocked makes room for a record of that size and enters it in the index. It returns
// its offset, or -1 if there is no room.
func (s *shard) addLocked(to *ring, hash uint64, size int) int {
	if to == &s.main {
		s.freeMainLocked(size)
	} else {
		s.freeSmallLocked(size)
	}
	s.freeIndexLocked()
	if s.used >= len(s.index)*indexFull/16 {
		s.growLocked()
	}
	at := to.push(s.memory, size)
	if at >= 0 {
		s.enterLocked(hash, at)
	}
	return at
}

func (s *shard) enterLocked(hash uint64, offset int) {
	s.placeFreeLocked(hash&0xffffffff<<32 | uint64(offset/8+1))
	s.used++
}

// placeFreeLocked puts an element into the first free slot from where it belongs.
func (s *shard) placeFreeLocked(e uint64) {
	at := int(e >> 32 * uint64(len(s.index)) >> 32)
	for s.index[at] != 0 {
		if at++; at == len(s.index) {
			at = 0
		}
	}
	s.index[at] = e
}

// growLocked makes the index larger by a quarter, as far as there is memory for it. Both the old and the new
// are in the order of the hashes, so it goes over each from front to back.
func (s *shard) growLocked() {
	old := slices.Clone(s.index)
	clear(s.index)
	s.index = s.index[:min(len(s.index)/4*5, cap(s.index))]
	for _, e := range old {
		if e != 0 {
			s.placeFreeLocked(e)
		}
	}
}

// referLocked has that place of the index refer to another offset.
func (s *shard) referLocked(at, offset int) {
	s.index[at] = s.index[at]&^0xffffffff | uint64(offset/8+1)
}

// dropLocked forgets the record at that place of the index. Its memory comes back when
// it is at the head of its ring.
func (s *shard) dropLocked(at int) {
	r := s.at(s.index[at])
	s.emptyLocked(r)
	r.kill()
	s.used--
	// Those behind move up that would not be found across the gap.
	n := len(s.index)
	for gap, next := at, at; ; {
		if next++; next == n {
			next = 0
		}
		e := s.index[next]
		if e == 0 {
			s.index[gap] = 0
			return
		}
		home := int(e >> 32 * uint64(n) >> 32)
		if (next-home+n)%n >= (next-gap+n)%n {
			s.index[gap], gap = e, next
		}
	}
}

// placeLocked returns the place in the index of the record at an offset.
func (s *shard) placeLocked(hash uint64, offset int) int {
	at, mark := s.home(hash)
	for e := mark | uint64(offset/8+1); s.index[at] != e; {
		if at++; at == len(s.index) {
			at = 0
		}
	}
	return at
}
