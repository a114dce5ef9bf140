package strategies

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// auto needs no setting: it finds out by itself what waiting is too long.
//
// # The law
//
// Its clock is the turns of the workers. A worker that takes a task begins one;
// while all are busy, as many turns as there are workers pass in one service
// time, be it 50 µs or 100 ms. So whatever is counted in tasks or in turns suits
// every service, at once when its speed changes, and nothing has to be measured
// that could drift.
//
//  1. A queue of up to limit tasks is served first-in first-out, and nothing is
//     given up. The limit begins at 16 tasks for each worker, 64 at least: below
//     capacity a queue hardly ever gets there.
//  2. A longer queue stands. Of it the newest tasks, as many as the limit, are
//     served first, and those that were pushed out of them when there is nothing
//     else; from the oldest on again once the queue is no longer than the limit.
//  3. Each push that pushes another task out of the newest, or out of a full queue,
//     takes a 128th off the limit. Below 24 tasks, each turn adds half a task
//     divided by the limit. So it settles where the two balance: at 8 divided by the square root of how many tasks are too
//     many for each turn, which is the stock that workers need at that load so as
//     to be busy: 24 tasks at 1.1 times the capacity, 8 at twice, 4 at the least.
//  4. Each time that a worker finds nothing, the limit regains a 512th. If after
//     that nothing is pushed or popped for 8 turns and 3 more for each worker, what
//     stood is over, and the limit is where it began.
//  5. A task that was pushed out of the newest is given up, for the reason codel,
//     when it has waited for more turns than 3/2 of the limit, or, if a less
//     important one waits, than 3/2 of where the limit began.
//
// While the limit is below where it began or the queue is longer, the more
// important classes are served first, and it is the least important that are
// pushed out of the newest, or displaced when the capacity is reached.
//
// A task with a deadline is refused as expired at once if it would not be done
// in time: the pace of the last turns tells when. The pace is noted only while
// tasks wait, so that what a quiet service does says nothing, and a task is let
// in whatever the pace says while none waits, so that it cannot get stuck.
//
// # Where the figures come from
//
// Simulated with 8 workers and exponential service, from 50 µs to 100 ms alike.
// Below capacity it is first-in first-out, and at 0.95 of it one request of 20,000
// is given up. To tell 1.1 times the capacity from 0.95 takes a hundred service
// times in theory, and 16 tasks for each worker are 160 of them; 3 times the
// capacity shows in 8. At 1.1 times, a smaller stock waits less and wastes more of
// the workers' time: with this one it is 0.9%, and 99% of the served take up to 6.6
// service times; at 1.2 times 0.4% and 6.2, at twice nothing and 5.1, of which the
// service alone is 4.6. There is little to be had beyond that: to waste 1% at 1.1
// times takes room for 21, whatever the order, as the formula for M/M/c/K says, and
// a queue of that length in which the oldest give way, which is the order that
// keeps the waits of the served the most alike, has 6.3. Service times of a greater
// variance want a larger stock:
// with a tenth of the requests 31 times as long as the others, 5% is wasted at 1.1
// times the capacity, and nothing at twice.
//
// # What was taken from where
//
// Newest first while a queue stands, and a time that is longer for a queue that
// comes and goes than for one that stays: controlled delay and adaptive LIFO
// (Nichols and Jacobson, RFC 8289; Maurer, "Fail at Scale", ACM Queue 2015).
// There the times are settings, 5 and 100 ms. Here they are counts of turns.
//
// A queue's own waiting as the sign of overload, not the time of an answer: DAGOR
// (Zhou et al., "Overload Control for Scaling WeChat Microservices", SoCC 2018),
// and its priorities of which the least important go first. Breakwater (Cho et
// al., OSDI 2020) has clients that ask for credits first; of it there is that
// workers stay busy from a small stock while the rest is told at once.
//
// A limit that is learnt: from Netflix's gradient and Vegas and Uber's
// rejector (a PID controller beside a Vegas limit), but not from latencies, which
// is where their troubles come from: a minimum that has to be probed for by
// rejecting, a baseline that creeps up in a long incident, or is ruined by health
// checks at night, and a histogram on every completion. How often workers find
// nothing, and how often the queue is too long, need no baseline: the limit is
// small as long as tasks come faster than they go, and large again when workers
// have been idle for a while.
type auto struct {
	capacity, workers int
	observe           bool
	// most is where the limit begins, stock how far turns lift it, and least how far
	// it falls.
	most, stock, least float64

	mu struct {
		sync.Mutex
		classes [classes]autoClass
		some    uint8 // bit i: something of class i waits
		newest  int   // the length of all lists newest
		limit   float64
		// stamp counts turns in its upper bits, and the pushes of the present turn in
		// the lower. It stands in State.Number of a task, to tell its age in turns and
		// which of two is older.
		stamp uint64
		// pace is the mean time between turns while tasks wait, in nanoseconds, 0 as
		// long as none is known.
		pace float64
		// turned is when the last turn began, or a push or a pop found nothing after
		// that. Then idle says whether the last of those was a pop.
		turned int64
		idle   bool
	}
	// waiting is how many tasks wait. It changes under mu and may be read without
	// it.
	waiting atomic.Int64
}

// autoClass holds the tasks of one class of priority. Those that were pushed out
// are older than the newest.
type autoClass struct {
	newest, out list
	n           int // length of newest
}

func (c *autoClass) oldest() *Task {
	if c.out.front != nil {
		return c.out.front
	}
	return c.newest.front
}

const (
	autoMost        = 16       // tasks for each worker
	autoMostMin     = 64       // tasks
	autoStock       = 24       // tasks
	autoLeast       = 4        // tasks
	autoShrink      = 1. / 128 // of the limit, for each push that pushes another task out
	autoRefill      = 1. / 2   // tasks, for each turn and divided by the limit
	autoGrow        = 1. / 512 // of the limit, for each time that a worker finds nothing
	autoQuiet       = 8        // turns
	autoQuietWorker = 3        // and turns for each worker
	autoAge         = 3. / 2   // turns for each task of the limit
	autoGain        = 1. / 32  // the weight of one turn in the pace
	autoOutlier     = 16       // a turn counts for so many times the pace at most

	stampTurn = 20 // the bits of a stamp below those that count turns
)

var (
	_ Remover      = (*auto)(nil)
	_ TurnObserver = (*auto)(nil)
	_ Measurer     = (*auto)(nil)
)

func newAuto(c Config) Discipline {
	q := &auto{capacity: max(1, c.Capacity), workers: max(1, c.Workers), observe: c.Observe}
	q.most = float64(min(max(autoMost*q.workers, autoMostMin), q.capacity))
	q.stock = min(autoStock, q.most/2)
	q.least = max(1, min(autoLeast, q.most/2))
	q.mu.limit = q.most
	return q
}

// Push adds t, unless it could not be done in time. If there is no room, the
// oldest of the least important tasks is displaced, or t turned away if all are
// more important.
func (q *auto) Push(t *Task, now int64) Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := class(t)
	hopeless := q.hopelessLocked(t, now)
	if hopeless {
		if !q.observe {
			return Verdict{Outcome: TurnedAway, Reason: ReasonExpired}
		}
		t.WouldShed = ReasonExpired
	}
	if q.mu.some == 0 {
		q.quietLocked(now)
		q.mu.idle = false
	}
	var v Verdict
	full := q.waiting.Load() == int64(q.capacity)
	if full {
		least := uint8(bits.Len8(q.mu.some)) - 1
		if c > least {
			return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
		}
		v.Displaced = q.takeLocked(q.mu.classes[least].oldest())
	}
	q.mu.stamp++
	t.State.Number = q.mu.stamp
	q.mu.classes[c].newest.pushBack(t)
	q.mu.classes[c].n++
	q.mu.some |= 1 << c
	q.mu.newest++
	q.waiting.Add(1)
	if full || float64(q.mu.newest) > q.mu.limit {
		q.mu.limit = max(q.mu.limit*(1-autoShrink), q.least)
		q.pushOutLocked()
	}
	return v
}

// Pop takes the next task, or one that has waited too long.
func (q *auto) Pop(now int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.some == 0 {
		q.mu.limit = min(q.mu.limit*(1+autoGrow), q.most)
		q.quietLocked(now)
		q.mu.idle = true
		return nil, Empty, ReasonNone
	}
	old := q.tooOldLocked()
	if old != nil && !q.observe {
		return q.takeLocked(old), Shed, ReasonCoDel
	}
	t := q.takeLocked(q.nextLocked())
	if t == old && t.WouldShed == ReasonNone { // its turn has come all the same
		t.WouldShed = ReasonCoDel
	}
	return t, Run, ReasonNone
}

// quietLocked notes that nothing waits at that time. If nothing has happened for
// long since a worker found nothing, what stood is over.
func (q *auto) quietLocked(now int64) {
	if q.mu.idle && float64(now-q.mu.turned) > float64(autoQuiet+autoQuietWorker*q.workers)*q.mu.pace {
		q.mu.limit = q.most
	}
	q.mu.turned = now
}

// pushOutLocked leaves no more tasks among the newest than the limit.
func (q *auto) pushOutLocked() {
	for i := classes - 1; float64(q.mu.newest) > q.mu.limit; i-- {
		for c := &q.mu.classes[i]; c.n > 0 && float64(q.mu.newest) > q.mu.limit; {
			t := c.newest.front
			c.newest.remove(t)
			c.out.pushBack(t)
			c.n--
			q.mu.newest--
		}
	}
}

// standsLocked reports whether a queue stands, or has of late.
func (q *auto) standsLocked() bool { return q.mu.limit < q.most }

// tooOldLocked returns a task that has waited too long, or nil.
func (q *auto) tooOldLocked() *Task {
	if q.mu.newest == int(q.waiting.Load()) {
		return nil
	}
	turn, patience := q.mu.stamp>>stampTurn, autoAge*q.mu.limit
	for some := q.mu.some; some != 0; patience = autoAge * q.most {
		i := bits.Len8(some) - 1
		some &^= 1 << i
		t := q.mu.classes[i].out.front
		if t != nil && turn-t.State.Number>>stampTurn > uint64(patience) {
			return t
		}
	}
	return nil
}

// nextLocked returns the task whose turn it is. Some task waits.
func (q *auto) nextLocked() *Task {
	c := &q.mu.classes[bits.TrailingZeros8(q.mu.some)]
	switch {
	case float64(q.waiting.Load()) <= q.mu.limit:
		if q.standsLocked() {
			return c.oldest()
		}
	case c.n > 0:
		return c.newest.front
	default:
		return c.out.back
	}
	oldest := c.oldest()
	for some := q.mu.some & (q.mu.some - 1); some != 0; some &= some - 1 {
		t := q.mu.classes[bits.TrailingZeros8(some)].oldest()
		if t.State.Number < oldest.State.Number {
			oldest = t
		}
	}
	return oldest
}

// TurnBegan counts and times a turn.
func (q *auto) TurnBegan(now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.stamp = (q.mu.stamp>>stampTurn + 1) << stampTurn
	if q.mu.limit < q.stock {
		q.mu.limit += autoRefill / q.mu.limit
	}
	took := float64(max(now-q.mu.turned, 1))
	q.mu.turned = now
	if q.mu.pace == 0 {
		q.mu.pace = took
		return
	}
	q.mu.pace += (min(took, autoOutlier*q.mu.pace) - q.mu.pace) * autoGain
}

// hopelessLocked reports whether t would not be done in time: what goes before it
// is taken, then t itself, which takes as many turns as there are workers.
func (q *auto) hopelessLocked(t *Task, now int64) bool {
	if t.Deadline == 0 || q.mu.some == 0 {
		return false
	}
	before := int(q.waiting.Load())
	if q.standsLocked() {
		before = 0
		for i := range class(t) + 1 {
			before += q.mu.classes[i].n
		}
	}
	return float64(t.Deadline-now) < float64(before+1+q.workers)*q.mu.pace
}

// Remove takes t out of the queue.
func (q *auto) Remove(t *Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := &q.mu.classes[class(t)]; !c.newest.holds(t) && !c.out.holds(t) {
		return false
	}
	q.takeLocked(t)
	return true
}

// takeLocked takes t, which waits, and returns it.
func (q *auto) takeLocked(t *Task) *Task {
	i := class(t)
	c := &q.mu.classes[i]
	if c.newest.holds(t) {
		c.newest.remove(t)
		c.n--
		q.mu.newest--
	} else {
		c.out.remove(t)
	}
	if c.oldest() == nil {
		q.mu.some &^= 1 << i
	}
	q.waiting.Add(-1)
	return t
}

// Len returns how many tasks wait.
func (q *auto) Len() int { return int(q.waiting.Load()) }

// Cap returns how many tasks may wait.
func (q *auto) Cap() int { return q.capacity }

// Measured returns the limit, and the pace of the turns.
func (q *auto) Measured() Measured {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Measured{Limit: int(q.mu.limit), Pace: int64(q.mu.pace)}
}
