package dispatch

import (
	"cmp"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// Places are lent to callers, who run their tasks themselves: whoever asks gets them at once or once it is its turn, and
// gives them back. They are places of a resource, or of several that do the same work: then a task gets one of whichever
// has the largest share of its own free. All methods are safe for concurrent use.
type Places struct {
	backlog   // what waits for some
	gathering gathering
	// resources are never none. They change under mu, together with limits.
	resources atomic.Pointer[[]*Resource]
	// tie counts choices between resources, so that those with the same share take turns.
	tie atomic.Uint32

	_ [64]byte
	// looks is how many more times a place that is given back while nothing waits has the discipline popped all the
	// same, which so learns that there was nothing.
	looks atomic.Int64
	_     [64]byte
}

const (
	// idleLooks is how often after a push an empty discipline is popped: what it learns from that, it has learned by then.
	idleLooks = 1024
	// unheld is how many places there are where nobody is to be held back.
	unheld = 1 << 20
)

// Lend returns places. Options.Grant is called for those that are granted after a wait.
func Lend(o Options) (*Places, error) {
	if err := o.check(true); err != nil {
		return nil, err
	}
	o.setDefaults()
	p := &Places{backlog: backlog{engine: &engine{opts: o}}}
	p.gathering.timer = stopped(p.changePhase)
	resources, limits := p.change(nil, o.Resources)
	p.resources.Store(&resources)
	p.init(p.engine, p, limits...)
	if err := p.open(); err != nil {
		return nil, err
	}
	return p, nil
}

// Acquire takes over t and reports whether it got its places at once. Otherwise Options.Grant or t.Done is called for it,
// perhaps before Acquire returns; Cancel may give it up when its time is over.
func (p *Places) Acquire(t *Task) bool {
	p.entered(t)
	if p.grantAtOnce(t) {
		return true
	}
	now := p.Now()
	if t.Arrival == 0 {
		t.Arrival = now
	}
	if p.looks.Load() != idleLooks {
		p.looks.Store(idleLooks)
	}
	p.enqueue(t, now)
	return false
}

// TryAcquire is Acquire without waiting. If t cannot get its places at once it stays the caller's, and no event is called
// for it.
func (p *Places) TryAcquire(t *Task) bool {
	p.entered(t)
	granted := p.grantAtOnce(t)
	if !granted {
		t.phase.becomes(false)
		p.left()
	}
	return granted
}

// Release gives back the places of t, which is the submitter's again.
func (p *Places) Release(t *Task) {
	on, n, now := t.on.Load(), t.granted, int64(0)
	began := t.began.Load()
	if began != 0 {
		began = abs(t.began.Swap(0)) // Answered may have been faster
	}
	if began != 0 || t.Started != 0 {
		now = p.Now()
	}
	if t.Started != 0 { // it had to wait, or was beyond the places
		service := now - t.Started
		p.measure(service)
		if n > 0 {
			t.queue.ended(t.Started-t.Submitted, service, now)
		}
	}
	switch ended := t.ended.Load(); {
	case ended < 0:
		p.answered(t, 0, -ended, Dropped)
	case ended > 0 || began != 0: // not both
		p.answered(t, began, cmp.Or(ended, now), Good)
	}
	p.endRun(t, now)
	if n > 0 {
		p.giveBack(t, on, n, began, now)
	}
	t.phase.becomes(false)
	p.left()
}

// Answered ends the time that is measured for t, which got its places when t.Began says, and says how the work ended.
// Without it Release ends the time, as Good. The first of them counts. It does nothing if t has been released, and got its
// places again, since t.Began was asked.
func (p *Places) Answered(t *Task, began int64, how Outcome) {
	on := t.on.Load()
	if began == 0 || !t.began.CompareAndSwap(began, 0) {
		return
	}
	if began < 0 && how == Dropped {
		how = Ignored
	}
	began = abs(began)
	now := p.Now()
	if how == Good {
		t.ended.Store(now)
		if t.light.Load() && p.light() {
			p.opts.Objective.Answered(now - began)
		}
	} else {
		t.ended.Store(-now)
	}
	if l := on.limit.learning.Load(); l != nil && !p.active.Load().spec.Inline { // which has no places
		on.limit.sample(l, began, now, how)
	}
}

// Leave has whatever comes from now on shed as draining. What waits goes on.
func (p *Places) Leave() { p.leaving.Store(true) }

// Close sheds all that waits or comes. What is held may still be given back.
func (p *Places) Close() {
	p.refusing.Store(true)
	p.shedAll(strategies.ReasonDraining)
	for _, m := range *p.limits.Load() {
		m.close()
	}
}

// assertLocked checks what holds under mu.
func (p *Places) assertLocked() {
	if g := &p.gathering; asserting {
		for _, r := range p.Resources() {
			free, gathered, width := r.free.Load(), r.gathered(), r.limit.width.Load()
			assert(free+gathered <= width, "%d places free and %d gathered, of %d", free, gathered, width)
		}
		assert(g.has >= 0 && (g.has == 0 || g.active() && !g.aside), "%d places gathered; for a task: %t, aside: %t", g.has, g.active(), g.aside)
		assert(!g.aside || g.active(), "others pass no task")
	}
}

// ready is asked when a task ends, which is in flight as well, beside who waits.
func (p *Places) ready() bool { return p.inFlight.Load() > 1 && p.waiting() > 0 }

// counted ends the gathering of a task that leaves the line ahead of the queue.
func (p *Places) counted(t *Task, by int64) {
	if by < 0 && p.gathering.task.Load() == t {
		p.stopGathering()
	}
}

func (p *Places) admits(*Task, *queue) bool { return true }

func (p *Places) giveWay(bool, int64) bool { return false }

func (p *Places) came(bool) { p.wake() }

// take has t take its places, if they are free, and reports whether it has.
func (p *Places) take(t *Task) bool {
	for r := p.freest(); r != nil; r = p.freest() {
		t.goesTo(r, p.need(t, r))
		if r.claim(t.granted, t.granted) != 0 {
			return true
		}
		if t.granted > 1 {
			return false
		}
	}
	return false
}

// grantAtOnce grants t its places if enough are free, and nothing waits. It reports whether it has.
func (p *Places) grantAtOnce(t *Task) bool {
	if p.refusing.Load() || p.leaving.Load() {
		return false
	}
	q := p.active.Load()
	if q.spec.Inline {
		t.goesTo(p.Any(), 0)
	} else if !p.anyFree() || p.inFlight.Load() > 1 && (p.ahead.len() != 0 || q.len() != 0) || !p.take(t) {
		return false // who waits is in flight as well, beside t
	}
	q.accept(t)
	if l := t.on.Load().limit.learning.Load(); l != nil && t.granted > 0 || p.timed(t) || q.meter != nil {
		now := max(1, p.Now())
		q.begins(t, now)
		t.begins(p.light())
		if t.measure(now); t.Arrival == 0 {
			t.Arrival = now
		}
	}
	q.events.Started(0)
	return true
}

// runInline grants t a place beyond the limit.
func (p *Places) runInline(q *queue, t *Task, now int64) (waits bool) {
	if t.expired(now) {
		p.shed(t, strategies.ReasonExpired)
		return false
	}
	p.beganAtOnce(q, t, now)
	t.goesTo(p.Any(), 0)
	p.opts.Grant(t)
	return false
}

// giveBack gives the n places of t, which began at that time, to those whose turn it is: who comes meanwhile sees that
// they wait, and takes none. If nothing waits it lets the discipline know that somebody has looked, as a worker does that
// becomes free.
func (p *Places) giveBack(t *Task, on *Resource, n, began, now int64) {
	learned := on.limit.learning.Load() != nil // which costs less than to ask each time
	if learned {
		t.found = on.limit.end(t.found, n, began, now, Good) // first, so that places are not handed on that are too many now
	}
	on.free.Add(n)
	granted := p.inFlight.Load() > 1 && p.grant(now)
	if !granted && p.looks.Load() > 0 && p.waiting() == 0 {
		p.looks.Add(-1)
		p.grantOne(p.orNow(now))
	}
	if learned {
		on.limit.recount(t.found, n) // it may have been found stuck meanwhile
	}
}

func (p *Places) wake() { p.grant(0) }

// grant grants what is free to those whose turn it is, and reports whether it granted any. Now may be 0.
func (p *Places) grant(now int64) (some bool) {
	for p.anyFree() && p.waiting() > 0 || p.gathering.active() {
		now = p.orNow(now)
		if !p.grantOne(now) {
			break
		}
		some = true
	}
	return some
}

// grantOne grants the next task its places, if enough are free, and reports whether it did.
func (p *Places) grantOne(now int64) bool {
	var out rejects
	p.mu.Lock()
	t := p.nextLocked(&out, now)
	p.assertLocked()
	p.mu.Unlock()
	p.shedRejects(&out)
	if t == nil {
		return false
	}
	t.measure(now)
	t.queue.began(t, now, true)
	p.opts.Grant(t)
	return true
}

// nextLocked returns the next task that has got its places, nil if none has.
func (p *Places) nextLocked(out *rejects, now int64) *Task {
	g := &p.gathering
	for p.ahead.first != nil && p.ahead.first.expired(now) {
		out.add(p.ahead.pop(), strategies.ReasonExpired)
	}
	if g.aside {
		return p.nextAsideLocked(out, now)
	}
	if p.ahead.first == nil {
		if t := p.pop(now, out); t != nil && p.mayWaitLocked(t, now, out) {
			p.ahead.push(t)
		}
	}
	t := p.ahead.first
	if t == nil {
		return nil
	}
	need, enough := p.gatherFor(t)
	if !enough {
		if !g.active() { // t keeps what it gets
			g.task.Store(t)
			if need > 1 { // others, who could make use of that, pass it after a while
				g.phase = firstPhase
				g.timer.Reset(g.phase)
			}
		}
		return nil
	}
	g.has -= need
	p.ahead.pop()
	t.goesTo(g.of, need)
	return t
}
