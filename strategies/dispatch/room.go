package dispatch

import "github.com/spillway-go/spillway/strategies"

// full reports whether q has no room beside so many tasks that wait elsewhere. A
// strategy without a queue has no bound either.
func (q *queue) full(elsewhere int) bool {
	c := q.discipline.Cap()
	return c > 0 && q.discipline.Len()+elsewhere >= c
}

// heldUp reports whether there is no room for t in q beside what waits elsewhere: not
// for a write beside those that cannot be begun, nor for a read beside reads alone.
func (p *pool) heldUp(t *Task, q *queue) bool {
	elsewhere, held := p.lines.waiting(), p.lines.held.len()
	switch {
	case elsewhere == 0 || !q.full(elsewhere):
		return false
	case t.Write:
		return held > 0 || p.d.opts.Blocked(false)
	default:
		return held == 0 && p.d.opts.Blocked(false) && int(p.reads.Load()) >= q.discipline.Len()+elsewhere
	}
}

// giveWay holds a write that waits in q and cannot be begun, if as many tasks wait as
// may. It reports whether there is more room in q then.
func (p *pool) giveWay(q *queue, now int64) bool {
	if !q.full(p.lines.waiting()) || int(p.reads.Load()) >= q.discipline.Len()+p.lines.requeued.len() || !p.d.opts.Blocked(false) {
		return false // or no write may be among those in q
	}
	var w worker // to note what is given up
	defer p.giveUp(&w)
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	for {
		switch t := p.pop(&w, now); {
		case t == nil:
			return len(w.given) > 0
		case t.Write:
			p.setAsideLocked(t, &p.lines.held)
			return true
		default: // its turn is before that of the write
			p.setAsideLocked(t, &p.lines.requeued)
		}
	}
}

// makeRoom gives up the oldest writes that are held, if with them more tasks wait
// than may. A queue that others push to meanwhile is theirs to look after.
func (p *pool) makeRoom(q *queue, now int64) {
	if p.places != nil {
		p.makeRoomAside(q)
		return
	}
	for elsewhere := p.lines.waiting(); elsewhere > 0 && q.full(elsewhere-1); elsewhere = p.lines.waiting() {
		if p.lines.held.len() == 0 {
			if !p.giveWay(q, now) {
				return
			}
			continue
		}
		// One at a time, or several would give up more than must be.
		p.lines.mu.Lock()
		var t *Task
		if q.full(p.lines.waiting() - 1) {
			t = p.lines.held.pop()
		}
		p.lines.mu.Unlock()
		if t != nil {
			p.d.shed(t, strategies.ReasonFull)
		}
	}
}
