package dispatch

import "time"

// beginWriting reports whether another turn of writes may begin, and counts it.
func (p *workers) beginWriting() bool {
	if p.writing.Add(1) <= p.maxWriting.Load() {
		return true
	}
	p.writing.Add(-1)
	return false
}

// endWriting takes back what beginWriting has counted, after a turn or without one.
func (p *workers) endWriting() { counts(p.writing.Add(-1), "turns of writes") }

// gate is what a worker may take.
type gate uint8

const (
	open   gate = iota // anything
	narrow             // no write: every write slot is taken, and one will be free soon
	shut               // no write: Blocked says so, or the writes that run hang
)

// hang is how long a turn of writes runs before it is said to hang.
const hang = int64(10 * time.Millisecond)

func (p *workers) gate() gate {
	switch {
	case p.opts.Blocked(false):
		return shut
	case p.writing.Load() < p.maxWriting.Load():
		return open
	case p.Now()-p.wrote.Load() >= hang:
		return shut
	default:
		return narrow
	}
}

// mayBegin reports whether a worker could begin t at once, and nothing waits that it could begin instead.
func (p *workers) mayBegin(t *Task) bool {
	g := p.gate()
	return (g == open || !t.Write) && !p.readyThrough(g) && (g != narrow || p.reads.Load() == 0)
}

// ready reports whether something waits that a worker could run.
func (p *workers) ready() bool { return p.readyThrough(p.gate()) }

func (p *workers) readyThrough(g gate) bool {
	if p.continuations.len() > 0 {
		return true
	}
	switch g {
	case open:
		return p.waiting() > 0
	case narrow:
		return p.ahead.len() > 0 && p.reads.Load() > 0
	default:
		return p.reads.Load() > 0
	}
}

// watch has a worker woken after hang, if reads wait behind writes by then.
func (p *workers) watch() {
	if p.reads.Load() == 0 || p.watching.Swap(true) {
		return
	}
	time.AfterFunc(time.Duration(hang), func() {
		p.watching.Store(false)
		p.wake()
		if p.idle.n.Load() > 0 {
			p.watch()
		}
	})
}

// admits reports whether there is room for t in q beside what waits elsewhere. A write finds none beside writes
// that cannot be begun, a read none beside reads alone.
func (p *workers) admits(t *Task, q *queue) bool {
	elsewhere, held := p.elsewhere(), p.held.len()
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
		case !p.mayWaitLocked(t, now, &out):
		case t.Write:
			p.held.push(t)
			return true
		default: // its turn is before that of the write
			p.ahead.push(t)
		}
	}
}

// surplus returns the oldest held write or, where reads alone wait while writes are blocked, the last of those ahead of the
// queue.
func (p *workers) surplus(now int64) (t *Task) {
	for t == nil && p.elsewhere() > 0 && p.full(-1) {
		alone := p.held.len() == 0
		switch {
		case alone && !p.opts.Blocked(false):
			return nil
		case alone && p.giveWay(false, now):
			continue
		}
		p.mu.Lock() // one at a time, so that several who make room do not shed too many
		if p.full(-1) {
			if t = p.held.pop(); t == nil && alone {
				t = p.ahead.remove(p.ahead.last)
			}
		}
		p.mu.Unlock()
	}
	return t
}
