package strategies

import (
	"math/bits"
	"sync"
)

// priority serves the most important class that waits, and within a class the
// oldest: the run queue of Ingo Molnár's O(1) scheduler of Linux 2.6, which
// keeps a bit for each class that is not empty, so that the first and the last
// class are found in one instruction.
//
// When it is full, the task that would be served last is displaced: the newest of
// the least important class. If that is the pushed one, because nothing that
// waits is less important, it is turned away. So the queue always holds those
// that would be served first, and the requests of a class that is not served do
// not displace each other in vain.
//
// Strict priority starves: while more important requests keep all workers busy,
// no other is served. That is what the classes are for. A client that waits in
// vain gives up, or has a deadline, and leaves the queue then.
type priority struct {
	mu struct {
		sync.Mutex
		queues [classes]list
		some   uint8 // a bit for each queue that is not empty
	}
	room
}

var _ Remover = (*priority)(nil)

func newPriority(c Config) Discipline { return &priority{room: roomOf(c)} }

// class returns the class of t.
func class(t *Task) uint8 { return uint8(t.Priority.Class()) }

// Push adds t. If the queue is full, a less important task is displaced, or t is
// turned away if there is none.
func (q *priority) Push(t *Task, _ int64) Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := class(t)
	var v Verdict
	if q.fullLocked() {
		least := uint8(bits.Len8(q.mu.some)) - 1
		if c >= least {
			return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
		}
		v.Displaced = q.mu.queues[least].back
		q.takeLocked(v.Displaced)
	}
	q.mu.queues[c].pushBack(t)
	q.mu.some |= 1 << c
	q.waiting.Add(1)
	return v
}

// Pop takes the oldest task of the most important class.
func (q *priority) Pop(int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.some == 0 {
		return nil, Empty, ReasonNone
	}
	t := q.mu.queues[bits.TrailingZeros8(q.mu.some)].front
	q.takeLocked(t)
	return t, Run, ReasonNone
}

// Remove takes t out of the queue, in constant time.
func (q *priority) Remove(t *Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.queues[class(t)].holds(t) {
		return false
	}
	q.takeLocked(t)
	return true
}

// takeLocked takes t, which waits.
func (q *priority) takeLocked(t *Task) {
	c := class(t)
	q.mu.queues[c].remove(t)
	if q.mu.queues[c].front == nil {
		q.mu.some &^= 1 << c
	}
	q.waiting.Add(-1)
}
