package concurrency

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the bounds of a Law.
type Options struct {
	// Min is the least that may run at once: 1 if it is 0, and none in a pause then.
	Min int
	// Max is the most: DefaultMax if it is 0, or Min if that is more.
	Max int
	// Initial is how many run at once at first: 4, or the nearest bound, if it is 0.
	Initial int
	// Epoch is the wall-clock time at which the clock of samples was 0, so that several learners
	// before one resource see together how long requests take there with more and with fewer.
	Epoch time.Time
	// Objective, if not nil, returns within which time answers should come, or 0. It is
	// called at times, and must not block.
	Objective func() time.Duration
}

// DefaultMax is how many may run at once at most, if nothing else is said.
const DefaultMax = 10_000

// Sample is one request that has ended.
type Sample struct {
	// Now is when it ended, and Began when its service began, both in nanoseconds on
	// one monotonic clock. Concurrent callers may pass slightly disordered times.
	Now, Began int64
	// Running is how many ran when it ended, itself included.
	Running int
	// Waiting says that work waited for a place when it ended, so that its place was
	// taken again at once.
	Waiting bool
	// Dropped says that it was no good: its time was up, or the resource refused it.
	// An answer that merely says no, as a 404 does, is not dropped.
	Dropped bool
}

// Law learns how many requests to run at once, as the package comment says. Its methods may be called
// by any number of goroutines at once.
type Law struct {
	limit, pause atomic.Int64

	mu struct {
		sync.Mutex
		law
	}
}

// New returns a law that begins with the first request it is told of, or an error that says
// which bounds are wrong.
func New(o Options) (*Law, error) {
	if o.Min < 0 || o.Max < 0 {
		return nil, fmt.Errorf("concurrency: at least %d, at most %d: neither may be less than 0", o.Min, o.Max)
	}
	least := max(o.Min, 1)
	most := o.Max
	if most == 0 {
		most = max(DefaultMax, least)
	}
	if least > most {
		return nil, fmt.Errorf("concurrency: at least %d is more than at most %d", least, most)
	}
	if o.Initial != 0 && (o.Initial < least || o.Initial > most) {
		return nil, fmt.Errorf("concurrency: %d at first, %d to %d is allowed, or 0 for the default", o.Initial, least, most)
	}
	l := &Law{}
	l.mu.law = newLaw(o, least, most, cmp.Or(o.Initial, min(max(first, least), most)))
	l.limit.Store(int64(l.mu.limit))
	return l, nil
}

// Bounds returns the bounds, with their defaults.
func (l *Law) Bounds() Options { return Options{Min: l.mu.least, Max: l.mu.most} } // which never change

// Limit returns how many may run at once now.
func (l *Law) Limit() int { return int(l.limit.Load()) }

// Service returns how long requests take of late, in nanoseconds, or 0 before the first has
// ended. A few that take far longer change it little.
func (l *Law) Service() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.mu.service)
}

// Pause returns how long nothing may begin after an end, in nanoseconds: 0 as a rule. Then one
// request may begin, and what becomes of it decides whether there is another pause.
func (l *Law) Pause() int64 { return l.pause.Load() }

// Why tells, in words for people, why the limit is what it is.
func (l *Law) Why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.why()
}

// Completed is told of each request that has ended. It returns the limit, and whether
// that is another than before, or a pause has begun or is over.
func (l *Law) Completed(s Sample) (limit int, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, pause := l.mu.limit, l.mu.guard.pause()
	l.mu.learn(s)
	if l.mu.limit != before {
		l.limit.Store(int64(l.mu.limit))
	}
	now := l.mu.guard.pause()
	if now != pause {
		l.pause.Store(now)
	}
	return l.mu.limit, l.mu.limit != before || (now > 0) != (pause > 0)
}
