package strategies

import (
	"cmp"
	"time"
)

// codel serves tasks in the order of their arrival and, while a queue stands,
// sheds those that have waited too long. When it is full, the newest is turned
// away.
//
// Controlled delay (Kathleen Nichols, Van Jacobson and others, RFC 8289) tells a
// queue that stands from a burst by its minimum: a burst is worked off, and the
// wait falls again; if for a whole interval nobody has waited for less than the
// target, the queue only delays. This is taken from the RFC as it is, with its
// two constants: a target of 5 ms and an interval of 100 ms, which Ben Maurer
// ("Fail at Scale", ACM Queue 13 (8), 2015) found to work well for the requests of
// many different services, too. So is the exception for a queue of no more than
// one packet: a queue of at most one task for each worker never stands. It is
// what keeps workers busy, and makes the strategy usable where one task takes
// longer than the target.
//
// What is done to a queue that stands is not the RFC's. It drops one packet, and
// then others at intervals that shrink with the square root of their number, as
// each tells a sender to slow down. Clients of requests do not know each other
// and slow down for nobody, and the queue outgrows the drops: simulated with 8
// workers, 4 ms of exponential service and Poisson arrivals, they keep 0.91 of
// the service capacity as goodput within 100 ms at a load of 2, and 0.21 at 10.
// So all that has waited for more than twice the target is shed, until a task is
// popped that has waited for less than the target: the rule of folly::Codel, which
// Facebook uses. It is twice the target because the oldest task of an overloaded
// queue has always waited for nearly as long as it may. If that were the target,
// each round of shedding would end the state, and another queue would grow for an
// interval. Maurer's article has a simpler rule, a time-out of 5 ms while the
// queue has not been empty for 100 ms. But at loads below 1, where queues may live
// long, that sheds twice as much.
//
// In the same simulation the goodput is 0.99 to 1.00 of the service capacity at
// loads of 1.1 to 10, and the 99th percentile of what is served at most 45 ms. The
// price is paid below that: at 0.95, 1.4% of the requests are shed, which first-in
// first-out would have served in time. And the constants do not fit every service.
// With 50 µs of work, a queue of 256 is always worked off in less than the target,
// and this is fifo. With 100 ms of work and an objective of 2.5 s, hardly anybody
// may wait: the goodput is 0.95 of what is offered at a load of 0.95, and 0.96 to
// 1.00 of the service capacity past 1.
//
// Tasks are shed when a worker pops. It sheds all that have waited too long
// before it gets one to run, so an answer is late by no more than the time until
// the next worker is free.
type codel struct {
	bounded

	// The rest is guarded by mu.

	// firstAbove is the RFC's first_above_time: when the wait, which has been at the
	// target or above for a while, will have been so for an interval.
	firstAbove int64
	above      bool // firstAbove has a meaning: the last task popped waited for the target
	overload   bool // the queue stands

	workers                 int64
	target, interval, limit int64 // limit is of the wait while a queue stands
	observe                 bool
}

var (
	_ Remover = (*codel)(nil)
	_ Resizer = (*codel)(nil)
)

// CoDelOptions are the constants of controlled delay.
type CoDelOptions struct {
	// Target is the wait that tells a standing queue. While one stands, a task that has
	// waited for more than twice the target is shed. 1µs to 1h, 0 means 5ms.
	Target time.Duration
	// Interval is how long every task must have waited for at least Target until the queue
	// counts as standing. 1µs to 1h, 0 means 100ms.
	Interval time.Duration
}

// CoDel returns the strategy codel with other constants than RFC 8289's.
func CoDel(o CoDelOptions) Spec {
	target, interval := cmp.Or(o.Target, 5*time.Millisecond), cmp.Or(o.Interval, 100*time.Millisecond)
	return Spec{
		Name:    "codel",
		Summary: "bounded first-in first-out with controlled delay; when full, the newest is turned away",
		New: func(c Config) Discipline {
			return &codel{
				bounded: boundedOf(c), workers: int64(max(1, c.Workers)),
				target: int64(target), interval: int64(interval), limit: 2 * int64(target),
				observe: c.Observe,
			}
		},
		invalid: cmp.Or(checkDuration("codel", "Target", target), checkDuration("codel", "Interval", interval)),
	}
}

// Resize sets the number of workers.
func (q *codel) Resize(workers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = int64(max(1, workers))
}

// Push adds t unless the queue is full.
func (q *codel) Push(t *Task, _ int64) Verdict {
	return q.pushUnlessFull(t, Verdict{Outcome: TurnedAway, Reason: ReasonFull})
}

// Pop takes the oldest task. It sheds it if it has waited too long while a queue
// stands.
func (q *codel) Pop(now int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.mu.front
	waited := int64(0)
	if t != nil {
		waited = now - t.Submitted
	}
	switch {
	case waited < q.target || q.waiting.Load() <= q.workers:
		q.above, q.overload = false, false
	case !q.above:
		q.above, q.firstAbove = true, now+q.interval
	case now >= q.firstAbove:
		q.overload = true
	}
	q.takeLocked(t)
	if q.overload && waited > q.limit {
		if !q.observe {
			return t, Shed, ReasonCoDel
		}
		t.WouldShed = ReasonCoDel
	}
	return popped(t)
}
