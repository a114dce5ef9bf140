package dispatch

import (
	"runtime"

	"github.com/spillway-go/spillway/strategies"
)

func (p *workers) work(w *worker) {
	for t, how, now := p.next(w); t != nil; t, how, now = p.next(w) {
		p.turn(w, t, how, now)
	}
}

// origin says how a worker came by a task.
type origin uint8

const (
	handed    origin = iota // straight from its submitter
	inPlace                 // run by its submitter
	queued                  // from a queue, or put back ahead of it
	continued               // a continuation
)

// next returns the next task for w and the time, or nil when the pool has stopped, or w is one too many. It parks while
// there is none.
func (p *workers) next(w *worker) (t *Task, how origin, now int64) {
	for {
		if p.tooMany() && p.leave() {
			p.recount(w)
			return nil, handed, 0
		}
		if p.ready() {
			now = p.Now()
			if t, how = p.take(w, now); t != nil {
				return t, how, now
			}
		}
		p.idle.push(w)
		p.recount(w)
		// Look again, now that submitters can see w: see the package comment.
		now = p.Now()
		t, how = p.take(w, now)
		sleeps := t == nil && !p.stopped.Load() && !p.tooMany()
		if !sleeps && p.idle.remove(w) {
			if t == nil && !p.stopped.Load() {
				continue // to leave
			}
			return t, how, now
		}
		// Otherwise somebody has taken w, and is about to wake it.
		if sleeps {
			p.watch()
			w.asleep.Store(true)
		}
		picked := p.awaken(w)
		w.asleep.Store(false)
		switch {
		case t == nil && picked == nil:
			continue // there may be something since
		case t == nil:
			return picked, handed, p.Now()
		case picked != nil:
			if picked.Write {
				p.endWriting()
			}
			p.setAside(picked, &p.ahead)
		}
		return t, how, now
	}
}

// awaken parks w until it is woken, with a task or to look for one.
func (p *workers) awaken(w *worker) *Task {
	t := <-w.wake
	if t != nil && t.Write && p.opts.MaxBatch > 1 {
		runtime.Gosched() // let goroutines that are about to submit a write run first
		counts(p.lingering.Add(-1), "workers linger")
	}
	return t
}

// take returns the task whose turn it is, or nil. While both wait, turns alternate between queue and continuations.
func (p *workers) take(w *worker, now int64) (*Task, origin) {
	if p.continuations.len() > 0 && p.turns.Add(1)%2 == 0 {
		if t := p.nextContinuation(); t != nil {
			return t, continued
		}
	}
	for {
		g := p.gate()
		if g == open && !p.beginWriting() { // others were faster
			g = narrow
		}
		t := p.look(w, now, g)
		if g == open && (t == nil || !t.Write) {
			p.endWriting()
		}
		if t != nil {
			return t, queued
		}
		if g == open && p.unwoken.Load() && p.unwoken.Swap(false) {
			p.wake() // a submitter saw every write slot taken while w scanned the queue, and woke nobody
		}
		// The gate may have opened while w held a write that it has put aside, where Unblock did not see it.
		if g == open || p.gate() != open {
			return p.nextContinuation(), continued
		}
	}
}

func (p *workers) nextContinuation() *Task {
	if p.continuations.len() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.continuations.pop()
}

// look returns the next task for its first turn that may begin through g, or nil. Writes that may not are held. Through a
// narrow gate it takes only what is ahead of the queue: a write slot will be free soon, and whoever gets it goes on in the
// queue's order.
func (p *workers) look(w *worker, now int64, g gate) *Task {
	defer p.shedRejects(&w.given)
	for g == open || p.reads.Load() > 0 {
		if g == open && p.elsewhere() == 0 {
			return p.pop(now, &w.given)
		}
		p.mu.Lock()
		t, _ := p.nextLocked(g, now, &w.given)
		holds := t != nil && t.Write && g != open
		if holds && p.mayWaitLocked(t, now, &w.given) {
			p.held.push(t)
		}
		p.mu.Unlock()
		if !holds {
			return t
		}
		p.makeRoom(now)
	}
	return nil
}

// nextLocked takes the first task there is behind g, and says to which line it goes back if it cannot begin.
func (p *workers) nextLocked(g gate, now int64, out *rejects) (t *Task, from *line) {
	if g == open {
		if t = p.held.popLive(now, out); t != nil {
			return t, &p.held
		}
	}
	if t = p.ahead.popLive(now, out); t == nil && g != narrow {
		t = p.pop(now, out)
	}
	return t, &p.ahead
}

// turn runs t, and if it is a write others that wait with it. The turn began at the given time.
func (p *workers) turn(w *worker, t *Task, how origin, now int64) {
	write := t.Write && how != continued
	if (how == handed || how == inPlace) && t.expired(now) {
		if write {
			p.endWriting()
		}
		p.shed(t, strategies.ReasonExpired)
		return
	}
	if write {
		p.wrote.Store(now)
	}
	w.batch = append(w.batch[:0], t)
	if t.Write && (how == handed || how == queued) && p.opts.MaxBatch > 1 {
		if p.waiting() > 0 {
			p.collect(w, now)
		}
		if how == handed {
			p.noteGroup(len(w.batch) > 1)
		}
	}
	// More may wait, and another worker may be parked.
	p.wake()
	l := p.limit.learning.Load()
	w.outcome = Good
	for i, t := range w.batch {
		waited := int64(-1)
		switch {
		case how == continued:
			t.queue.begins(t, now)
		case i == 0 && how != queued:
			p.beganAtOnce(t.queue, t, now)
		default:
			t.queue.began(t, now, i == 0 || i == 1 && how != queued)
			waited = t.Started - t.Submitted
		}
		if t.Run != 0 || waited >= 0 && t.queue.learner != nil {
			w.lessons = append(w.lessons, lesson{queue: t.queue, waited: waited, run: t.Run})
			t.Run = 0 // when its turn ends, it may be its submitter's again
		}
		if l != nil {
			t.outcome, t.hurried = &w.outcome, l.hurried(t, now)
		}
	}
	n := int64(len(w.batch))
	p.opts.Run(w.batch, p.complete)
	if write {
		p.endWriting()
	}
	clear(w.batch)
	learned := p.limit.learning.Load() != nil
	if w.turns++; learned || w.turns%timedTurns == 1 || len(w.lessons) > 0 {
		end := p.Now()
		p.teach(w, n, now, end)
		if learned {
			w.found = p.limit.end(w.found, 1, max(1, now), end, w.outcome)
		}
	}
}

// noteGroup notes whether others joined a write for which a worker lingered.
func (p *workers) noteGroup(others bool) {
	if !others {
		p.ungrouped.Store(ungroupedFor)
	} else if p.ungrouped.Load() != 0 { // so that workers share the cache line
		p.ungrouped.Store(0)
	}
}

// collect adds further writes to w's turn. A task that cannot join it goes back to where it was held, or ahead of the
// queue, for whoever is free first.
func (p *workers) collect(w *worker, now int64) {
	bytes := w.batch[0].Size
	p.mu.Lock()
	// From a Pop of an empty queue a discipline learns that a worker is idle: there is none unless all that waited has expired.
	for len(w.batch) < p.opts.MaxBatch && p.waiting() > 0 {
		t, from := p.nextLocked(open, now, &w.given)
		if t == nil {
			break
		}
		if !t.Write || bytes+t.Size > p.opts.MaxBatchBytes {
			if p.mayWaitLocked(t, now, &w.given) {
				from.pushFront(t)
			}
			break
		}
		w.batch = append(w.batch, t)
		bytes += t.Size
	}
	p.mu.Unlock()
	p.shedRejects(&w.given)
}

// teach samples a turn of n tasks.
func (p *workers) teach(w *worker, n, began, now int64) {
	service := (now - began) / n
	p.measure(service)
	for _, l := range w.lessons {
		if l.run != 0 {
			l.queue.ends(l.run, int(n), now)
		}
		if l.waited >= 0 {
			l.queue.ended(l.waited, service, now)
		}
	}
	clear(w.lessons)
	w.lessons = w.lessons[:0]
}

// recount counts w again, whose turn has ended, if it was taken for stuck between that and now.
func (p *workers) recount(w *worker) {
	if p.limit.found.Load() != w.found {
		w.found = p.limit.recount(w.found, 1)
	}
}
