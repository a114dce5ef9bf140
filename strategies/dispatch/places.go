package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// places are what a pool has instead of workers, if those who submit tasks run them
// themselves: see the package comment.
type places struct {
	_ [64]byte
	// free is how many nobody has. It is less than 0 after Resize has taken away some
	// that were in use.
	free atomic.Int64
	// limit is how many there are. It changes under lines.mu.
	limit atomic.Int64
	// looks is how many more times a place that is given back while nothing waits has
	// the discipline popped all the same, which so learns that there was nothing.
	looks atomic.Int64
	_     [64]byte

	// The rest changes under lines.mu, which who gives places to tasks that waited holds.

	// gatherer is the task whose turn it is and that has not got all of its places,
	// and gathered how many it has. It is the first of the line requeued.
	gatherer atomic.Pointer[Task]
	gathered int64
	// aside says that tasks behind the gatherer go before it for now, phase for how long
	// it gathers, and then does not, and timer changes from one to the other.
	aside bool
	phase time.Duration
	timer *time.Timer
}

const (
	// firstPhase is how long a task gathers places before others may pass it, the
	// first time.
	firstPhase = 10 * time.Millisecond
	// longestPhase is what firstPhase is doubled to at most. Who needs places of others
	// that keep them for longer may have to wait until nobody else comes.
	longestPhase = time.Minute
	// idleLooks is how often after a push a discipline is told that nothing waits: what
	// it learns from that, it has learned by then.
	idleLooks = 1024
)

// Acquire takes over t and reports whether it got its places at once. Otherwise Options.Grant
// or t.Done is called for it, perhaps before Acquire returns; Cancel may give it up when its
// time is over. The dispatcher must have Options.Grant.
func (d *Dispatcher) Acquire(t *Task) bool {
	d.inFlight.Add(1)
	t.reset()
	return d.pools[0].acquire(t, true)
}

// TryAcquire is Acquire without waiting. If t cannot get its places at once it stays the
// caller's, and no event is told of it.
func (d *Dispatcher) TryAcquire(t *Task) bool {
	d.inFlight.Add(1)
	t.reset()
	granted := d.pools[0].acquire(t, false)
	if !granted {
		d.left()
	}
	return granted
}

// Release gives back the places of t, which is the submitter's again.
func (d *Dispatcher) Release(t *Task) {
	p, n := t.queue.pool, t.granted
	var now int64
	if t.Started != 0 { // it had to wait, or was beyond the places
		now = d.Now()
		service := now - t.Started
		p.measure(service)
		if t.learner != nil {
			t.learner.Completed(t.Started-t.Submitted, service, now)
			t.learner = nil
		}
	}
	began := int64(0)
	if t.began.Load() != 0 {
		if began = t.began.Swap(0); began < 0 {
			began = -began
		}
		if now == 0 {
			now = d.Now()
		}
	}
	switch ended := t.ended.Load(); {
	case ended == 0 && began != 0:
		d.answered(t, began, now, Good)
	case ended > 0:
		d.answered(t, 0, ended, Good)
	case ended < 0:
		d.answered(t, 0, -ended, Dropped)
	}
	l := p.learning.Load()
	if l != nil && n > 0 {
		p.stuck.oneEnded(t.stuck)
		now = p.measured(l, began, Good, now)
		t.stuck = p.unstuck(l, t.stuck, n) // first, so that its places are not handed on
	}
	if n > 0 && !p.handOn(n, now) {
		p.places.free.Add(n)
		p.look(now)
	}
	if l != nil && n > 0 {
		p.unstuck(l, t.stuck, n) // it may have been found stuck meanwhile
	}
	d.left()
}

// Answered ends the time that is measured for t, which got its places when t.Began tells,
// and says how the work ended. Without it Release ends the time, as Good.
// The first of them counts. It does nothing if t has been released, and got its places
// again, since t.Began was asked.
func (d *Dispatcher) Answered(t *Task, began int64, how Outcome) {
	p := d.pools[0]
	if began == 0 || !t.began.CompareAndSwap(began, 0) {
		return
	}
	if began < 0 {
		began = -began
		if how == Dropped {
			how = Ignored
		}
	}
	now := d.Now()
	if how == Good {
		t.ended.Store(now)
		if t.alone.Load() && p.calm() {
			d.opts.Objective.Answered(now - began)
		}
	} else {
		t.ended.Store(-now)
	}
	if l := p.learning.Load(); l != nil && !p.active.Load().spec.Inline { // which has no places
		p.measured(l, began, how, now)
	}
}

// need returns how many places t takes: at most as many as there are but for those of tasks
// that are stuck.
func (p *pool) need(t *Task) int64 {
	return max(1, min(int64(t.Places()), p.places.limit.Load()-p.stuck.n.Load()))
}

// claim takes n places, if so many are free.
func (s *places) claim(n int64) bool {
	for {
		free := s.free.Load()
		if free < n {
			return false
		}
		if s.free.CompareAndSwap(free, free-n) {
			return true
		}
	}
}

// claimUpTo takes n places, or as many as are free, and returns how many.
func (s *places) claimUpTo(n int64) int64 {
	for {
		free := s.free.Load()
		got := min(n, free)
		if got <= 0 {
			return 0
		}
		if s.free.CompareAndSwap(free, free-got) {
			return got
		}
	}
}

// acquire grants t its places if it may go first, or submits it if it may wait.
func (p *pool) acquire(t *Task, mayWait bool) bool {
	q := p.active.Load()
	if p.d.refusing.Load() || p.d.leaving.Load() {
		if mayWait {
			q.accept(t)
			p.d.shed(t, strategies.ReasonDraining)
		}
		return false
	}
	switch {
	case q.spec.Inline:
		t.granted = 0
	case p.waiting() == 0 && p.places.free.Load() > 0:
		t.granted, t.stuck = p.need(t), p.stuck.times.Load() // before they are in use
		if !p.places.claim(t.granted) {
			if mayWait {
				p.arrive(t)
			}
			return false
		}
	default:
		if mayWait {
			p.arrive(t)
		}
		return false
	}
	q.accept(t)
	if l := p.learning.Load(); l != nil && t.granted > 0 || t.timed() {
		now := max(1, p.d.Now())
		t.begins(p.calm())
		if t.measure(l, now); t.Arrival == 0 {
			t.Arrival = now
		}
	}
	q.events.Started(0)
	return true
}

// arrive submits t, which may have to wait.
func (p *pool) arrive(t *Task) {
	now := p.d.Now()
	if t.Arrival == 0 {
		t.Arrival = now
	}
	p.submitWaiting(t, now)
}

// look is what a worker does that has become free: it takes what is next or, if nothing
// waits, lets the discipline know.
func (p *pool) look(now int64) {
	waits := p.waiting() > 0 || p.places.gathering()
	if !waits && p.places.looks.Load() <= 0 {
		return
	}
	if now == 0 {
		now = p.d.Now()
	}
	if waits {
		p.grant(now)
		return
	}
	p.places.looks.Add(-1)
	p.grantOne(now)
}

// handOn gives the n places that somebody gives back to the task whose turn it is, without
// their being free in between, which would cost more and let others take them. It does
// nothing, and reports so, if none waits or too many places are in use. Now may be 0.
func (p *pool) handOn(n, now int64) bool {
	s := p.places
	if p.waiting() == 0 {
		return false
	}
	if now == 0 {
		now = p.d.Now()
	}
	var w worker // to note what is given up
	p.lines.mu.Lock()
	if s.aside || s.free.Load() < 0 { // or Resize has taken away more than were free
		p.lines.mu.Unlock()
		return false
	}
	s.gathered += n
	t := p.nextGrantLocked(&w, now)
	if s.gathered > 0 && !s.gathering() { // nothing waited after all
		s.endGathering()
	}
	p.lines.mu.Unlock()
	p.giveUp(&w)
	if t != nil {
		p.begin(t, now)
	}
	if t == nil || s.free.Load() > 0 {
		p.look(now)
	}
	return true
}

// gathering reports whether a task has some of its places and waits for others.
func (s *places) gathering() bool { return s.gatherer.Load() != nil }

// grant gives what is free to those whose turn it is.
func (p *pool) grant(now int64) {
	for p.places.free.Load() > 0 && p.waiting() > 0 || p.places.gathering() {
		if !p.grantOne(now) {
			return
		}
	}
}

// grantOne grants the next task its places, if enough are free. It reports whether it
// did.
//
// No wake-up is lost: see the package comment. What a submitter does after its push is
// to look at free, and free was raised before this looks for what was pushed.
func (p *pool) grantOne(now int64) bool {
	var w worker // to note what is given up
	p.lines.mu.Lock()
	t := p.nextGrantLocked(&w, now)
	p.lines.mu.Unlock()
	p.giveUp(&w)
	if t != nil {
		p.begin(t, now)
	}
	return t != nil
}

// begin tells t that it has its places.
func (p *pool) begin(t *Task, now int64) {
	t.Started = now
	t.measure(p.learning.Load(), now)
	waited := max(0, now-t.Submitted)
	q := t.queue
	q.eventsOf(t).Started(time.Duration(waited))
	if q.turns != nil {
		q.turns.TurnBegan(now)
	}
	t.learner = q.learner
	p.d.opts.Grant(t)
}

// nextGrantLocked returns the next task that has got its places, nil if none has. It
// holds lines.mu.
func (p *pool) nextGrantLocked(w *worker, now int64) *Task {
	s, set := p.places, &p.lines.requeued
	first := set.front()
	for first != nil && p.expired(first, now) {
		p.takeRequeued(first)
		w.given = append(w.given, given{first, strategies.ReasonExpired})
		first = set.front()
	}
	if g := s.gatherer.Load(); g != nil && g != first { // it has been given up
		s.endGathering()
	}
	if s.aside {
		return p.nextAsideLocked(w, first, now)
	}
	t := first
	if t == nil {
		if t = p.pop(w, now); t == nil {
			return nil
		}
	}
	need := p.need(t)
	s.gathered += s.claimUpTo(need - s.gathered)
	if s.gathered < need {
		if t != first {
			p.await(t)
			set.pushFront(t)
		}
		if s.gatherer.Load() == nil {
			s.beginGathering(t, t.Places() > 1, p.changePhase)
		}
		return nil
	}
	if t == first {
		p.takeRequeued(t)
	}
	t.granted, t.stuck = need, p.stuck.times.Load()
	if s.gathered -= need; s.gathered != 0 || s.gathering() {
		s.endGathering()
	}
	return t
}

// nextAsideLocked is nextGrantLocked while others may pass the first task, which gathers.
func (p *pool) nextAsideLocked(w *worker, first *Task, now int64) *Task {
	s, set := p.places, &p.lines.requeued
	fits := func(t *Task) bool {
		t.granted, t.stuck = p.need(t), p.stuck.times.Load()
		return !p.expired(t, now) && s.claim(t.granted)
	}
	if t := set.find(fits); t != nil {
		p.takeRequeued(t)
		if t == first {
			s.endGathering()
		}
		return t
	}
	for s.free.Load() > 0 && int64(set.len()) <= s.lookahead() {
		t := p.pop(w, now)
		if t == nil || fits(t) {
			return t
		}
		p.setAsideLocked(t, set)
	}
	return nil
}

// lookahead returns how many tasks that do not fit may be passed, beside the one that
// gathers: they leave the discipline, and so the order that it would keep them in with
// what comes later. The longer that task waits the more, so that they hold up nobody for
// ever.
func (s *places) lookahead() int64 {
	return s.limit.Load() * int64(s.phase/firstPhase)
}

func (p *pool) takeRequeued(t *Task) {
	p.lines.requeued.remove(t)
	p.unawait(t)
}

// beginGathering has t keep what places it gets until they are enough. If others could
// make use of those, they may pass it after a while.
func (s *places) beginGathering(t *Task, bounded bool, change func()) {
	s.gatherer.Store(t)
	if !bounded {
		return
	}
	s.phase = firstPhase
	if s.timer == nil {
		s.timer = time.AfterFunc(s.phase, change)
	} else {
		s.timer.Reset(s.phase)
	}
}

// endGathering gives back what was gathered.
func (s *places) endGathering() {
	s.free.Add(s.gathered)
	s.gatherer.Store(nil)
	s.gathered, s.aside = 0, false
	if s.timer != nil {
		s.timer.Stop()
	}
}

// changePhase lets others pass the task that gathers places, for as long as it has
// gathered, or has it gather for twice as long as the last time: so it is granted in the
// end if those who have places give them back, and others go on if they do not.
func (p *pool) changePhase() {
	s := p.places
	p.lines.mu.Lock()
	if s.gathering() {
		if s.aside {
			s.phase = min(2*s.phase, longestPhase)
		} else {
			s.free.Add(s.gathered)
			s.gathered = 0
		}
		s.aside = !s.aside
		s.timer.Reset(s.phase)
	}
	p.lines.mu.Unlock()
	p.grant(p.d.Now())
}

// makeRoomAside gives up the last of those that wait behind the task that gathers places,
// if with them more tasks wait than may.
func (p *pool) makeRoomAside(q *queue) {
	for p.places.gathering() && p.lines.requeued.len() > 1 {
		p.lines.mu.Lock()
		var t *Task
		if n := p.lines.requeued.len() - 1; n > 0 && q.full(n-1) {
			if t = p.lines.requeued.popBack(); t != nil {
				p.unawait(t)
			}
		}
		p.lines.mu.Unlock()
		if t == nil {
			return
		}
		p.d.shed(t, strategies.ReasonFull)
	}
}
