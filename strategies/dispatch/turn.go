package dispatch

import (
	"runtime"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

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
// stopped, or w is one too many. It parks while there is none.
func (p *pool) next(w *worker) (t *Task, how origin, now int64) {
	for {
		if p.tooMany() && p.leave() {
			p.recount(w)
			return nil, handed, 0
		}
		if p.runnable() {
			now = p.d.Now()
			if t, how = p.take(w, now); t != nil {
				return t, how, now
			}
		}
		p.idle.push(w)
		p.recount(w)
		// Look again, now that submitters can see w: see the package comment.
		now = p.d.Now()
		t, how = p.take(w, now)
		switch {
		case t == nil && !p.stopped.Load() && !p.tooMany():
			p.watch()
			w.asleep.Store(true)
			t = p.awaken(w)
			w.asleep.Store(false)
			if t != nil {
				return t, handed, p.d.Now()
			}
		case p.idle.remove(w):
			if t == nil && !p.stopped.Load() {
				continue // to leave
			}
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
			if t == nil || !t.Write {
				p.endWriting()
			}
			if t == nil && p.unwoken.Load() && p.unwoken.Swap(false) {
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
		case what == strategies.Shed && !p.d.observe.Load():
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
		t.begins(t.timed() && p.calm())
		t.queue.events.Started(0)
		p.started(w, w.batch[1:], now)
	case queued:
		p.started(w, w.batch, now)
	}

	n := int64(len(w.batch))
	w.outcome = Good
	if l := p.learning.Load(); l != nil {
		for _, t := range w.batch {
			t.outcome, t.hurried = &w.outcome, l.hurried(t, now)
		}
	}
	p.d.opts.Run(w.batch, p.d.complete)
	if write {
		p.endWriting()
	}
	clear(w.batch)
	l := p.learning.Load()
	if l != nil {
		p.stuck.oneEnded(w.stuck)
	}
	if w.turns++; l != nil || w.turns%timedTurns == 1 || len(w.lessons) > 0 {
		end := p.d.Now()
		p.teach(w, (end-now)/n, end)
		if l != nil && w.outcome != Ignored {
			p.ended(l, concurrency.Sample{Now: end, Began: now, Running: p.counted(), Waiting: p.runnable(), Dropped: w.outcome == Dropped})
		}
	}
	if l != nil {
		w.stuck = p.unstuck(l, w.stuck, 1)
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

// teach tells that a task of the turn took that long.
func (p *pool) teach(w *worker, service, now int64) {
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
