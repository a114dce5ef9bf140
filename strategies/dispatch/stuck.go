package dispatch

import (
	"math"
	"sync/atomic"
	"time"
)

// stuck are the tasks that ran when something waited, and nothing had ended for long, in
// places, or workers. A number that is learned does not count them, as it would otherwise
// never change again: see the package comment.
type stuck struct {
	n       atomic.Int64  // how many of them have not ended; changes under lines.mu
	row     atomic.Int32  // how often tasks were found stuck since one has ended, likewise
	times   atomic.Uint32 // another each time that any are found: see pass
	ended   atomic.Bool   // one that counted has since the timer was set
	watched atomic.Bool   // the timer runs
	timer   *time.Timer   // changes under lines.mu
}

const (
	stuckAfter = 100 * time.Millisecond // and
	stuckTimes = 16                     // service times without an end, and what runs is stuck
	stuckFirst = 5 * time.Second        // the same before the first end
	stuckMost  = 5 * time.Second        // what that grows to, if it is not more
	stuckGrows = 1.5                    // by so much each time in a row
	stuckMore  = 7.                     // times what the law says may begin at most, by the root of that
)

// watchStuck sees whether anything ends while something waits, if the number is learned. It
// is called when something has begun to wait.
func (p *pool) watchStuck() {
	if l := p.learning.Load(); l != nil && !p.d.observe.Load() && !p.stuck.watched.Load() && !p.stuck.watched.Swap(true) {
		p.lines.mu.Lock()
		p.waitForEndLocked(l)
		p.lines.mu.Unlock()
	}
}

// patience returns how long nothing must end. If that has been so already, it is longer, as
// what does the work may have come to a halt. Then more than the law says may begin, but not
// by as much, as those that hang may be first in line.
func (p *pool) patience(l *learning) (while time.Duration, more float64) {
	row, pause := p.stuck.row.Load(), time.Duration(l.halt())
	if pause > 0 && row == 0 {
		return pause, 1
	}
	while = stuckFirst
	if service := l.Service(); service > 0 {
		while = stuckAfter + stuckTimes*time.Duration(min(service, math.MaxInt64/stuckTimes/2))
	}
	while = max(while, pause) // as long as one takes that times out, at least
	grown := math.Pow(stuckGrows, float64(row))
	longer := min(grown, max(1, float64(stuckMost)/float64(while)))
	return time.Duration(longer * float64(while)), min(math.Sqrt(grown), stuckMore)
}

// waitForEndLocked sets the timer anew.
func (p *pool) waitForEndLocked(l *learning) {
	s := &p.stuck
	if p.stopped.Load() {
		return
	}
	s.watched.Store(true)
	s.ended.Store(false)
	while, _ := p.patience(l)
	if s.timer == nil {
		s.timer = time.AfterFunc(while, p.seeStuck)
	} else {
		s.timer.Reset(while)
	}
}

// seeStuck is called when the time is over in which something should have ended.
func (p *pool) seeStuck() {
	l := p.learning.Load()
	p.lines.mu.Lock() // which is held while a task that waits is moved
	waits := l != nil && (p.anyWaits() || l.halt() > 0 && p.stuck.row.Load() == 0)
	p.lines.mu.Unlock()
	if !waits {
		p.stuck.watched.Store(false)
		if p.anyWaits() { // it has come meanwhile
			p.watchStuck()
		}
		return
	}
	if p.full() {
		p.pass(l)
	}
	p.lines.mu.Lock()
	p.waitForEndLocked(l)
	p.lines.mu.Unlock()
}

// anyWaits reports whether anything waits, for its first turn or a further one.
func (p *pool) anyWaits() bool { return p.waiting() > 0 || p.lines.continuations.len() > 0 }

// full reports whether all places are in use, or all workers at work. Where one is left for
// reads, writes that hang are not all: others would wait for the same disk.
func (p *pool) full() bool {
	if p.places != nil {
		return p.places.free.Load() <= 0
	}
	return p.inUse() >= p.width()
}

// pass no longer counts what runs.
func (p *pool) pass(l *learning) {
	p.resize(func() int {
		// In a pause, what the law is told of has set the timer anew.
		pauses := l.halt() > 0 && p.stuck.row.Load() == 0
		if p.learning.Load() != l || p.stuck.ended.Load() && !pauses {
			return p.width()
		}
		// Whatever begins or ends meanwhile may be counted, so it is no more once it has ended.
		p.stuck.times.Add(1)
		n := p.inUse()
		p.stuck.times.Add(1)
		if p.places != nil {
			n -= int(p.places.gathered)
		}
		p.stuck.n.Store(int64(n))
		p.stuck.row.Add(1)
		return p.enforced(l)
	})
}

// unstuck is called when a task of n places, or a worker's turn, has ended. It counts them
// again if they have been found stuck: if tasks were less often when that was seen last. It
// returns how often they were by now.
func (p *pool) unstuck(l *learning, seen uint32, n int64) uint32 {
	times := p.stuck.times.Load()
	if times != seen || p.stuck.row.Load() != 0 {
		p.resize(func() int {
			if p.learning.Load() != l {
				return p.width()
			}
			if times = p.stuck.times.Load(); times != seen {
				p.stuck.n.Store(max(0, p.stuck.n.Load()-n))
			}
			if l.halt() == 0 && p.stuck.row.Swap(0) != 0 && p.stuck.watched.Load() {
				p.waitForEndLocked(l) // not for as long
			}
			return p.enforced(l)
		})
	}
	return times
}

// oneEnded notes that something ends that saw that number of times when it began. It comes
// first, as the timer may be set anew by what else is done then. What was found stuck gives its
// place to nobody, so that it ends says nothing.
func (s *stuck) oneEnded(seen uint32) {
	if seen == s.times.Load() && !s.ended.Load() { // which costs less than to store it
		s.ended.Store(true)
	}
}

// recount counts w again, which is at work no more, if it was found stuck after its turn.
func (p *pool) recount(w *worker) {
	if l := p.learning.Load(); l != nil && p.stuck.times.Load() != w.stuck {
		w.stuck = p.unstuck(l, w.stuck, 1)
	}
}

// none forgets what is stuck. It is called under lines.mu.
func (s *stuck) none() {
	s.n.Store(0)
	s.row.Store(0)
}
