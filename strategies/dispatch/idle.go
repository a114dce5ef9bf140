package dispatch

import (
	"sync"
	"sync/atomic"
)

// worker is what one of the goroutines of workers works with.
type worker struct {
	// wake carries what a worker off the idle stack is woken with: a task to
	// run, or nil to look for one. It has room for one, and a worker is on the
	// stack at most once, so whoever took it off never blocks.
	wake chan *Task

	// asleep says that the worker has nothing in its hands and does nothing before
	// it is woken, so that while it is off the stack its place can be lent.
	asleep atomic.Bool

	// The rest belongs to the worker's goroutine, or to the submitter that has
	// taken the worker off the stack and runs a task in its place.

	batch   []*Task  // the turn's tasks
	bytes   int64    // their sizes, together
	given   rejects  // what was popped and shall not run
	lessons []lesson // what learners will be told of the turn
	turns   uint     // counts turns, to time some of them
	outcome Outcome  // how the turn has ended
	found   uint32   // limit.found when that was seen last

	// Neighbours on the idle stack, and whether w is on it; guarded by the
	// stack's mutex.
	above, below *worker
	idle         bool
}

// lesson is what a learner, or a meter if run is not 0, is told after a turn, but for the time.
type lesson struct {
	queue  *queue
	waited int64
	run    uint64
}

// idleStack holds the workers that have nothing to do, the most recently idle
// on top.
type idleStack struct {
	n atomic.Int64 // how many there are; changes under mu

	mu  sync.Mutex
	top *worker
}

// push adds w.
func (s *idleStack) push(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.idle = true
	w.below = s.top
	if s.top != nil {
		s.top.above = w
	}
	s.top = w
	s.n.Add(1)
	s.assertLocked()
}

// assertLocked checks that n is the length of the stack, and that its links agree.
func (s *idleStack) assertLocked() {
	if asserting {
		n, above := int64(0), (*worker)(nil)
		for w := s.top; w != nil; n, above, w = n+1, w, w.below {
			assert(w.idle && w.above == above, "a worker on the stack is not idle, or not linked")
		}
		assert(n == s.n.Load(), "%d workers on the stack, of %d", n, s.n.Load())
	}
}

// take returns the worker on top, or nil. The caller has to wake it.
func (s *idleStack) take() *worker {
	if s.n.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.top
	if w != nil {
		s.unlinkLocked(w)
	}
	return w
}

// remove takes w off the stack, and reports whether it was there: otherwise
// somebody has taken it and is about to wake it.
func (s *idleStack) remove(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.idle {
		return false
	}
	s.unlinkLocked(w)
	return true
}

func (s *idleStack) unlinkLocked(w *worker) {
	if w.above == nil {
		s.top = w.below
	} else {
		w.above.below = w.below
	}
	if w.below != nil {
		w.below.above = w.above
	}
	w.above, w.below, w.idle = nil, nil, false
	s.n.Add(-1)
	s.assertLocked()
}
