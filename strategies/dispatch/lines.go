package dispatch

import (
	"sync"
	"sync/atomic"
)

// line holds tasks first-in first-out. Adding one, taking the first and taking one
// out of the middle cost constant time. It touches nothing in a task: those of its
// fields that disciplines use are guarded by their locks.
type line struct {
	n atomic.Int64 // how many there are; changes under mu
	// sum counts those of several lines, nil if this one is alone.
	sum *atomic.Int64

	mu          sync.Mutex
	ring        []*Task // of a power of two; nil where one was taken out
	first, next uint64  // positions, of which the low bits are places in ring
	positions   map[*Task]uint64
}

func (l *line) len() int { return int(l.n.Load()) }

func (l *line) push(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeRoomLocked()
	l.putLocked(t, l.next)
	l.next++
}

// pushFront adds t before all others.
func (l *line) pushFront(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeRoomLocked()
	l.first--
	l.putLocked(t, l.first)
}

// pop takes the first task, nil if there is none.
func (l *line) pop() *Task {
	if l.len() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; l.first != l.next; l.first++ {
		if t := l.ring[l.first&l.maskLocked()]; t != nil {
			l.takeLocked(t, l.first)
			return t
		}
	}
	return nil
}

// front returns the first task without taking it, nil if there is none.
func (l *line) front() *Task { return l.find(func(*Task) bool { return true }) }

// find returns the first task that fits, nil if none does.
func (l *line) find(fits func(*Task) bool) *Task {
	if l.len() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := l.first; at != l.next; at++ {
		if t := l.ring[at&l.maskLocked()]; t != nil && fits(t) {
			return t
		}
	}
	return nil
}

// popBack takes the last task, nil if there is none.
func (l *line) popBack() *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; l.first != l.next; l.next-- {
		if t := l.ring[(l.next-1)&l.maskLocked()]; t != nil {
			l.takeLocked(t, l.next-1)
			return t
		}
	}
	return nil
}

// remove takes t out, and reports whether it was there.
func (l *line) remove(t *Task) bool {
	if l.len() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.positions[t]
	if ok {
		l.takeLocked(t, at)
	}
	return ok
}

func (l *line) putLocked(t *Task, at uint64) {
	l.ring[at&l.maskLocked()] = t
	_, twice := l.positions[t]
	assert(!twice, "a task is in a line twice")
	l.positions[t] = at
	l.countLocked(1)
	l.assertLocked()
}

func (l *line) takeLocked(t *Task, at uint64) {
	l.ring[at&l.maskLocked()] = nil
	delete(l.positions, t)
	l.countLocked(-1)
	l.assertLocked()
}

func (l *line) countLocked(by int64) {
	l.n.Add(by)
	if l.sum != nil {
		l.sum.Add(by)
	}
}

func (l *line) assertLocked() {
	if asserting {
		assert(l.len() == len(l.positions) && l.next-l.first <= uint64(len(l.ring)), "%d tasks in a line, %d known, %d places", l.len(), len(l.positions), len(l.ring))
	}
}

// makeRoomLocked closes the holes of a ring that is full, in one of twice the size if
// they are few.
func (l *line) makeRoomLocked() {
	if l.next-l.first != uint64(len(l.ring)) {
		return
	}
	ring := make([]*Task, max(16, len(l.ring)))
	if l.len() > len(ring)/2 {
		ring = make([]*Task, 2*len(ring))
	}
	if l.positions == nil {
		l.positions = make(map[*Task]uint64)
	}
	next := uint64(0)
	for ; l.first != l.next; l.first++ {
		if t := l.ring[l.first&l.maskLocked()]; t != nil {
			ring[next] = t
			l.positions[t] = next
			next++
		}
	}
	l.ring, l.first, l.next = ring, 0, next
}

func (l *line) maskLocked() uint64 { return uint64(len(l.ring)) - 1 }
