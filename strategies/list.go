package strategies

import "sync"

// list is a doubly linked list that runs through the tasks themselves: adding
// allocates nothing, and a task leaves the middle in constant time, which is
// what lets a request that expires leave at once. The front is the oldest.
type list struct {
	front, back *Task
}

func (l *list) pushBack(t *Task) {
	s := &t.State
	s.Holder, s.Prev, s.Next = l, l.back, nil
	if l.back == nil {
		l.front = t
	} else {
		l.back.State.Next = t
	}
	l.back = t
}

// remove needs t to be in l.
func (l *list) remove(t *Task) {
	s := &t.State
	if s.Prev == nil {
		l.front = s.Next
	} else {
		s.Prev.State.Next = s.Next
	}
	if s.Next == nil {
		l.back = s.Prev
	} else {
		s.Next.State.Prev = s.Prev
	}
	// A pooled task must not keep its former neighbours alive.
	s.Holder, s.Prev, s.Next = nil, nil, nil
}

// holds reports whether t is in l.
func (l *list) holds(t *Task) bool { return t.State.Holder == any(l) }

// bounded is a list of at most capacity tasks behind a mutex: what the simple
// disciplines have in common. They differ in Push and Pop alone.
type bounded struct {
	mu struct {
		sync.Mutex
		list
	}
	room
}

func boundedOf(c Config) bounded { return bounded{room: roomOf(c)} }

// Remove takes t out of the queue, in constant time.
func (b *bounded) Remove(t *Task) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.holds(t) {
		return false
	}
	b.takeLocked(t)
	return true
}

func (b *bounded) addLocked(t *Task) {
	b.mu.pushBack(t)
	b.waiting.Add(1)
}

// takeLocked takes t, which is in the list or nil, and returns it.
func (b *bounded) takeLocked(t *Task) *Task {
	if t != nil {
		b.mu.remove(t)
		b.waiting.Add(-1)
	}
	return t
}

// pushDisplacing adds t. If the list is full, the oldest task leaves it.
func (b *bounded) pushDisplacing(t *Task) Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	var v Verdict
	if b.fullLocked() {
		v.Displaced = b.takeLocked(b.mu.front)
	}
	b.addLocked(t)
	return v
}

// pushUnlessFull adds t, or returns the verdict given if the list is full.
func (b *bounded) pushUnlessFull(t *Task, full Verdict) Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fullLocked() {
		return full
	}
	b.addLocked(t)
	return Verdict{Outcome: Queued}
}

func (b *bounded) popOldest() (*Task, PopResult, Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return popped(b.takeLocked(b.mu.front))
}

func (b *bounded) popNewest() (*Task, PopResult, Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return popped(b.takeLocked(b.mu.back))
}

func popped(t *Task) (*Task, PopResult, Reason) {
	if t == nil {
		return nil, Empty, ReasonNone
	}
	return t, Run, ReasonNone
}
