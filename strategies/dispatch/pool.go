package dispatch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// pool is a set of workers and the queue that feeds them.
type pool struct {
	d       *Dispatcher
	workers int
	places  *places        // in place of workers, nil if there are workers
	done    sync.WaitGroup // the workers' goroutines
	stopped atomic.Bool

	active atomic.Pointer[queue]
	move   move
	lines  lines

	// writing counts the turns of writes, of which maxWriting run at once: see the
	// package comment.
	writing    atomic.Int64
	maxWriting int64
	wrote      atomic.Int64 // when the last one began, on the dispatcher's clock
	watching   atomic.Bool  // a timer runs: see watch
	// reads counts the tasks that are no writes and wait in the discipline or ahead
	// of it. It may count one for a moment that does not wait any more or not yet.
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
	p := &pool{d: d, workers: workers, maxWriting: int64(workers)}
	if d.opts.Grant != nil {
		p.places = new(places)
		p.places.limit.Store(int64(workers))
		p.places.free.Store(int64(workers))
		return p
	}
	if workers > 1 && d.opts.MaxBatch > 1 && !d.opts.Split {
		p.maxWriting-- // so that one is left for reads, whatever becomes of the writes
	}
	return p
}

// width returns how many tasks may run at once.
func (p *pool) width() int {
	if p.places != nil {
		return int(p.places.limit.Load())
	}
	return p.workers
}

// busy returns how many workers are at work, or places in use.
func (p *pool) busy() int {
	if p.places != nil {
		p.lines.mu.Lock() // Resize changes both
		defer p.lines.mu.Unlock()
		return p.width() - int(p.places.free.Load())
	}
	return p.workers - int(p.idle.n.Load())
}

func (p *pool) start() {
	if p.places != nil {
		return
	}
	for range p.workers {
		w := &worker{wake: make(chan *Task, 1)}
		p.done.Go(func() { p.work(w) })
	}
}

// stop ends the workers once they find nothing that can be run. Writes that cannot
// be run then are shed.
func (p *pool) stop() {
	p.stopped.Store(true)
	for w := p.idle.take(); w != nil; w = p.idle.take() {
		w.wake <- nil
	}
	p.done.Wait()
	p.shedWaiting(strategies.ReasonDraining)
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
	if !p.d.opts.Observe || q.full(p.lines.waiting()) {
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
	if p.idle.n.Load() > 0 && p.runnable() {
		p.wakeOne()
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
	if !p.runnable() {
		p.idle.push(w)
		// Look again, now that submitters can see w, as it would itself: see the
		// package comment.
		if !p.runnable() && !p.stopped.Load() || !p.idle.remove(w) {
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
	if !t.Write {
		p.reads.Add(1)
	}
}

func (p *pool) unawait(t *Task) {
	if !t.Write {
		p.reads.Add(-1)
	}
}

// resume takes a continuation: see Dispatcher.Continue.
func (p *pool) resume(t *Task) {
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

// work is the life of a worker.
func (p *pool) work(w *worker) {
	for {
		t, how, now := p.next(w)
		if t == nil {
			return
		}
		p.turn(w, t, how, now)
	}
}

// origin tells how a worker came by a task.
type origin uint8

const (
	handed    origin = iota // straight from its submitter
	inPlace                 // run by its submitter
	queued                  // from a queue, or put back ahead of it
	continued               // a continuation
)

// next returns the next task for w and the time, or nil when the pool has
// stopped. It parks while there is none.
func (p *pool) next(w *worker) (t *Task, how origin, now int64) {
	for {
		if p.runnable() {
			now = p.d.Now()
			if t, how = p.take(w, now); t != nil {
				return t, how, now
			}
		}
		p.idle.push(w)
		// Look again, now that submitters can see w: see the package comment.
		now = p.d.Now()
		t, how = p.take(w, now)
		switch {
		case t == nil && !p.stopped.Load():
			p.watch()
			w.asleep.Store(true)
			t = p.awaken(w)
			w.asleep.Store(false)
			if t != nil {
				return t, handed, p.d.Now()
			}
		case p.idle.remove(w):
			return t, how, now
		default: // somebody has taken w, and is about to wake it
			picked := p.awaken(w)
			switch {
			case t != nil && picked != nil:
				if picked.Write {
					p.endWriting()
				}
				p.setAside(picked, &p.lines.requeued)
			case picked != nil:
				return picked, handed, p.d.Now()
			case t == nil:
				continue // there may be something since
			}
			return t, how, now
		}
	}
}

// awaken parks w until it is woken, with a task or to look for one.
func (p *pool) awaken(w *worker) *Task {
	t := <-w.wake
	if t != nil && t.Write && p.d.opts.MaxBatch > 1 {
		// Those that are about to submit a write come first.
		runtime.Gosched()
		p.gathering.Add(-1)
	}
	return t
}

// take returns the task whose turn it is, or nil if none can be taken now. While
// both wait, turns alternate between the queue and the continuations.
func (p *pool) take(w *worker, now int64) (*Task, origin) {
	if p.lines.continuations.len() > 0 && p.turns.Add(1)%2 == 0 {
		if t := p.lines.continuations.pop(); t != nil {
			return t, continued
		}
	}
	for {
		g := p.gate()
		if g == open && !p.beginWriting() { // others were faster
			g = narrow
		}
		var t *Task
		if g == open {
			t = p.takeAny(w, now)
			if (t == nil || !t.Write) && p.endWriting() && t == nil {
				p.wakeIfRunnable() // for a write that came while w seemed to be at one
			}
		} else {
			t = p.takeRead(w, now, g)
		}
		if t != nil {
			return t, queued
		}
		// Who opened the gate may have missed a write that was in w's hands meanwhile.
		if g == open || p.gate() != open {
			return p.lines.continuations.pop(), continued
		}
	}
}

// takeAny returns the next task for its first turn, or nil.
func (p *pool) takeAny(w *worker, now int64) *Task {
	defer p.giveUp(w)
	for _, l := range []*line{&p.lines.held, &p.lines.requeued} {
		for l.len() > 0 {
			t := l.pop()
			switch {
			case t == nil: // somebody else was faster
				continue
			case l == &p.lines.requeued:
				p.unawait(t)
			}
			if !p.expired(t, now) {
				return t
			}
			w.given = append(w.given, given{t, strategies.ReasonExpired})
		}
	}
	return p.pop(w, now)
}

// takeRead returns the next task that is no write, or nil, while no write can be
// begun. The writes that go before it are held. Through a narrow gate it looks no
// further than ahead of the queue: those who write go on in the queue's order soon.
func (p *pool) takeRead(w *worker, now int64, g gate) *Task {
	defer p.giveUp(w)
	for p.reads.Load() > 0 {
		p.lines.mu.Lock()
		t := p.lines.requeued.pop()
		if t != nil {
			p.unawait(t)
			if p.expired(t, now) {
				w.given = append(w.given, given{t, strategies.ReasonExpired})
				p.lines.mu.Unlock()
				continue
			}
		} else if g == shut {
			t = p.pop(w, now)
		}
		if t == nil {
			p.lines.mu.Unlock()
			return nil
		}
		if !t.Write {
			p.lines.mu.Unlock()
			return t
		}
		if p.d.refusing.Load() {
			w.given = append(w.given, given{t, strategies.ReasonDraining})
		} else {
			p.setAsideLocked(t, &p.lines.held)
		}
		p.lines.mu.Unlock()
		p.makeRoom(p.active.Load(), now)
	}
	return nil
}

// pop returns the next task of the discipline that shall run, or nil. Those that
// are given up before it are noted, for giveUp.
func (p *pool) pop(w *worker, now int64) *Task {
	q := p.active.Load()
	for {
		t, what, reason := q.pop(now)
		switch {
		case t == nil:
			return nil
		case what == strategies.Shed && !p.d.opts.Observe:
			w.given = append(w.given, given{t, reason})
		case p.expired(t, now):
			w.given = append(w.given, given{t, strategies.ReasonExpired})
		case what == strategies.Shed:
			t.WouldShed = reason
			q.tellWouldShed(t)
			return t
		default:
			return t
		}
	}
}

// giveUp sheds what w has popped and shall not run. No lock is held.
func (p *pool) giveUp(w *worker) {
	for i, g := range w.given {
		w.given[i] = given{}
		p.d.shed(g.task, g.reason)
	}
	w.given = w.given[:0]
}

func (p *pool) expired(t *Task, now int64) bool {
	return t.Deadline != 0 && t.Deadline <= now
}

// turn runs t, and if it is a write others that wait with it. The turn began at
// the given time.
func (p *pool) turn(w *worker, t *Task, how origin, now int64) {
	write := t.Write && how != continued
	if (how == handed || how == inPlace) && p.expired(t, now) {
		if write {
			p.endWriting()
		}
		p.d.shed(t, strategies.ReasonExpired)
		return
	}
	if write {
		p.wrote.Store(now)
	}
	w.batch = append(w.batch[:0], t)
	w.bytes = t.Size
	if t.Write && (how == handed || how == queued) && p.d.opts.MaxBatch > 1 {
		if p.waiting() > 0 {
			p.collect(w, now)
		}
		if how == handed {
			p.noteGroup(len(w.batch) > 1)
		}
	}
	// Pass the word on: whoever is parked could run what still waits.
	p.wakeIfRunnable()
	switch how {
	case handed, inPlace:
		t.Started = now
		t.queue.events.Started(0)
		p.started(w, w.batch[1:], now)
	case queued:
		p.started(w, w.batch, now)
	}

	n := int64(len(w.batch))
	p.d.opts.Run(w.batch, p.d.complete)
	if write {
		p.endWriting()
	}
	clear(w.batch)
	if w.turns++; w.turns%timedTurns == 1 || len(w.lessons) > 0 {
		end := p.d.Now()
		p.learn(w, (end-now)/n, end)
	}
}

// noteGroup notes whether a write for which a worker gathered was taken together
// with others.
func (p *pool) noteGroup(others bool) {
	switch {
	case !others:
		p.ungrouped.Store(ungroupedFor)
	case p.ungrouped.Load() != 0: // or else all workers would write to it
		p.ungrouped.Store(0)
	}
}

// collect adds further writes to w's turn. A task that cannot join it goes back to
// where it was held, or ahead of the queue, for whoever is free first.
func (p *pool) collect(w *worker, now int64) {
	p.lines.mu.Lock()
	for len(w.batch) < p.d.opts.MaxBatch {
		t := p.lines.held.pop()
		held := t != nil
		switch {
		case held && p.expired(t, now):
			w.given = append(w.given, given{t, strategies.ReasonExpired})
			continue
		case !held && p.lines.requeued.len() == 0 &&
			p.active.Load().discipline.Len() > 0: // or else it would be told that a worker found nothing
			t = p.pop(w, now)
		}
		if t == nil {
			break
		}
		if !t.Write || w.bytes+t.Size > p.d.opts.MaxBatchBytes {
			if held {
				p.lines.held.pushFront(t)
			} else {
				p.setAsideLocked(t, &p.lines.requeued)
			}
			break
		}
		w.batch = append(w.batch, t)
		w.bytes += t.Size
	}
	p.lines.mu.Unlock()
	p.giveUp(w)
}

// started tells of the beginning of tasks that have waited.
func (p *pool) started(w *worker, tasks []*Task, now int64) {
	for i, t := range tasks {
		t.Started = now
		waited := max(0, now-t.Submitted)
		q := t.queue
		q.eventsOf(t).Started(time.Duration(waited))
		if i == 0 && q.turns != nil {
			q.turns.TurnBegan(now)
		}
		if q.learner != nil {
			w.lessons = append(w.lessons, lesson{q.learner, waited})
		}
	}
}

// learn notes that a task of the turn took that long.
func (p *pool) learn(w *worker, service, now int64) {
	p.measure(service)
	for _, l := range w.lessons {
		l.learner.Completed(l.waited, service, now)
	}
	clear(w.lessons)
	w.lessons = w.lessons[:0]
}

// measure notes how long a task took.
func (p *pool) measure(service int64) {
	if mean := p.service.Load(); mean != 0 {
		service = mean + (service-mean)/8
	}
	p.service.Store(service)
}

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
