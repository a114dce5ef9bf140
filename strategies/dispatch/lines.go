package dispatch

import (
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// line holds tasks first-in first-out, linked through the tasks. Everything costs constant time and allocates nothing.
// All but len is under backlog.mu.
type line struct {
	n           atomic.Int64
	first, last *Task
	// waits is the backlog whose tasks wait here for their first turn, nil if these have had one.
	waits *backlog
}

func (l *line) len() int { return int(l.n.Load()) }

func (l *line) push(t *Task) { l.insert(l.last, t, nil) }

func (l *line) pushFront(t *Task) { l.insert(nil, t, l.first) }

// pop takes the first task, nil if there is none.
func (l *line) pop() *Task { return l.remove(l.first) }

// popLive takes the first task that has not expired, nil if there is none. It adds those before it to out.
func (l *line) popLive(now int64, out *rejects) *Task {
	for t := l.pop(); t != nil; t = l.pop() {
		if !t.expired(now) {
			return t
		}
		out.add(t, strategies.ReasonExpired)
	}
	return nil
}

func (l *line) insert(before, t, after *Task) {
	assert(t.line == nil, "a task is in a line twice")
	if l.waits != nil {
		l.waits.served.counted(t, 1)
	}
	l.link(before, t)
	l.link(t, after)
	t.line = l
	l.n.Add(1)
}

// remove takes t out, which is in l or nil, and returns it.
func (l *line) remove(t *Task) *Task {
	if t == nil {
		return nil
	}
	l.link(t.before, t.after)
	t.line, t.before, t.after = nil, nil, nil
	counts(l.n.Add(-1), "tasks in a line")
	if l.waits != nil {
		l.waits.served.counted(t, -1)
	}
	return t
}

// link makes two tasks neighbours. Nil is the end of the line.
func (l *line) link(before, after *Task) {
	if before == nil {
		l.first = after
	} else {
		before.after = after
	}
	if after == nil {
		l.last = before
	} else {
		after.before = before
	}
}
