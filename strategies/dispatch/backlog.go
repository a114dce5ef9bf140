package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// backlog is what waits for workers, or for places, and the number of those. It starts no goroutine and
// knows nothing of what serves it, but for the methods of server.
type backlog struct {
	*engine
	served server
	active atomic.Pointer[queue]
	move   move
	limit  limit

	// mu is held from a pop of the discipline to where the task is put into a line, so that Cancel finds
	// it in one place or the other.
	mu sync.Mutex
	// ahead are tasks that the discipline has given out and that nobody has begun. They go before those of
	// the discipline. lines are all the lines of such tasks, in the order in which they are served.
	ahead line
	lines []*line
	// elsewhere is how many tasks they hold.
	elsewhere atomic.Int64

	// service is the time that a task takes, in nanoseconds: an exponentially weighted mean over some of them.
	service atomic.Int64
}

// server is what serves a backlog, in the sense of queueing theory: workers, or places.
type server interface {
	// wake has what waits begun, if some of it can be. No lock is held.
	wake()
	// counted is told that t is about to wait for its first turn, 1, or waits for it no more, -1. The first
	// comes before t can be popped.
	counted(t *Task, by int64)
	// admits reports whether t may be pushed into q, beside what waits in the lines.
	admits(t *Task, q *queue) bool
	// makeRoom sheds what waits in the lines beyond the capacity of q. No lock is held.
	makeRoom(q *queue, now int64)
	// runInline runs t, which has waited for nobody, beside what the number allows: the strategy says so. It
	// reports whether t may have to wait all the same.
	runInline(q *queue, t *Task, now int64) (waits bool)
	// toDo returns how many tasks wait for a turn, the first or a further one.
	toDo() int
	// ready reports whether something waits that could begin, if there were more to serve it.
	ready() bool
	// shedAll sheds all that waits. No lock is held.
	shedAll(strategies.Reason)
	// inUse returns how many workers, or places, are in use. While their number changes it may be off by as
	// much, unless mu is held.
	inUse() int
	// running is inUse without what is kept for a task that has not begun. mu is held.
	running() int
	// allow is told that the number changes, under mu, and allowed once it has, with no lock held.
	allow(from, to int)
	allowed(from, to int)
}

// init makes b one of the backlogs of e, to be served by s, width of which there are. Its lines are ahead
// and, before that, those given.
func (b *backlog) init(e *engine, s server, width int, lines ...*line) {
	b.engine, b.served = e, s
	b.lines = append(lines, &b.ahead)
	for _, l := range b.lines {
		l.sum = &b.elsewhere
	}
	b.limit.backlog = b
	b.limit.width.Store(int64(width))
	s.allow(0, width)
	e.backlogs = append(e.backlogs, b)
}

// busy returns how many workers, or places, are in use.
func (b *backlog) busy() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.served.inUse()
}

// waiting returns how many tasks wait for their first turn, but for those that a switch has in its hands.
func (b *backlog) waiting() int { return int(b.elsewhere.Load()) + b.active.Load().len() }

// settle does what is left to do once t was pushed into q with that verdict, and somebody was woken for it if
// there is anybody. It reports whether t may have to wait.
func (b *backlog) settle(q *queue, t *Task, v *verdict, now int64) (waits bool) {
	if v.displaced != nil && !b.spare(q, v.displaced, v.displacement) {
		b.shed(v.displaced, v.displacement)
	}
	b.served.makeRoom(q, now)
	switch v.outcome {
	case strategies.Queued:
		b.limit.waits()
		return true
	case strategies.CallerRuns:
		return b.served.runInline(q, t, now)
	default:
		if b.spare(q, t, v.reason) {
			return true
		}
		b.shed(t, v.reason)
		return false
	}
}

// spare keeps a task that the discipline has given up although it should only observe,
// unless there is no room. It reports whether the task is not to be shed.
func (b *backlog) spare(q *queue, t *Task, reason strategies.Reason) bool {
	if !b.observe.Load() || q.full(int(b.elsewhere.Load())) {
		return false
	}
	t.WouldShed = reason
	q.tellWouldShed(t)
	b.setAside(t, &b.ahead)
	return true
}

// setAside puts t, which a submitter or a worker has in its hands, into one of the lines, unless it has to be
// shed. It reports whether t waits. No lock is held.
//
// It decides under the lock that shedWaiting and remove take as well. So what they did not find there, because
// it came later, is shed here.
func (b *backlog) setAside(t *Task, to *line) bool {
	reason := strategies.ReasonNone
	b.mu.Lock()
	switch {
	case b.refusing.Load():
		reason = strategies.ReasonDraining
	case t.expired(b.Now()):
		reason = strategies.ReasonExpired
	default:
		b.setAsideLocked(t, to)
	}
	b.mu.Unlock()
	if reason != strategies.ReasonNone {
		b.shed(t, reason)
		return false
	}
	b.served.wake() // it may have become possible to begin something
	b.limit.waits()
	return true
}

func (b *backlog) setAsideLocked(t *Task, to *line) {
	b.served.counted(t, 1)
	to.push(t)
}

// takeLocked takes t out of the line, and reports whether it was there.
func (b *backlog) takeLocked(t *Task, from *line) bool {
	taken := from.remove(t)
	if taken {
		b.served.counted(t, -1)
	}
	return taken
}

// rejects are tasks that were taken from where they waited and shall not run. Whoever has taken them sheds them
// once it holds no lock.
type rejects []reject

type reject struct {
	task   *Task
	reason strategies.Reason
}

func (r *rejects) add(t *Task, reason strategies.Reason) { *r = append(*r, reject{t, reason}) }

// shedRejects sheds them, and forgets them. No lock is held.
func (b *backlog) shedRejects(r *rejects) {
	for _, g := range *r {
		b.shed(g.task, g.reason)
	}
	clear(*r)
	*r = (*r)[:0]
}

// pop returns the next task of the discipline that shall run, or nil.
func (b *backlog) pop(now int64, out *rejects) *Task {
	q := b.active.Load()
	for {
		t, what, reason := q.pop(now)
		switch {
		case t == nil:
			return nil
		case what == strategies.Shed && !b.observe.Load():
			out.add(t, reason)
		case t.expired(now):
			out.add(t, strategies.ReasonExpired)
		case what == strategies.Shed:
			t.WouldShed = reason
			q.tellWouldShed(t)
			return t
		default:
			return t
		}
	}
}

// beganAtOnce tells that t begins to run without having waited.
func (b *backlog) beganAtOnce(q *queue, t *Task, now int64) {
	t.Started = now
	q.begins(t, now)
	t.begins(t.timed() && b.limit.calm())
	q.events.Started(0)
}

// measure notes how long a task took.
func (b *backlog) measure(service int64) {
	if mean := b.service.Load(); mean != 0 {
		service = mean + (service-mean)/8
	}
	b.service.Store(service)
}

// remove takes t, which was submitted to b, from wherever it waits. It asks no discipline but the one that t is
// in, if it is in any: its lock guards what disciplines note in t.
func (b *backlog) remove(t *Task) bool {
	if t.Strategy == "" { // it was never submitted
		return false
	}
	b.move.mu.Lock()
	defer b.move.mu.Unlock()
	if b.move.takeLocked(t) || t.queue.remove(t) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if b.takeLocked(t, l) {
			return true
		}
	}
	return false
}

// shedWaiting sheds what waits for its first turn. The dispatcher is refusing, or nothing is submitted any more,
// so nothing is added behind its back.
func (b *backlog) shedWaiting(reason strategies.Reason) {
	var left []*Task
	b.engine.mu.Lock() // no switch is under way
	q := b.active.Load()
	q.awaitEntering()
	for _, m := range b.empty(q) {
		if b.move.take(m.task) {
			left = append(left, m.task)
		}
	}
	b.engine.mu.Unlock()
	b.mu.Lock()
	for _, l := range b.lines {
		for t := l.pop(); t != nil; t = l.pop() {
			b.served.counted(t, -1)
			left = append(left, t)
		}
	}
	b.mu.Unlock()
	for _, t := range left {
		b.shed(t, reason)
	}
}
