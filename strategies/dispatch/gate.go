package dispatch

import (
	"time"
)

// maxWriting is how many turns of writes may run at once: where they are batched one worker is left for reads, whatever
// becomes of the writes.
func (p *workers) maxWriting() int64 {
	n := p.limit.width.Load()
	if n > 1 && p.opts.MaxBatch > 1 && !p.opts.Split {
		n--
	}
	return n
}

// beginWriting reports whether another turn of writes may begin, and counts it.
func (p *workers) beginWriting() bool {
	if p.writing.Add(1) <= p.maxWriting() {
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
	case p.writing.Load() < p.maxWriting():
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
