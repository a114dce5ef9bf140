package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// pool is a set of workers and the queue that feeds them.
type pool struct {
	d       *Dispatcher
	places  *places        // in place of workers, nil if there are workers
	done    sync.WaitGroup // the workers' goroutines
	stopped atomic.Bool
	closing atomic.Bool // no pause keeps what waits any more

	// workers is how many there may be, 0 in a pause. It changes under lines.mu. running
	// is how many there are: fewer as long as they were not needed, or more for a while
	// after Resize.
	workers, running atomic.Int64
	hiring           sync.Mutex // held while one more is started, and when the pool is stopped
	// learning is what the number of workers, or places, is learned by, nil if it is given.
	// It changes under lines.mu.
	learning atomic.Pointer[learning]
	stuck    stuck

	active atomic.Pointer[queue]
	move   move
	lines  lines

	// writing counts the turns of writes, of which maxWriting run at once: see the
	// package comment.
	writing    atomic.Int64
	maxWriting atomic.Int64 // changes under lines.mu
	unwoken    atomic.Bool  // nobody was woken for something that waits, as all who may write seemed to
	wrote      atomic.Int64 // when the last one began, on the dispatcher's clock
	watching   atomic.Bool  // a timer runs: see watch
	// reads counts the tasks that are no writes and wait in the discipline or ahead
	// of it. It may count one for a moment that does not wait any more or not yet. Who
	// lends places needs none of that.
	reads atomic.Int64
	// turns counts those that could have taken from the queue or a continuation.
	turns atomic.Uint64

	_    [64]byte // idle.n is read by every Submit
	idle idleStack
	_    [64]byte

	// gathering counts the workers that have been handed a write and will look for
	// others: see the package comment.
	gathering atomic.Int64
	// ungrouped is how many more writes may be run in the place of a worker, since of
	// late none has come together with others: see the package comment.
	ungrouped atomic.Int32

	// service is the time that a worker spends on a task, in nanoseconds: an
	// exponentially weighted mean over some of the turns.
	service atomic.Int64
}

const (
	// timedTurns is how many turns go by between two that are timed.
	timedTurns = 16
	// ungroupedFor is how many writes that need not wait go by between two for which a
	// worker gathers.
	ungroupedFor = 64
)

func newPool(d *Dispatcher, workers int) *pool {
	p := &pool{d: d}
	if d.opts.Grant != nil {
		p.places = new(places)
		p.places.limit.Store(int64(workers))
		p.places.free.Store(int64(workers))
		return p
	}
	p.allow(workers)
	return p
}

// width returns how many tasks may run at once.
func (p *pool) width() int {
	if p.places != nil {
		return int(p.places.limit.Load())
	}
	return int(p.workers.Load())
}

// busy returns how many workers are at work, or places in use.
func (p *pool) busy() int {
	if p.places != nil {
		p.lines.mu.Lock() // or Resize changes both meanwhile
		defer p.lines.mu.Unlock()
	}
	return p.inUse()
}

// inUse is busy without a lock. While the number changes it may be off by as much.
func (p *pool) inUse() int {
	if p.places != nil {
		return p.width() - int(p.places.free.Load())
	}
	return max(0, int(p.running.Load()-p.idle.n.Load()))
}

// start starts the workers, but for those of a number that is learned: they are started
// when they are needed.
func (p *pool) start() {
	if p.places != nil || p.learning.Load() != nil {
		return
	}
	for p.hire() {
	}
}

// stop ends the workers once they find nothing that can be run. Writes that cannot
// be run then are shed.
func (p *pool) stop() {
	p.closing.Store(true)
	if l := p.learning.Load(); l != nil && p.places == nil {
		p.resize(func() int { return p.enforced(l) })
	}
	p.hiring.Lock()
	p.stopped.Store(true)
	p.hiring.Unlock()
	for w := p.idle.take(); w != nil; w = p.idle.take() {
		w.wake <- nil
	}
	p.done.Wait()
	p.shedWaiting(strategies.ReasonDraining)
	p.lines.mu.Lock()
	if p.stuck.timer != nil {
		p.stuck.timer.Stop()
	}
	p.lines.mu.Unlock()
}

// submit takes a new task: see Dispatcher.Submit.
func (p *pool) submit(t *Task) (waits bool) {
	now := p.d.Now()
	t.Submitted = now
	// What waits goes first: it may have come while the worker was parking, which
	// finds it in a moment.
	gathers := t.Write && p.d.opts.MaxBatch > 1
	if q := p.active.Load(); !q.spec.Inline && !p.d.refusing.Load() && p.idle.n.Load() > 0 && p.mayBegin(t) &&
		(!gathers || p.gathering.Load() == 0) && (!t.Write || p.beginWriting()) {
		w := p.idle.take()
		if w == nil && t.Write {
			p.endWriting()
		}
		if w != nil {
			q.accept(t)
			switch {
			case t.InPlace && w.asleep.Load() && (!gathers || p.ungrouped.Load() > 0):
				if gathers {
					p.ungrouped.Add(-1)
				}
				p.turn(w, t, inPlace, now)
				p.putBack(w)
				return false
			case gathers: // others may be about to submit a write
				p.gathering.Add(1)
			}
			// If the worker has found another task in this instant, it puts t
			// ahead of the queue.
			waits = t.Deadline != 0
			w.wake <- t
			return waits
		}
	}

	return p.submitWaiting(t, now)
}

// submitWaiting offers t to the discipline. It reports whether t may have to wait.
func (p *pool) submitWaiting(t *Task, now int64) (waits bool) {
	t.Submitted = now
	gathers := t.Write && p.d.opts.MaxBatch > 1
	q := p.enter()
	q.accept(t)
	switch {
	case p.d.refusing.Load():
		q.leave()
		p.d.shed(t, strategies.ReasonDraining)
		return false
	case p.heldUp(t, q):
		q.leave()
		p.d.shed(t, strategies.ReasonFull)
		return false
	}
	if p.places != nil && p.places.looks.Load() != idleLooks {
		p.places.looks.Store(idleLooks)
	}
	v := q.push(t, now) // if it is queued, t belongs to others from here on
	for v.outcome == strategies.TurnedAway && v.reason == strategies.ReasonFull && !t.Write && p.giveWay(q, now) {
		v = q.push(t, now)
	}
	q.leave()
	// Whatever the verdict: a worker may have parked that was told of this push.
	if !gathers || p.gathering.Load() == 0 {
		p.wakeIfRunnable()
	}
	if v.displaced != nil && !p.spare(q, v.displaced, v.displacement) {
		p.d.shed(v.displaced, v.displacement)
	}
	p.makeRoom(q, now)
	switch v.outcome {
	case strategies.Queued:
		p.watchStuck()
		return true
	case strategies.CallerRuns:
		return p.runInline(q, t, now)
	default:
		if p.spare(q, t, v.reason) {
			return true
		}
		p.d.shed(t, v.reason)
		return false
	}
}

// spare keeps a task that the discipline has given up although it should only observe,
// unless there is no room. It reports whether the task is not to be shed.
func (p *pool) spare(q *queue, t *Task, reason strategies.Reason) bool {
	if !p.d.observe.Load() || q.full(p.lines.waiting()) {
		return false
	}
	t.WouldShed = reason
	q.tellWouldShed(t)
	p.setAside(t, &p.lines.requeued)
	return true
}

// runInline runs t on the goroutine of its submitter, unless it is a write and
// none can be run: then it waits for a worker.
func (p *pool) runInline(q *queue, t *Task, now int64) (waits bool) {
	switch {
	case p.expired(t, now):
		p.d.shed(t, strategies.ReasonExpired)
	case !t.Write || !p.d.opts.Blocked(true):
		t.Started = now
		t.begins(t.timed() && p.calm())
		q.events.Started(0)
		p.d.runInline(t)
	case q.full(p.lines.waiting()):
		p.d.shed(t, strategies.ReasonFull)
	default:
		waits = p.setAside(t, &p.lines.held)
		p.makeRoom(q, now) // others may have come meanwhile
	}
	return waits
}

// wakeIfRunnable tells a parked worker, if there is one, that there is something
// to run.
func (p *pool) wakeIfRunnable() {
	if p.places != nil {
		if p.places.free.Load() > 0 || p.places.gathering() {
			p.grant(p.d.Now())
		}
		return
	}
	switch {
	case p.idle.n.Load() > 0:
		switch {
		case p.runnable():
			p.wakeOne()
		case p.waiting() > 0:
			// Whoever seems to be at a write may have looked before it came, and find none.
			if !p.unwoken.Load() {
				p.unwoken.Store(true)
			}
			if p.runnable() {
				p.wakeOne()
			}
		}
	case p.running.Load() < p.workers.Load():
		if p.runnable() || p.reads.Load() > 0 { // which somebody has to watch
			p.hire()
		}
	}
}

// wakeOne tells a parked worker, if there is one, to look for a task.
func (p *pool) wakeOne() {
	if w := p.idle.take(); w != nil {
		w.wake <- nil
	}
}

// putBack lets w be idle again, in whose place a submitter has run a task, unless
// there is something for w to do.
func (p *pool) putBack(w *worker) {
	if !p.runnable() && !p.tooMany() {
		p.idle.push(w)
		// Look again, now that submitters can see w, as it would itself: see the
		// package comment.
		if !p.runnable() && !p.tooMany() && !p.stopped.Load() || !p.idle.remove(w) {
			return
		}
	}
	w.wake <- nil
}

// accept marks t as submitted to q.
func (q *queue) accept(t *Task) {
	t.Strategy, t.queue = q.spec.Name, q
	q.events.Submitted()
}

// await counts t as waiting, before it does, and unawait when it does no more.
func (p *pool) await(t *Task) {
	if !t.Write && p.places == nil {
		p.reads.Add(1)
	}
}

func (p *pool) unawait(t *Task) {
	if !t.Write && p.places == nil {
		p.reads.Add(-1)
	}
}

// resume takes a continuation: see Dispatcher.Continue.
func (p *pool) resume(t *Task) {
	t.outcome = nil // which was that of its turn before
	if p.active.Load().spec.Inline && !p.d.refusing.Load() {
		p.d.runInline(t)
		return
	}
	p.lines.mu.Lock()
	refused := p.d.refusing.Load() // under the lock that shedWaiting takes as well
	if !refused {
		p.lines.continuations.push(t)
	}
	p.lines.mu.Unlock()
	if refused {
		p.shedContinuation(t, strategies.ReasonDraining)
		return
	}
	p.wakeIfRunnable()
	p.watchStuck()
}

// setAside puts t, which a submitter or a worker has in its hands, into the line,
// unless it has to be shed. It reports whether t waits.
//
// It decides under the lock that shedWaiting and Cancel take as well. So what
// they did not find there, because it came later, is shed here.
func (p *pool) setAside(t *Task, to *line) bool {
	reason := strategies.ReasonNone
	p.lines.mu.Lock()
	switch {
	case p.d.refusing.Load():
		reason = strategies.ReasonDraining
	case p.expired(t, p.d.Now()):
		reason = strategies.ReasonExpired
	default:
		p.setAsideLocked(t, to)
	}
	p.lines.mu.Unlock()
	if reason != strategies.ReasonNone {
		p.d.shed(t, reason)
		return false
	}
	p.wakeIfRunnable() // it may have become so
	p.watchStuck()
	return true
}

func (p *pool) setAsideLocked(t *Task, to *line) {
	if to == &p.lines.requeued {
		p.await(t)
	}
	to.push(t)
}

// shedContinuation sheds a continuation. Events do not hear of it: its task was
// counted when it started.
func (p *pool) shedContinuation(t *Task, reason strategies.Reason) {
	t.Shed = reason
	p.d.completed(t)
}

// waiting returns how many tasks wait for their first turn, but for those that a
// switch has in its hands.
func (p *pool) waiting() int { return p.lines.waiting() + p.active.Load().discipline.Len() }

// shedWaiting gives up everything that waits. The dispatcher is refusing, or
// nothing is submitted any more, so nothing is added behind its back.
func (p *pool) shedWaiting(reason strategies.Reason) {
	var left []*Task
	p.d.mu.Lock() // no switch is under way
	q := p.active.Load()
	q.awaitEntering()
	for _, m := range p.empty(q) {
		if p.move.take(m.task) {
			left = append(left, m.task)
		}
	}
	p.d.mu.Unlock()
	p.lines.mu.Lock()
	for _, l := range []*line{&p.lines.held, &p.lines.requeued} {
		for t := l.pop(); t != nil; t = l.pop() {
			if l == &p.lines.requeued {
				p.unawait(t)
			}
			left = append(left, t)
		}
	}
	p.lines.mu.Unlock()
	for _, t := range left {
		p.d.shed(t, reason)
	}
	for t := p.lines.continuations.pop(); t != nil; t = p.lines.continuations.pop() {
		p.shedContinuation(t, reason)
	}
	if p.places != nil {
		p.grant(p.d.Now()) // what was gathered is free again
	}
}
