package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// backlog is what waits for workers, or for places, and the number of those. It starts no goroutine and knows nothing of
// what serves it, but for the methods of server.
type backlog struct {
	*engine
	served server
	active atomic.Pointer[queue]
	// limits are of the workers, or of each resource whose places these are. They change under mu.
	limits atomic.Pointer[[]*limit]

	// mu is held from where a task leaves one place to where it is in the next, so that Cancel finds it in one of
	// them: the discipline, or a line.
	mu sync.Mutex
	// held and ahead are tasks that the discipline has given out and that nobody has begun. They go before those of the
	// discipline, and held, which are writes that cannot begin, before ahead.
	held, ahead line
	// continuations go on with what they began in an earlier turn.
	continuations line
	// moving are tasks that were taken out of a discipline and not yet offered to another.
	moving line

	// service is the time that a task takes, in nanoseconds: an exponentially weighted mean over some of them.
	service atomic.Int64
}

// server is what serves a backlog, in the sense of queueing theory: workers, or places.
type server interface {
	// wake has what waits begun, if some of it can be, or workers leave that are too many. No lock is held.
	wake()
	// came is wake, after a task was offered to the discipline.
	came(write bool)
	// counted is called when t is about to wait for its first turn, 1, before it can be popped, or waits no more, -1.
	counted(t *Task, by int64)
	// admits reports whether t may be pushed into q, beside what waits in the lines.
	admits(t *Task, q *queue) bool
	// giveWay makes room for a read or a write that finds none, and reports whether there may be some. No lock is held.
	giveWay(write bool, now int64) bool
	// surplus takes a task out of the lines if with those more wait than may, nil if not. No lock is held.
	surplus(now int64) *Task
	// runInline runs t beside what the number allows: the strategy says so. It reports whether t may have to wait.
	runInline(q *queue, t *Task, now int64) (waits bool)
	// ready reports whether something waits that could begin, if there were more to serve it.
	ready() bool
}

// init makes b one of the backlogs of e, to be served by s, within those limits.
func (b *backlog) init(e *engine, s server, limits ...*limit) {
	b.engine, b.served = e, s
	b.held.waits, b.ahead.waits = b, b
	b.limits.Store(&limits)
	e.backlogs = append(e.backlogs, b)
}

// width returns how many tasks may run at once, within all limits.
func (b *backlog) width() (n int) {
	for _, m := range *b.limits.Load() {
		n += m.now()
	}
	return n
}

// watch is called when something has begun to wait.
func (b *backlog) watch() {
	for _, m := range *b.limits.Load() {
		m.waits()
	}
}

// light reports whether the load is: nothing waits, and at most half of the workers, or places, would be in use. What is
// measured then is what the work takes by itself. What runs without a place, as under a strategy without a queue, counts
// too. Where a learned number holds nobody back, it takes one alone.
func (b *backlog) light() bool {
	half := int64(b.width() / 2)
	if b.observe.Load() && (*b.limits.Load())[0].learning.Load() != nil {
		half = 0
	}
	return b.inFlight.Load() <= max(1, half)
}

// elsewhere returns how many tasks wait for their first turn, but not in the discipline, waiting how many do at all, but
// for those that move, and toDo how many wait for any turn.
func (b *backlog) elsewhere() int { return b.held.len() + b.ahead.len() }

func (b *backlog) waiting() int { return b.elsewhere() + b.active.Load().len() }

func (b *backlog) toDo() int { return b.waiting() + b.continuations.len() }

// full reports whether the discipline has no room beside what waits in the lines, and others.
func (b *backlog) full(others int) bool { return b.active.Load().full(b.elsewhere() + others) }

// enqueue offers t to the discipline. It reports whether t may have to wait.
func (b *backlog) enqueue(t *Task, now int64) (waits bool) {
	t.Submitted = now
	q := b.active.Load()
	q.accept(t)
	switch {
	case b.refusing.Load() || b.leaving.Load():
		b.shed(t, strategies.ReasonDraining)
		return false
	case !b.served.admits(t, q):
		b.shed(t, strategies.ReasonFull)
		return false
	}
	write := t.Write
	v, displaced := q.push(t, now) // if it is queued, t belongs to others from here on
	for v.Outcome == strategies.TurnedAway && v.Reason == strategies.ReasonFull && displaced == nil {
		former := q
		if q = b.active.Load(); q != former { // a switch has left that, and q may have room
			b.moveFrom(former)
			t.queue = q
		} else if !b.served.giveWay(write, now) {
			break
		}
		v, displaced = q.push(t, now)
	}
	if b.active.Load() != q || b.refusing.Load() {
		b.moveFrom(q) // a switch, or a drain, may have emptied q before t came
	}
	b.served.came(write) // whatever the verdict: a Pop during this Push may have answered Contended, or places be free since
	if displaced != nil {
		b.refuse(displaced, v.Displacement())
	}
	b.makeRoom(now)
	switch v.Outcome {
	case strategies.Queued:
		b.watch()
		return true
	case strategies.CallerRuns:
		return b.served.runInline(q, t, now)
	default:
		return b.refuse(t, v.Reason)
	}
}

// makeRoom sheds what waits in the lines beyond the capacity. What is pushed meanwhile is looked after by who pushes it.
func (b *backlog) makeRoom(now int64) {
	for t := b.served.surplus(now); t != nil; t = b.served.surplus(now) {
		b.shed(t, strategies.ReasonFull)
	}
}

// refuse sheds t, which the discipline has given up, or keeps it if the dispatcher only observes and there is room: then t
// waits.
func (b *backlog) refuse(t *Task, reason strategies.Reason) (waits bool) {
	if !b.observe.Load() || b.full(0) {
		b.shed(t, reason)
		return false
	}
	t.WouldShed = reason
	t.queue.wouldShed(t)
	return b.setAside(t, &b.ahead)
}

// setAside puts t, which a submitter or a worker has in its hands, into one of the lines, unless it has to be shed. It
// reports whether t waits. No lock is held.
func (b *backlog) setAside(t *Task, to *line) (waits bool) {
	var out rejects
	b.mu.Lock()
	if waits = b.mayWaitLocked(t, b.Now(), &out); waits {
		to.push(t)
	}
	b.mu.Unlock()
	b.shedRejects(&out)
	if waits {
		b.served.wake() // it may have become possible to begin something
		b.watch()
	}
	return waits
}

// mayWaitLocked reports whether t, which comes from elsewhere, may wait, or adds it to out. A drain and a deadline take the
// lock as well: what they did not find, because it came later, is found here.
func (b *backlog) mayWaitLocked(t *Task, now int64, out *rejects) bool {
	switch {
	case b.refusing.Load():
		out.add(t, strategies.ReasonDraining)
	case t.expired(now) && !t.continued:
		out.add(t, strategies.ReasonExpired)
	default:
		return true
	}
	return false
}

// rejects are tasks that were taken from where they waited and shall not run. Whoever has taken them sheds them, for the
// reason in Task.Shed, once it holds no lock.
type rejects []*Task

func (r *rejects) add(t *Task, reason strategies.Reason) {
	t.Shed = reason
	*r = append(*r, t)
}

// shedRejects sheds them, and forgets them. No lock is held.
func (b *backlog) shedRejects(r *rejects) {
	for _, t := range *r {
		b.shed(t, t.Shed)
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
			q.wouldShed(t)
			return t
		default:
			return t
		}
	}
}

// beganAtOnce notes that t begins to run without having waited.
func (b *backlog) beganAtOnce(q *queue, t *Task, now int64) {
	t.Started = now
	q.begins(t, now)
	t.begins(b.timed(t) && b.light())
	q.events.Started(0)
}

// measure notes how long a task took.
func (b *backlog) measure(service int64) {
	if mean := b.service.Load(); mean != 0 {
		service = mean + (service-mean)/8
	}
	b.service.Store(service)
}

// Cancel is that of Dispatcher. Only who has asked for the places of t may call it.
//
// It asks no discipline but the one that t is in: the lock of that guards what disciplines note in t.
func (b *backlog) Cancel(t *Task, reason strategies.Reason) (waited bool) {
	b.mu.Lock()
	switch {
	case t.queue == nil || t.line == &b.continuations: // it was never submitted, or has begun
	case t.line != nil:
		waited = t.line.remove(t) != nil
	default:
		waited = t.queue.remove(t)
	}
	b.mu.Unlock()
	if waited {
		b.served.wake() // t may have kept places from others
		b.shed(t, reason)
	}
	return waited
}

// shedAll sheds all that waits. The dispatcher is refusing, or nothing is submitted any more. No lock is held.
func (b *backlog) shedAll(reason strategies.Reason) {
	var out rejects
	b.engine.mu.Lock() // no switch is under way
	b.empty(b.active.Load())
	b.mu.Lock()
	for _, l := range []*line{&b.moving, &b.held, &b.ahead, &b.continuations} {
		for t := l.pop(); t != nil; t = l.pop() {
			out.add(t, reason)
		}
	}
	b.mu.Unlock()
	b.engine.mu.Unlock()
	b.shedRejects(&out)
	b.served.wake() // who gathered places needs none
}
