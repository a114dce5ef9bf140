package dispatch

import (
	"slices"
	"sync"
	"sync/atomic"

	"spillway/strategies"
)

// ahead is the short list of tasks that go before those in the queues, first-in
// first-out: continuations, and tasks that a worker had to put back.
type ahead struct {
	n atomic.Int64 // how many there are; changes under mu

	// mu is also held by a worker that collects writes, from the moment it pops
	// a task until it has put it back here or kept it, so that Cancel finds the
	// task in one place or the other.
	mu    sync.Mutex
	tasks []aheadTask
}

type aheadTask struct {
	task         *strategies.Task
	continuation bool
}

func (a *ahead) pushLocked(t *strategies.Task, continuation bool) {
	a.tasks = append(a.tasks, aheadTask{t, continuation})
	a.n.Add(1)
}

// pop returns the oldest task, or nil.
func (a *ahead) pop() (t *strategies.Task, continuation bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tasks) == 0 {
		return nil, false
	}
	first := a.tasks[0]
	a.deleteLocked(0)
	return first.task, first.continuation
}

// remove takes t out, unless it is a continuation, and reports whether it did.
func (a *ahead) remove(t *strategies.Task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.tasks, aheadTask{task: t})
	if i < 0 {
		return false
	}
	a.deleteLocked(i)
	return true
}

func (a *ahead) deleteLocked(i int) {
	a.tasks = slices.Delete(a.tasks, i, i+1)
	a.n.Add(-1)
}
