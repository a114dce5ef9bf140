package dispatch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"spillway/strategies"
)

// pool is a set of workers and the queues that feed them.
type pool struct {
	d       *Dispatcher
	workers int
	done    sync.WaitGroup // the workers' goroutines
	stopped atomic.Bool

	active atomic.Pointer[queue]    // the last of queues
	queues atomic.Pointer[[]*queue] // oldest first; the slice is immutable; guarded by d.mu for writing

	ahead ahead
	_     [64]byte // idle.n is read by every Submit
	idle  idleStack
	_     [64]byte

	// gathering counts the workers that have been handed a write and will look for
	// others: see the package comment.
	gathering atomic.Int64
	// alone is how many more writes may be run in the place of a worker, since of
	// late none has come together with others: see the package comment.
	alone atomic.Int32

	// service is the time that a worker spends on a task, in nanoseconds: an
	// exponentially weighted mean over some of the turns.
	service atomic.Int64
}

const (
	// timedTurns is how many turns go by between two that are timed.
	timedTurns = 16
	// aloneFor is how many writes that need not wait go by between two for which a
	// worker gathers.
	aloneFor = 64
)

func newPool(d *Dispatcher, workers int) *pool { return &pool{d: d, workers: workers} }

func (p *pool) start() {
	for range p.workers {
		w := &worker{wake: make(chan *strategies.Task, 1)}
		p.done.Go(func() { p.work(w) })
	}
}

// stop ends the workers once they find nothing to do.
func (p *pool) stop() {
	p.stopped.Store(true)
	for w := p.idle.take(); w != nil; w = p.idle.take() {
		w.wake <- nil
	}
	p.done.Wait()
}

// submit takes a new task: see Dispatcher.Submit.
func (p *pool) submit(t *strategies.Task) (waits bool) {
	now := p.d.Now()
	t.Submitted = now
	// What waits goes first: it may have come while the worker was parking, which
	// finds it in a moment.
	gathers := t.Write && p.d.opts.MaxBatch > 1
	if q := p.active.Load(); !q.spec.Inline && !p.d.refusing.Load() && p.idle.n.Load() > 0 && p.waiting() == 0 &&
		(!gathers || p.gathering.Load() == 0) {
		if w := p.idle.take(); w != nil {
			q.adopt(t)
			switch {
			case t.InPlace && w.asleep.Load() && (!gathers || p.alone.Load() > 0):
				if gathers {
					p.alone.Add(-1)
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

	q := p.enter()
	q.adopt(t)
	if p.d.refusing.Load() {
		q.leave()
		p.d.shed(t, strategies.ReasonDraining)
		return false
	}
	v := q.discipline.Push(t, now)
	q.leave()
	switch v.Outcome {
	case strategies.Queued:
		if !gathers || p.gathering.Load() == 0 {
			p.wakeOne()
		}
		if v.Displaced != nil {
			p.d.shed(v.Displaced, v.Displacement())
		}
		return true
	case strategies.CallerRuns:
		t.Started = now
		q.events.Started(0)
		p.d.runInline(t)
	default:
		p.d.shed(t, v.Reason)
	}
	return false
}

// putBack lets w be idle again, in whose place a submitter has run a task, unless
// there is something for w to do.
func (p *pool) putBack(w *worker) {
	if p.waiting() == 0 {
		p.idle.push(w)
		// Look again, now that submitters can see w, as it would itself: see the
		// package comment.
		if p.waiting() == 0 && !p.stopped.Load() || !p.idle.remove(w) {
			return
		}
	}
	w.wake <- nil
}

// adopt marks t as submitted to q.
func (q *queue) adopt(t *strategies.Task) {
	t.Strategy, t.Owner = q.spec.Name, q
	q.events.Submitted()
}

// resume takes a continuation: see Dispatcher.Continue.
func (p *pool) resume(t *strategies.Task) {
	if p.active.Load().spec.Inline && !p.d.refusing.Load() {
		p.d.runInline(t)
		return
	}
	p.putAhead(t, true)
	p.wakeOne()
}

// putAhead puts t ahead of the queues, unless it has to be shed.
//
// It decides under the lock that shedWaiting and Cancel take as well. So what
// they did not find here, because it came later, is shed by putAhead.
func (p *pool) putAhead(t *strategies.Task, continuation bool) {
	reason := strategies.ReasonNone
	p.ahead.mu.Lock()
	switch {
	case p.d.refusing.Load():
		reason = strategies.ReasonDraining
	case !continuation && p.expired(t, p.d.Now()):
		reason = strategies.ReasonExpired
	default:
		p.ahead.pushLocked(t, continuation)
	}
	p.ahead.mu.Unlock()
	if reason != strategies.ReasonNone {
		p.shedAhead(t, continuation, reason)
	}
}

// shedAhead sheds a task from ahead of the queues. Events do not hear of a
// continuation: its task was counted when it started.
func (p *pool) shedAhead(t *strategies.Task, continuation bool, reason strategies.Reason) {
	if continuation {
		t.Shed = reason
		p.d.completed(t)
		return
	}
	p.d.shed(t, reason)
}

// wakeOne tells a parked worker, if there is one, to look for a task.
func (p *pool) wakeOne() {
	if w := p.idle.take(); w != nil {
		w.wake <- nil
	}
}

// waiting returns how many tasks no worker has taken yet.
func (p *pool) waiting() int {
	n := int(p.ahead.n.Load())
	for _, q := range *p.queues.Load() {
		n += q.discipline.Len()
	}
	return n
}

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
func (p *pool) next(w *worker) (t *strategies.Task, how origin, now int64) {
	for {
		if p.waiting() > 0 {
			now = p.d.Now()
			if t, how = p.take(now); t != nil {
				return t, how, now
			}
		}
		p.idle.push(w)
		// Look again, now that submitters can see w: see the package comment.
		now = p.d.Now()
		t, how = p.take(now)
		switch {
		case t == nil && !p.stopped.Load():
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
				p.putAhead(picked, false)
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
func (p *pool) awaken(w *worker) *strategies.Task {
	t := <-w.wake
	if t != nil && t.Write && p.d.opts.MaxBatch > 1 {
		// Those that are about to submit a write come first.
		runtime.Gosched()
		p.gathering.Add(-1)
	}
	return t
}

// take returns the task whose turn it is, or nil if none can be taken now.
func (p *pool) take(now int64) (*strategies.Task, origin) {
	for p.ahead.n.Load() > 0 {
		t, continuation := p.ahead.pop()
		switch {
		case t == nil: // somebody else was faster
		case continuation:
			return t, continued
		case p.expired(t, now):
			p.d.shed(t, strategies.ReasonExpired)
		default:
			return t, queued
		}
	}
	return p.takeQueued(now), queued
}

// takeQueued returns the next task that shall run out of the oldest queue that
// holds any, or nil.
func (p *pool) takeQueued(now int64) *strategies.Task {
	qs := *p.queues.Load()
	for i, q := range qs {
		for {
			t, what, reason := q.discipline.Pop(now)
			switch {
			case what == strategies.Run && p.expired(t, now):
				p.d.shed(t, strategies.ReasonExpired)
				continue
			case what == strategies.Run:
				return t
			case what == strategies.Shed:
				p.d.shed(t, reason)
				continue
			case what == strategies.Contended:
				// What is on its way into an older queue goes before what is in a
				// newer one.
				return nil
			}
			break
		}
		if i < len(qs)-1 {
			p.retire()
		}
	}
	return nil
}

func (p *pool) expired(t *strategies.Task, now int64) bool {
	return t.Deadline != 0 && t.Deadline <= now
}

// turn runs t, and if it is a write others that wait with it. The turn began at
// the given time.
func (p *pool) turn(w *worker, t *strategies.Task, how origin, now int64) {
	if (how == handed || how == inPlace) && p.expired(t, now) {
		p.d.shed(t, strategies.ReasonExpired)
		return
	}
	w.batch = append(w.batch[:0], t)
	if t.Write && (how == handed || how == queued) && p.d.opts.MaxBatch > 1 {
		if p.waiting() > 0 {
			p.collect(w, now)
		}
		if how == handed {
			p.company(len(w.batch) > 1)
		}
	}
	// Pass the word on: whoever is parked could run what still waits.
	if p.idle.n.Load() > 0 && p.waiting() > 0 {
		p.wakeOne()
	}
	switch how {
	case handed, inPlace:
		t.Started = now
		t.Owner.(*queue).events.Started(0)
		p.started(w, w.batch[1:], now)
	case queued:
		p.started(w, w.batch, now)
	}

	n := int64(len(w.batch))
	p.d.opts.Run(w.batch, p.d.complete)
	clear(w.batch)
	if w.turns++; w.turns%timedTurns == 1 || len(w.lessons) > 0 {
		end := p.d.Now()
		p.learn(w, (end-now)/n, end)
	}
}

// company notes whether a write for which a worker gathered was taken together
// with others.
func (p *pool) company(others bool) {
	switch {
	case !others:
		p.alone.Store(aloneFor)
	case p.alone.Load() != 0: // or else all workers would write to it
		p.alone.Store(0)
	}
}

// collect adds further writes to w's turn. A task of another kind that it meets
// goes ahead of the queue, for whoever is free first.
func (p *pool) collect(w *worker, now int64) {
	p.ahead.mu.Lock()
	for len(w.batch) < p.d.opts.MaxBatch && len(p.ahead.tasks) == 0 {
		t := p.takeQueued(now)
		if t == nil {
			break
		}
		if !t.Write {
			p.ahead.pushLocked(t, false)
			break
		}
		w.batch = append(w.batch, t)
	}
	p.ahead.mu.Unlock()
}

// started tells of the beginning of tasks that have waited.
func (p *pool) started(w *worker, tasks []*strategies.Task, now int64) {
	for _, t := range tasks {
		q := t.Owner.(*queue)
		t.Started = now
		waited := max(0, now-t.Submitted)
		q.events.Started(time.Duration(waited))
		if q.learner != nil {
			w.lessons = append(w.lessons, lesson{q.learner, waited})
		}
	}
}

// learn notes that a task of the turn took that long.
func (p *pool) learn(w *worker, service, now int64) {
	if mean := p.service.Load(); mean == 0 {
		p.service.Store(service)
	} else {
		p.service.Store(mean + (service-mean)/8)
	}
	for _, l := range w.lessons {
		l.learner.Completed(l.waited, service, now)
	}
	clear(w.lessons)
	w.lessons = w.lessons[:0]
}

// shedWaiting gives up everything that waits. The dispatcher is refusing, so
// nothing is added behind its back.
func (p *pool) shedWaiting(reason strategies.Reason) {
	for _, q := range *p.queues.Load() {
		q.awaitEntering()
		for {
			t, what, _ := q.discipline.Pop(p.d.Now())
			if what == strategies.Empty {
				break
			}
			if t != nil {
				p.d.shed(t, reason)
			}
		}
	}
	for t, continuation := p.ahead.pop(); t != nil; t, continuation = p.ahead.pop() {
		p.shedAhead(t, continuation, reason)
	}
}
