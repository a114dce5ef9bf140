package dispatch

import (
	"slices"
	"sync"
	"sync/atomic"
)

// worker is what one of the goroutines of workers works with.
type worker struct {
	// wake carries what a worker off the idle stack is woken with: a task to run, or nil to look for one. It has room for
	// one, and a worker is on the stack at most once, so whoever took it off never blocks.
	wake chan *Task
	// asleep says that the worker has nothing in its hands and does nothing before it is woken, so that while it is off
	// the stack its place can be lent.
	asleep atomic.Bool

	// The rest belongs to the worker's goroutine, or to the submitter that runs a task in the worker's place.

	batch   []*Task  // the turn's tasks
	given   rejects  // what was popped and shall not run
	lessons []lesson // what learners will get of the turn
	turns   uint     // counts turns, to time some of them
	outcome Outcome  // how the turn has ended
	found   uint32   // limit.found when that was seen last
}

// lesson is what a discipline gets of a task after a turn, but for the time.
type lesson struct {
	queue  *queue
	waited int64  // for a learner, negative if the task has not waited
	run    uint64 // for a meter, or 0
}

// idleStack holds the workers that have nothing to do, the most recently idle on top.
type idleStack struct {
	n atomic.Int64 // how many there are; changes under mu

	mu      sync.Mutex
	workers []*worker
}

func (s *idleStack) push(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	assert(!asserting || !slices.Contains(s.workers, w), "a worker is on the stack twice")
	s.workers = append(s.workers, w)
	s.n.Add(1)
}

// take returns the worker on top, or nil. The caller has to wake it.
func (s *idleStack) take() *worker {
	if s.n.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutLocked(len(s.workers) - 1)
}

// remove takes w off the stack, and reports whether it was there: otherwise somebody has taken it and is about to wake it.
func (s *idleStack) remove(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.workers) - 1
	for at >= 0 && s.workers[at] != w { // it is near the top
		at--
	}
	return s.cutLocked(at) != nil
}

// cutLocked takes off the worker at that place, which is below 0 if there is none.
func (s *idleStack) cutLocked(at int) (w *worker) {
	if at >= 0 {
		w = s.workers[at]
		s.workers = slices.Delete(s.workers, at, at+1)
		counts(s.n.Add(-1), "workers on the stack")
	}
	return w
}
