package dispatch

import (
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// Places are lent to callers, who run their tasks themselves: whoever asks gets them at once or once it is its
// turn, and gives them back. They are places of a resource, or of several that do the same work: then a task gets one of
// whichever has the largest share of its own free. All methods are safe for concurrent use.
type Places struct {
	engine
	places places
	// leaving says that nothing new is granted a place any more.
	leaving atomic.Bool
}

// places are those of some resources, and the backlog of tasks that wait for some.
type places struct {
	backlog
	gathering gathering
	// resources are never none. They change under mu, together with limits.
	resources atomic.Pointer[[]*Resource]
	// tie counts choices between resources, so that those with the same share take turns.
	tie atomic.Uint32

	_ [64]byte
	// looks is how many more times a place that is given back while nothing waits has
	// the discipline popped all the same, which so learns that there was nothing.
	looks atomic.Int64
	_     [64]byte
}

const (
	// idleLooks is how often after a push a discipline is told that nothing waits: what
	// it learns from that, it has learned by then.
	idleLooks = 1024
	// unheld is how many places there are where nobody is to be held back.
	unheld = 1 << 20
)

// Lend returns places. Options.Grant tells of those that are granted after a wait.
func Lend(o Options) (*Places, error) {
	if err := o.check(true); err != nil {
		return nil, err
	}
	o.setDefaults()
	p := &Places{engine: engine{opts: o}}
	s := &p.places
	s.engine = &p.engine
	resources, limits := s.change(o.Resources)
	s.resources.Store(&resources)
	s.init(&p.engine, s, limits)
	if err := p.open(); err != nil {
		return nil, err
	}
	return p, nil
}

// Acquire takes over t and reports whether it got its places at once. Otherwise Options.Grant
// or t.Done is called for it, perhaps before Acquire returns; Cancel may give it up when its
// time is over.
func (p *Places) Acquire(t *Task) bool {
	p.entered(t)
	if p.refusing.Load() || p.leaving.Load() {
		p.places.active.Load().accept(t)
		p.shed(t, strategies.ReasonDraining)
		return false
	}
	if p.places.grantAtOnce(t) {
		return true
	}
	p.places.arrive(t)
	return false
}

// TryAcquire is Acquire without waiting. If t cannot get its places at once it stays the
// caller's, and no event is told of it.
func (p *Places) TryAcquire(t *Task) bool {
	p.entered(t)
	granted := !p.refusing.Load() && !p.leaving.Load() && p.places.grantAtOnce(t)
	if !granted {
		t.phase.becomes(false)
		p.left()
	}
	return granted
}

// Cancel is that of Dispatcher. Only who has asked for the places of t may call it.
func (p *Places) Cancel(t *Task, reason strategies.Reason) bool {
	return p.places.cancel(t, reason)
}

// Release gives back the places of t, which is the submitter's again.
func (p *Places) Release(t *Task) {
	s, on, n, now := &p.places, t.on.Load(), t.granted, int64(0)
	began := t.began.Load()
	if began != 0 {
		began = abs(t.began.Swap(0)) // Answered may have been faster
	}
	if began != 0 || t.Started != 0 {
		now = s.Now()
	}
	if t.Started != 0 { // it had to wait, or was beyond the places
		service := now - t.Started
		s.measure(service)
		if n > 0 {
			t.queue.ended(t.Started-t.Submitted, service, now)
		}
	}
	switch ended := t.ended.Load(); {
	case ended == 0 && began != 0:
		s.answered(t, began, now, Good)
	case ended > 0:
		s.answered(t, 0, ended, Good)
	case ended < 0:
		s.answered(t, 0, -ended, Dropped)
	}
	s.endRun(t, now)
	if n > 0 {
		s.giveBackOf(t, on, n, began, now)
	}
	t.phase.becomes(false)
	p.left()
}

// Answered ends the time that is measured for t, which got its places when t.Began tells,
// and says how the work ended. Without it Release ends the time, as Good.
// The first of them counts. It does nothing if t has been released, and got its places
// again, since t.Began was asked.
func (p *Places) Answered(t *Task, began int64, how Outcome) {
	s, on := &p.places, t.on.Load()
	if began == 0 || !t.began.CompareAndSwap(began, 0) {
		return
	}
	if began < 0 && how == Dropped {
		how = Ignored
	}
	began = abs(began)
	now := s.Now()
	if how == Good {
		t.ended.Store(now)
		if t.alone.Load() && s.calm() {
			s.opts.Objective.Answered(now - began)
		}
	} else {
		t.ended.Store(-now)
	}
	if l := on.limit.learning.Load(); l != nil && !s.active.Load().spec.Inline { // which has no places
		on.limit.sample(l, began, now, how)
	}
}

// Leave has whatever comes from now on shed as draining. What waits goes on.
func (p *Places) Leave() { p.leaving.Store(true) }

// Close sheds all that waits or comes. What is held may still be given back.
func (p *Places) Close() {
	p.refusing.Store(true)
	p.places.shedAll(strategies.ReasonDraining)
	for _, m := range *p.places.limits.Load() {
		m.close()
	}
}

// assertLocked checks what holds under mu.
func (s *places) assertLocked() {
	if g := &s.gathering; asserting {
		for _, r := range *s.resources.Load() {
			free, gathered, width := r.free.Load(), r.gathered(), r.limit.width.Load()
			assert(free+gathered <= width, "%d places free and %d gathered, of %d", free, gathered, width)
		}
		assert(g.has >= 0 && (g.has == 0 || g.active() && !g.aside), "%d places gathered; for a task: %t, aside: %t", g.has, g.active(), g.aside)
		assert(!g.aside || g.active(), "others pass no task")
	}
}

// ready is asked when a task ends, which is in flight as well, beside who waits.
func (s *places) ready() bool { return s.inFlight.Load() > 1 && s.waiting() > 0 }

// counted ends the gathering of a task that leaves the line ahead of the queue.
func (s *places) counted(t *Task, by int64) {
	if by < 0 && s.gathering.task.Load() == t {
		s.stopGathering()
	}
}

func (s *places) admits(*Task, *queue) bool { return true }

func (s *places) giveWay(bool, *queue, int64) bool { return false }

func (s *places) came(bool) { s.wake() }

// take has t take its places, if they are free, and reports whether it has.
func (s *places) take(t *Task) bool {
	for r := s.freest(); r != nil; r = s.freest() {
		t.goesTo(r, s.need(t, r))
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
func (s *places) grantAtOnce(t *Task) bool {
	q := s.active.Load()
	if q.spec.Inline {
		t.goesTo(s.any(), 0)
	} else if !s.anyFree() || s.inFlight.Load() > 1 && (s.elsewhere.Load() != 0 || q.len() != 0) || !s.take(t) {
		return false // who waits is in flight as well, beside t
	}
	q.accept(t)
	if l := t.on.Load().limit.learning.Load(); l != nil && t.granted > 0 || s.timed(t) || q.meter != nil {
		now := max(1, s.Now())
		q.begins(t, now)
		t.begins(s.calm())
		if t.measure(now); t.Arrival == 0 {
			t.Arrival = now
		}
	}
	q.events.Started(0)
	return true
}

// arrive has t wait, or be shed.
func (s *places) arrive(t *Task) {
	now := s.Now()
	if t.Arrival == 0 {
		t.Arrival = now
	}
	if s.looks.Load() != idleLooks {
		s.looks.Store(idleLooks)
	}
	s.enqueue(t, now)
}

// runInline grants t a place beyond the limit.
func (s *places) runInline(q *queue, t *Task, now int64) (waits bool) {
	if t.expired(now) {
		s.shed(t, strategies.ReasonExpired)
		return false
	}
	s.beganAtOnce(q, t, now)
	t.goesTo(s.any(), 0)
	s.opts.Grant(t)
	return false
}

// giveBackOf gives back the n places of t, which began at that time.
func (s *places) giveBackOf(t *Task, on *Resource, n, began, now int64) {
	learned := on.limit.learning.Load() != nil
	if learned {
		t.found = on.limit.end(t.found, n, began, now, Good) // first, so that places are not handed on that are too many now
	}
	s.giveBack(on, n, now)
	if learned {
		on.limit.recount(t.found, n) // it may have been found stuck meanwhile
	}
}

// giveBack frees n places of r for those whose turn it is: who comes meanwhile sees that they wait, and takes none. If
// nothing waits it lets the discipline know that somebody has looked, as a worker does that becomes free. Now may be 0.
func (s *places) giveBack(r *Resource, n, now int64) {
	r.free.Add(n)
	granted := s.inFlight.Load() > 1 && s.grant(now)
	if !granted && s.looks.Load() > 0 && s.waiting() == 0 {
		s.looks.Add(-1)
		s.grantOne(s.orNow(now))
	}
}

func (s *places) wake() { s.grant(0) }

// grant grants what is free to those whose turn it is, and reports whether it granted any. Now may be 0.
func (s *places) grant(now int64) (some bool) {
	for s.anyFree() && s.waiting() > 0 || s.gathering.active() {
		now = s.orNow(now)
		if !s.grantOne(now) {
			break
		}
		some = true
	}
	return some
}

// grantOne grants the next task its places, if enough are free, and reports whether it did.
func (s *places) grantOne(now int64) bool {
	var out rejects
	s.mu.Lock()
	t := s.nextLocked(&out, now)
	s.assertLocked()
	s.mu.Unlock()
	s.shedRejects(&out)
	if t == nil {
		return false
	}
	t.measure(now)
	t.queue.began(t, now, true)
	s.opts.Grant(t)
	return true
}

// nextLocked returns the next task that has got its places, nil if none has.
func (s *places) nextLocked(out *rejects, now int64) *Task {
	g := &s.gathering
	for s.ahead.first != nil && s.ahead.first.expired(now) {
		out.add(s.ahead.pop(), strategies.ReasonExpired)
	}
	if g.aside {
		return s.nextAsideLocked(out, now)
	}
	first := s.ahead.first
	t := first
	if t == nil {
		if t = s.pop(now, out); t == nil {
			return nil
		}
	}
	need, enough := s.gatherFor(t)
	if !enough {
		if t != first {
			s.ahead.pushFront(t)
		}
		if !g.active() {
			g.start(t, need, s.changePhase)
		}
		return nil
	}
	if g.has -= need; t == first {
		s.ahead.pop()
	}
	t.goesTo(g.of, need)
	return t
}
