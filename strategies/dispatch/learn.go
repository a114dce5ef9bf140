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
	// Limit is the number, Min and Max are its bounds. Under a strategy without a queue it does not change. It is 0 under
	// Options.Observe, where nothing is learned.
	Limit, Min, Max int
	// Why explains the number in words.
	Why string
	// Stuck is how many run that are not counted, as they seem not to end: see docs/concurrency.md.
	Stuck int
	// Paused says that the latest timed out, so that for now no more begin than concurrency.Options.Min says or, if it is
	// 0, one now and then.
	Paused bool
	// Dropped counts the tasks that ended as Dropped, since learning began.
	Dropped uint64
}

// Outcome is how a task ended, for a learned number.
type Outcome uint8

const (
	// Good is a task that was done.
	Good Outcome = iota
	// Dropped is a task that ran out of time, or that what does the work refused. One that had less than a usual service
	// time until its deadline when it began is Ignored.
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
	// usual is how long good tasks take of late, in nanoseconds, 0 before the first. Unlike law.Service it does not follow
	// those that time out: if all do, they still had time.
	usual atomic.Int64
}

const (
	usualOver = 64 // good tasks, of which it is the mean
	usualMost = 4  // times the mean, as which one counts at most
)

func newLearning(e *engine, o concurrency.Options) (*learning, error) {
	o.Objective, o.Epoch = e.aim, e.opts.Epoch
	l, err := concurrency.New(o)
	if err != nil {
		return nil, err
	}
	return &learning{law: l, bounds: l.Bounds(), floor: o.Min}, nil
}

// aim returns within which time tasks should be answered, or 0 while neither that was set nor their usual time is known.
func (e *engine) aim() time.Duration {
	o := e.opts.Objective
	inForce := o.InForce()
	if inForce == strategies.StandIn && o.Usual() == 0 {
		return 0
	}
	return inForce
}

// halt returns for how long nothing may begin. Where a least number is asked for, that many always may.
func (l *learning) halt() int64 {
	if l.floor > 0 {
		return 0
	}
	return l.Pause()
}

// hurried reports whether t, which begins now, has less than a usual service time left. If it runs out of that, it is
// because it waited, or because of its client.
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
	if by := (min(took, usualMost*usual) - usual) / usualOver; by != 0 { // which costs less than to store it
		l.usual.Store(usual + by)
	}
}

// observed is Learned.Why in observe mode. A law learns by changing how much runs at once. If nobody is held back, it
// cannot distinguish work that is slow because too much of it runs from work that is always slow.
const observed = "in observe mode the number holds nobody back, so nothing is learned"

// learned returns the number, or the sum of all, nil if it is not learned.
func (b *backlog) learned() *Learned {
	limits := *b.limits.Load()
	sum := limits[0].learned()
	for _, m := range limits[1:] {
		l := m.learned()
		if sum == nil || l == nil {
			return nil // it is about to change
		}
		sum.Limit, sum.Min, sum.Max = sum.Limit+l.Limit, sum.Min+l.Min, sum.Max+l.Max
		sum.Why = fmt.Sprintf("the sum of what %d learn, each its own", len(limits))
		sum.Stuck, sum.Paused, sum.Dropped = sum.Stuck+l.Stuck, sum.Paused && l.Paused, sum.Dropped+l.Dropped
	}
	return sum
}

// learned returns the number, nil if it is not learned.
func (m *limit) learned() *Learned {
	l := m.learning.Load()
	if l == nil {
		return nil
	}
	out := &Learned{Limit: m.number(false), Min: l.bounds.Min, Max: l.bounds.Max, Why: l.Why(), Paused: l.Pause() > 0, Dropped: l.dropped.Load()}
	if m.backlog.observe.Load() {
		out.Limit, out.Why = 0, observed
	} else if out.Paused && l.floor > 0 {
		out.Why = fmt.Sprintf("%d at once, and no fewer are allowed: the latest timed out", l.floor)
	} else if n := m.stuck.Load(); n > 0 {
		out.Stuck = int(n)
		if more := out.Limit - l.Limit(); more > 0 { // not at the bound
			out.Why += fmt.Sprintf("; and %d more, as %d do not end", more, n)
		}
	}
	return out
}
