package strategies

import (
	"math/rand/v2"
	"sync"
)

// sorted holds at most capacity tasks in the order of a key behind a mutex: what the disciplines that go by one have
// in common. When it is full, the last is displaced.
type sorted struct {
	mu struct {
		sync.Mutex
		tree
		pushes uint64
	}
	room
}

func (s *sorted) init(c Config, key func(*Task) int64) {
	s.capacity = max(1, c.Capacity)
	s.mu.seed, s.mu.key = rand.Uint64(), key
}

// numberLocked gives t the number of its push, which comes before anything else.
func (s *sorted) numberLocked(t *Task) {
	s.mu.pushes++
	t.State.Number = s.mu.pushes
}

// pushLocked adds t, which has its number. If the queue is full, the last task is displaced, or t turned away if it is
// that.
func (s *sorted) pushLocked(t *Task) (v Verdict) {
	if s.fullLocked() {
		last := s.mu.last()
		if !s.mu.earlier(t, last) {
			return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
		}
		v.Displaced = s.takeLocked(last)
	}
	s.mu.add(t)
	t.State.Holder = s
	s.waiting.Add(1)
	return v
}

// popFirst takes the first task.
func (s *sorted) popFirst() (*Task, PopResult, Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return popped(s.takeLocked(s.mu.first()))
}

// Remove takes t out of the queue.
func (s *sorted) Remove(t *Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.State.Holder == any(s) && s.takeLocked(t) != nil
}

// takeLocked takes t, which waits or is nil, and returns it.
func (s *sorted) takeLocked(t *Task) *Task {
	if t != nil {
		s.mu.remove(t)
		t.State.Holder = nil
		s.waiting.Add(-1)
	}
	return t
}
