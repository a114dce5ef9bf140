package values

// ring is a queue of records in a part of the memory of a shard, from start on. Each is
// in one piece: where one does not fit before the end there is a filler, which is a dead
// record, or nothing if there is no room for one.
type ring struct {
	start, size int
	// head and tail count bytes from the beginning of time; what is at one is at its
	// remainder by size.
	head, tail int
}

func (r *ring) clear() { r.head, r.tail = 0, 0 }

func (r *ring) used() int { return r.tail - r.head }

func (r *ring) has(offset int) bool { return offset >= r.start && offset < r.start+r.size }

// gap returns how many bytes are lost at the end if a record of that size is added.
func (r *ring) gap(size int) int {
	if left := r.size - r.tail%r.size; left < size {
		return left
	}
	return 0
}

// fits reports whether there is room for a record of that size.
func (r *ring) fits(size int) bool { return r.tail+r.gap(size)+size-r.head <= r.size }

// push adds a record, and returns its offset in memory, or -1 if there is no room.
func (r *ring) push(memory []byte, size int) int {
	if size > r.size || !r.fits(size) {
		return -1
	}
	at := r.take(memory, size)
	record(memory[at:]).setRoom(size)
	return at
}

// repush adds a record that was popped last, and which fits. It may come to lie across
// where it was; the filler does not, as there is none unless there was room for it.
func (r *ring) repush(memory []byte, popped record) int {
	at := r.take(memory, len(popped))
	copy(memory[at:], popped)
	return at
}

// take returns the offset of the next size bytes in one piece, behind a filler if need be.
func (r *ring) take(memory []byte, size int) int {
	if gap := r.gap(size); gap > 0 {
		record(memory[r.start+r.tail%r.size:]).setRoom(gap) // which is dead
		r.tail += gap
	}
	at := r.start + r.tail%r.size
	r.tail += size
	return at
}

// pop removes the oldest record, whose bytes stay until the next push, and returns its
// offset.
func (r *ring) pop(memory []byte) int {
	at := r.start + r.head%r.size
	r.head += record(memory[at:]).room()
	return at
}
