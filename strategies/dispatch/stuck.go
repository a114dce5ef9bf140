package dispatch

import (
	"sync/atomic"
	"time"
)

// stuck are the tasks that ran when something waited, and nothing had ended for long, in
// places, or workers. A number that is learned does not count them, as it would otherwise
// never change again: see the package comment.
type stuck struct {
	n       atomic.Int64  // how many of them have not ended; changes under lines.mu
	times   atomic.Uint32 // how often tasks were found stuck
	ends    atomic.Uint64 // how many tasks have ended
	watched atomic.Bool   // a timer runs
}

const (
	stuckAfter = 100 * time.Millisecond // and
	stuckTimes = 16                     // service times without an end, and what runs is stuck
	stuckFirst = 5 * time.Second        // the same before the first end
	stuckMost  = 5 * time.Second        // what that grows to, if it is not more
)

// watchStuck sees whether anything ends while something waits, if the number is learned.
func (p *pool) watchStuck() {
	if l := p.learning.Load(); l != nil && !p.d.opts.Observe && !p.stuck.watched.Load() && !p.stuck.watched.Swap(true) {
		p.seeStuck(l, stuckWhile(l))
	}
}

// stuckWhile returns how long nothing must end.
func stuckWhile(l *learning) time.Duration {
	if service := l.Service(); service > 0 {
		return stuckAfter + stuckTimes*time.Duration(service)
	}
	return stuckFirst
}

// seeStuck does that for a while, and then for half as long again each time in a row that
// nothing has ended, as more may not help.
func (p *pool) seeStuck(l *learning, while time.Duration) {
	ends := p.stuck.ends.Load()
	time.AfterFunc(while, func() {
		switch {
		case p.waiting() == 0 || p.learning.Load() != l:
			p.stuck.watched.Store(false)
			if p.waiting() > 0 { // it has come meanwhile
				p.watchStuck()
			}
		case p.stuck.ends.Load() == ends && p.full():
			p.pass(l)
			p.seeStuck(l, max(while, min(while+while/2, stuckMost)))
		default:
			p.seeStuck(l, stuckWhile(l))
		}
	})
}

// full reports whether all places are in use, or all workers at work.
func (p *pool) full() bool {
	if p.places != nil {
		return p.places.free.Load() <= 0
	}
	return p.inUse() >= p.width()
}

// pass no longer counts what runs.
func (p *pool) pass(l *learning) {
	p.resize(func() int {
		if p.learning.Load() != l {
			return p.width()
		}
		p.stuck.times.Add(1) // first: what ends from now on may be counted
		n := p.inUse()
		if p.places != nil {
			n -= int(p.places.gathered)
		}
		p.stuck.n.Store(int64(n))
		return p.enforced(l)
	})
}

// unstuck counts again the n places of a task, or of a worker, if it has been found stuck: if
// tasks were less often when it was seen last. It returns how often they were by now.
func (p *pool) unstuck(l *learning, seen uint32, n int64) uint32 {
	times := p.stuck.times.Load()
	if times != seen {
		p.resize(func() int {
			if p.learning.Load() != l {
				return p.width()
			}
			p.stuck.n.Store(max(0, p.stuck.n.Load()-n))
			return p.enforced(l)
		})
	}
	return times
}
