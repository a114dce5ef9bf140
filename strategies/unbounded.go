package strategies

import (
	"sync"
	"sync/atomic"
)

// unbounded serves tasks in the order of their arrival and never turns one
// away: the linked queue of Maged M. Michael and Michael L. Scott, "Simple,
// Fast, and Practical Non-Blocking and Blocking Concurrent Queue Algorithms",
// PODC 1996, without locks.
//
// head points to an empty node, the dummy; the tasks that wait are in the nodes
// behind it. tail points to the last node or, for the moment between the two
// steps of a push, to the one before it.
//
// The paper counts pointers' versions so that a node that was freed and reused
// is not mistaken for its former self (ABA). Here nodes are never reused: the
// garbage collector frees one when nobody can compare with it any more. Tasks
// are reused, but no comparison of a task with its former self can happen: see
// node.task.
type unbounded struct {
	_    [64]byte
	head atomic.Pointer[node]
	_    [56]byte
	tail atomic.Pointer[node]
	_    [56]byte
	// waiting is incremented before the task becomes visible, so that Len never
	// misses one that Pop could take.
	waiting atomic.Int64
	_       [56]byte
	// holes counts the nodes that Remove has emptied since the last sweep, those
	// that Pop has passed meanwhile included.
	holes    atomic.Int64
	sweeping sync.Mutex
}

// node is one element of the queue. It allocates, as an unbounded queue must.
type node struct {
	// next is nil for the last node. Once set it leads on for ever: sweep moves it
	// past empty nodes, and whoever still stands on one of those comes along too.
	next atomic.Pointer[node]
	// task is the one that waits here. Whoever swaps it for nil, a Pop or a
	// Remove, owns the task from then on. It is set once, so no other task, and
	// not the same task submitted again, ever appears here.
	task atomic.Pointer[Task]
	// self is the node itself, for the task to point to.
	self any
}

var _ Remover = (*unbounded)(nil)

func newUnbounded(Config) Discipline {
	q := new(unbounded)
	dummy := new(node)
	q.head.Store(dummy)
	q.tail.Store(dummy)
	return q
}

// Push adds t.
func (q *unbounded) Push(t *Task, _ int64) Verdict {
	n := new(node)
	n.self = n
	t.State.Shared.Store(&n.self)
	n.task.Store(t)
	q.waiting.Add(1)
	for {
		tail := q.tail.Load()
		if next := tail.next.Load(); next != nil {
			// Another push has linked its node but not moved the tail yet. Do it
			// in its place, so that nobody waits for it.
			q.tail.CompareAndSwap(tail, next)
			continue
		}
		// Linking the node hands the task over: from here on t may be taken, run
		// and reused at any moment.
		if tail.next.CompareAndSwap(nil, n) {
			q.tail.CompareAndSwap(tail, n) // if it fails, somebody has helped
			return Verdict{Outcome: Queued}
		}
	}
}

// Pop takes the oldest task.
//
// Unlike the paper's, it takes the task before it moves the head, and passes
// nodes that others have emptied. So a single step decides who gets a task, a
// Pop or a Remove, and a task never is in the hands of a Pop that may yet lose
// it while younger ones are popped.
func (q *unbounded) Pop(int64) (*Task, PopResult, Reason) {
	for {
		head := q.head.Load()
		next := head.next.Load()
		if next == nil {
			return nil, Empty, ReasonNone
		}
		t := next.task.Load()
		taken := t != nil && next.task.CompareAndSwap(t, nil)
		// Either way next is empty now. It becomes the dummy, unless somebody has
		// been faster. The tail should not fall behind: help the push that is
		// between its two steps.
		if tail := q.tail.Load(); tail == head {
			q.tail.CompareAndSwap(tail, next)
		}
		q.head.CompareAndSwap(head, next)
		if taken {
			// A node leads to all that came after it. The task must not keep it.
			t.State.Shared.Store(nil)
			q.waiting.Add(-1)
			return t, Run, ReasonNone
		}
	}
}

// Remove takes t out of the queue. Its empty node stays until Pop passes it or a
// sweep unlinks it.
func (q *unbounded) Remove(t *Task) bool {
	place := t.State.Shared.Load()
	if place == nil {
		return false
	}
	n, ok := (*place).(*node)
	if !ok || !n.task.CompareAndSwap(t, nil) {
		return false
	}
	t.State.Shared.Store(nil)
	if left := q.waiting.Add(-1); q.holes.Add(1) > max(2*left, fewHoles) {
		q.sweep()
	}
	return true
}

// fewHoles are not worth a sweep.
const fewHoles = 64

// sweep unlinks the empty nodes, but for the last, which pushes link to. Without
// it, requests that come and give up while the oldest waits on would pile up
// nodes behind it. It runs after at least as many removals as tasks wait, so a
// removal costs constant time on average.
//
// Pushes and pops go on meanwhile. An empty node stays empty, and leads to all
// that came after it, so it does not matter whether somebody passes it.
func (q *unbounded) sweep() {
	if !q.sweeping.TryLock() {
		return
	}
	defer q.sweeping.Unlock()
	q.holes.Store(0)
	for n := q.head.Load(); n != nil; n = n.next.Load() {
		first := n.next.Load()
		next := first
		for next != nil && next.task.Load() == nil {
			after := next.next.Load()
			if after == nil {
				break
			}
			next = after
		}
		if next != first {
			n.next.Store(next) // it was set, so only a sweep changes it
		}
	}
}

// Len returns how many tasks wait.
func (q *unbounded) Len() int { return int(q.waiting.Load()) }

// Cap returns Unbounded.
func (q *unbounded) Cap() int { return Unbounded }
