package dispatch

import "github.com/spillway-go/spillway/strategies"

// admits reports whether there is room for t in q beside what waits elsewhere. A write finds none beside writes
// that cannot be begun, a read none beside reads alone.
func (p *workers) admits(t *Task, q *queue) bool {
	elsewhere, held := int(p.elsewhere.Load()), p.held.len()
	switch {
	case elsewhere == 0 || !q.full(elsewhere):
		return true
	case t.Write:
		return held == 0 && !p.opts.Blocked(false)
	default:
		return held > 0 || int(p.reads.Load()) < q.len()+elsewhere || !p.opts.Blocked(false)
	}
}

// giveWay makes room for a read: if the discipline is full and no write can begin, it takes the next write out of that and
// holds it.
func (p *workers) giveWay(write bool, now int64) bool {
	if write || !p.full(0) || int(p.reads.Load()) >= p.active.Load().len()+p.ahead.len() || !p.opts.Blocked(false) {
		return false // there is room, or reads alone wait, or the writes can begin
	}
	var out rejects
	defer p.shedRejects(&out)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch t := p.pop(now, &out); {
		case t == nil:
			return len(out) > 0
		case t.Write:
			p.held.push(t)
			return true
		default: // its turn is before that of the write
			p.ahead.push(t)
		}
	}
}

// makeRoom sheds the oldest held writes as long as more tasks wait than may. What is pushed meanwhile is looked after by
// who pushes it.
func (p *workers) makeRoom(now int64) {
	for p.elsewhere.Load() > 0 && p.full(-1) {
		if p.held.len() == 0 {
			if !p.giveWay(false, now) {
				return
			}
			continue
		}
		// Under the lock, one at a time, so that several who make room do not shed too many.
		var t *Task
		p.mu.Lock()
		if p.full(-1) {
			t = p.held.pop()
		}
		p.mu.Unlock()
		if t != nil {
			p.shed(t, strategies.ReasonFull)
		}
	}
}
