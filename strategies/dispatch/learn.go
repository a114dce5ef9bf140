package dispatch

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// Learned is the state of a learned number of workers or places.
type Learned struct {
	// Limit is the number, Min and Max are its bounds. It is 0 under Options.Observe, where
	// nothing is learned.
	Limit, Min, Max int
	// Why explains the number in words.
	Why string
	// Stuck is how many run that are not counted, as they seem not to end: see the package
	// comment.
	Stuck int
	// Paused says that the latest timed out, so that for now no more begin than
	// concurrency.Options.Min says or, if it is 0, one now and then.
	Paused bool
	// Dropped counts the tasks that ended as Dropped, since learning began.
	Dropped uint64
}

// Outcome is how a task ended, for a learned number.
type Outcome uint8

const (
	// Good is a task that was done.
	Good Outcome = iota
	// Dropped is a task that ran out of time, or that what does the work refused. One that
	// had less than a usual service time until its deadline when it began is Ignored.
	Dropped
	// Ignored is a task whose end says nothing of what does the work.
	Ignored
)

// law is what learns: a concurrency.Law.
type law interface {
	Limit() int
	Completed(concurrency.Sample) (limit int, changed bool)
	Pause() int64
	Why() string
	Service() int64
}

// learning is a number that is learned.
type learning struct {
	law
	bounds  concurrency.Options
	floor   int // what is asked for at least, 0 if nothing is
	dropped atomic.Uint64
	// usual is how long good tasks take of late, in nanoseconds, 0 before the first. Unlike
	// law.Service it does not follow those that time out: if all do, they still had time.
	usual atomic.Int64
}

const (
	usualOver = 64 // good tasks, of which it is the mean
	usualMost = 4  // times the mean, as which one counts at most
)

func newLearning(d *Dispatcher, o concurrency.Options) (*learning, error) {
	o.Objective = d.aim
	l, err := concurrency.New(o)
	if err != nil {
		return nil, err
	}
	return &learning{law: l, bounds: l.Bounds(), floor: o.Min}, nil
}

// aim returns within which time tasks should be answered, or 0 as long as neither anybody has set
// that nor the usual service time is known.
func (d *Dispatcher) aim() time.Duration {
	o := d.opts.Objective
	inForce := o.InForce()
	if inForce == strategies.StandIn && o.Usual() == 0 {
		return 0
	}
	return inForce
}

// Learn has the number of workers or places learned from now on: see Options.Learn. It has
// no effect if the number is learned already, or with split pools.
func (d *Dispatcher) Learn(o concurrency.Options) error {
	l, err := newLearning(d, o)
	if err == nil && len(d.pools) == 1 && d.pools[0].learning.Load() == nil {
		d.pools[0].learn(l)
	}
	return err
}

// learn has the number learned by l from now on.
func (p *pool) learn(l *learning) {
	p.resize(func() int {
		p.learning.Store(l)
		p.stuck.none()
		if p.stuck.watched.Load() {
			p.waitForEndLocked(l)
		}
		return p.enforced(l)
	})
	if p.active.Load() != nil && p.anyWaits() {
		p.watchStuck()
	}
}

// halt returns for how long nothing may begin. Where a least number is asked for, that many
// always may.
func (l *learning) halt() int64 {
	if l.floor > 0 {
		return 0
	}
	return l.Pause()
}

// hurried reports whether t, which begins now, has less than a usual service time left. If it
// runs out of that, it is because it waited, or because of its client.
func (l *learning) hurried(t *Task, now int64) bool {
	return t.Deadline != 0 && t.Deadline-now < l.usual.Load()
}

// good notes how long a task took that was good. Of several at once one may go unnoticed.
func (l *learning) good(took int64) {
	usual := l.usual.Load()
	if usual == 0 {
		l.usual.Store(took)
		return
	}
	l.usual.Store(usual + (min(took, usualMost*usual)-usual)/usualOver)
}

// enforced returns how many may run at once while the number is learned by l. In a pause that
// is the floor or, without one, none, and one after it.
func (p *pool) enforced(l *learning) int {
	if p.d.observe.Load() && p.places != nil {
		return unheld
	}
	n := l.Limit()
	switch {
	case l.halt() > 0 && !p.closing.Load():
		n = min(1, int(p.stuck.row.Load()))
	case l.Pause() > 0 && l.floor > 0:
		n = l.floor
	}
	return p.allowed(l, n)
}

// allowed returns how many may run at once if n of those that count may.
func (p *pool) allowed(l *learning, number int) int {
	if p.d.observe.Load() {
		return l.bounds.Max
	}
	n := float64(number)
	if p.stuck.n.Load() > 0 {
		_, more := p.patience(l)
		n *= more
	}
	return int(min(n+float64(p.stuck.n.Load()), float64(l.bounds.Max)))
}

// observed is why a number that is only observed is what it is. A law learns from what
// becomes of the work when more or less of it runs at once. Without that, work that takes
// long since too much of it runs looks like work that always takes so long. The first
// should wait and be shed, the second not, and what comes and goes is the same.
const observed = "in observe mode the number holds nobody back, so nothing is learned"

// unheld is how many places there are where nobody is to be held back.
const unheld = 1 << 20

// number returns how many workers, or places, there are, or would be without a pause.
func (p *pool) number() int {
	if l := p.learning.Load(); l != nil {
		return p.allowed(l, l.Limit())
	}
	return p.width()
}

// learned tells of the number, or returns nil if it is not learned.
func (p *pool) learned() *Learned {
	l := p.learning.Load()
	if l == nil {
		return nil
	}
	told := &Learned{Limit: p.allowed(l, l.Limit()), Min: l.bounds.Min, Max: l.bounds.Max, Why: l.Why(), Paused: l.Pause() > 0, Dropped: l.dropped.Load()}
	if p.d.observe.Load() {
		told.Limit, told.Why = 0, observed
	} else if told.Paused && l.floor > 0 {
		told.Why = fmt.Sprintf("%d at once, and no fewer are allowed: the latest timed out", l.floor)
	} else if n := p.stuck.n.Load(); n > 0 {
		told.Stuck = int(n)
		if more := told.Limit - l.Limit(); more > 0 { // not at the bound
			told.Why += fmt.Sprintf("; and %d more, as %d do not end", more, n)
		}
	}
	return told
}

// measured tells l of the end of a task that began at that time, unless it is 0: it was
// told then, or nobody measures it. Now may be 0. It returns the time.
func (p *pool) measured(l *learning, began int64, how Outcome, now int64) int64 {
	if began == 0 || how != Good && how != Dropped {
		return now
	}
	if now == 0 {
		now = p.d.Now()
	}
	p.ended(l, concurrency.Sample{Now: now, Began: began, Running: p.counted(), Waiting: p.waiting() > 0, Dropped: how == Dropped})
	return now
}

// counted is inUse without what is stuck, but for one that ends now.
func (p *pool) counted() int { return max(1, p.inUse()-int(p.stuck.n.Load())) }

// ended tells the law of a sample, and has as many workers or places as it says then.
func (p *pool) ended(l *learning, s concurrency.Sample) {
	if s.Dropped {
		l.dropped.Add(1)
	} else {
		l.good(s.Now - s.Began)
	}
	if p.d.observe.Load() {
		return // see observed
	}
	if _, changed := l.Completed(s); !changed && l.Pause() == 0 {
		return
	}
	p.resize(func() int {
		if p.learning.Load() != l { // the number has been given meanwhile
			return p.width()
		}
		paused := l.halt() > 0
		if paused {
			p.stuck.row.Store(0)
		}
		if paused || p.stuck.watched.Load() {
			p.waitForEndLocked(l)
		}
		return p.enforced(l)
	})
}
