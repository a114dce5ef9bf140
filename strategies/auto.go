package strategies

import (
	"math/bits"
	"sync"
)

// auto needs no setting: it finds out by itself when waiting is too long.
//
// # The law
//
// Its clock counts turns: one begins whenever a worker takes work. While all workers are
// busy, as many turns pass in one service time as there are workers, be it 50 µs or 100 ms.
//
//  1. The limit begins at 16 tasks for each worker, and at 64 at least. Up to it the queue
//     is first-in first-out.
//  2. A longer queue has two parts: the newest tasks, as many as the limit, and the older
//     ones that they have pushed out. The newest are served first, in the order of their
//     arrival. Those pushed out are served when no other waits, the youngest first.
//  3. From half the first limit on the queue is on trial: is this an overload? A look takes
//     8 turns for each worker, and 30 ms at least. It is an overload if three looks after
//     the first find the queue longer, by a 32nd of it, than any look before, with fewer than 8
//     looks in between that do not. A task that left unserved counts as if it still waited.
//     The limit is then at most 16 tasks for each worker, or 24: the 64 of a single worker
//     would take 64 service times.
//  4. If three looks in a row find the queue as long as before, it is a closed loop, whose
//     clients all wait. It is served first-in first-out, however long it is, until it grows
//     or has become shorter by an eighth.
//  5. Tasks are given up in an overload alone, for the reason codel: those pushed out that
//     have waited for 10 ms and for more turns than 3/2 of the limit. While a less important
//     task waits, the first limit counts instead.
//  6. Each push that pushes a task out multiplies the limit by 127/128. Below 24 tasks each
//     turn adds half a task divided by the limit. Each time that a worker finds nothing
//     adds an eighth of a task. So in an overload the limit settles at 8 divided by the
//     square root of the tasks that are too many for each turn, which is the stock that
//     keeps workers busy: 24 tasks at 1.1 times the capacity, 8 at twice, 4 at the least.
//  7. An overload is over when the limit is back where it began, or when a worker has found
//     nothing and then nothing was pushed or popped for 8 turns and 3 for each worker. A
//     trial is over when the queue is short again.
//
// While the queue is longer than the limit, or the limit below where it began, more
// important classes go first, and the least important tasks are pushed out, or displaced
// when the queue is full. A task that would miss its deadline at the pace of the last turns
// is refused as expired at once, unless none waits.
//
// What follows: nobody is refused in a burst that is over within 32 turns for each worker,
// nor in a closed loop, unless its clients begin over so long a time that they look like a
// load that grows. A load past the capacity that comes over so few connections that all of
// them wait before the third look is taken for a closed loop too: nothing tells them apart.
//
// # Why these figures
//
// Simulated with 8 workers and exponential service, from 50 µs to 100 ms alike. At 1.1
// times the capacity 1% of the workers' time is wasted, and 99% of the served take up to
// 6.7 service times, of which the service alone is 4.6. At twice the capacity none is
// wasted, and the figure is 5.1. That is near what is possible: by the formula for M/M/c/K,
// to waste 1% at 1.1 times takes room for 21, and a queue of that length in which the
// oldest give way has 6.3. Service times that vary more want more: with a tenth of the
// requests 31 times as long as the others, 3.5% is wasted. A look lasts 30 ms because some
// thousand connections take as long to be made: a closed loop that begins is no overload.
//
// # What was taken from where
//
// Newest first while a queue stands, and patience that is longer for a queue that comes
// and goes: controlled delay and adaptive LIFO (Nichols and Jacobson, RFC 8289; Maurer,
// "Fail at Scale", ACM Queue 2015). A queue's own waiting as the sign, and priorities of
// which the least go first: DAGOR (Zhou et al., SoCC 2018). A small stock, the rest told
// soon: Breakwater (Cho et al., OSDI 2020). A limit that is learned: Netflix's and Uber's,
// but from how often workers find nothing and how often the queue is too long, which
// needs no baseline of latencies that could drift.
type auto struct {
	workers int // it and what goes by it change under mu
	observe bool
	// most is where the limit begins, stock how far turns lift it, and least how far
	// it falls.
	most, stock, least float64

	mu struct {
		sync.Mutex
		classes [classes]autoClass
		some    uint8 // bit i: something of class i waits
		newest  int   // the length of all lists newest
		spared  list  // what would have been given up but for observe: the law takes it for gone
		without int   // the length of spared
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
		state  autoState
		trial  autoTrial // means something while the queue is on trial, or steady
	}
	room
}

// autoState is what auto takes the queue for.
type autoState uint8

const (
	autoCalm     autoState = iota // it comes and goes
	autoOnTrial                   // it is long, and why is not known yet
	autoSteady                    // it stays as long as it is: a closed loop
	autoOverload                  // more comes than goes
)

// autoTrial is what looks at a queue have found. How many have come is told without
// those that were served: as many as wait, and those that have left unserved since the
// trial began.
type autoTrial struct {
	turn  uint64 // at which the present look began
	since int64  // and when
	peak  int    // the most that have come in this look
	most  int    // and in those before; 0 if there was none
	left  int    // how many have left unserved

	grown  int // how many looks have found more than those before
	others int // looks since
	same   int // of these, how many in a row have found as many
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
	autoShrink      = 1. / 128 // of the limit, for each push that pushes a task out
	autoRefill      = 1. / 2   // tasks, for each turn and divided by the limit
	autoGrow        = 1. / 8   // tasks, for each time that a worker finds nothing
	autoQuiet       = 8        // turns
	autoQuietWorker = 3        // and turns for each worker
	autoAge         = 3. / 2   // turns for each task of the limit
	autoKind        = 10e6     // nanoseconds that a task waits before it is given up, at least
	autoLook        = 30e6     // nanoseconds of a look, at least
	autoLookWorker  = 8        // and turns for each worker, at least
	autoLookQueue   = 8        // and a turn for so many tasks that wait, if it is not longer
	autoGrowth      = 1. / 32  // of what waits, or of the most that any look saw if that is less: what makes a queue longer, or shorter
	autoLooks       = 3        // looks that find it longer, for an overload; or in a row as long, for a steady one
	autoForget      = 8        // looks without growth after which that before is forgotten
	autoGain        = 1. / 32  // the weight of one turn in the pace
	autoOutlier     = 16       // a turn counts for so many times the pace at most

	stampTurn = 20 // the bits of a stamp below those that count turns
)

var (
	_ Remover      = (*auto)(nil)
	_ TurnObserver = (*auto)(nil)
	_ Measurer     = (*auto)(nil)
	_ Resizer      = (*auto)(nil)
)

func newAuto(c Config) Discipline {
	q := &auto{room: roomOf(c), observe: c.Observe}
	q.Resize(c.Workers)
	return q
}

// Resize tells how many workers there are. Where the limit begins goes by that.
func (q *auto) Resize(workers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	calm := q.mu.limit == q.most
	q.workers = max(1, workers)
	q.most = float64(min(max(autoMost*q.workers, autoMostMin), q.capacity))
	q.stock = min(autoStock, q.most/2)
	q.least = max(1, min(autoLeast, q.most/2))
	if calm || q.mu.limit > q.most {
		q.mu.limit = q.most
	}
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
		q.mu.trial.left++
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
	full := false
	switch {
	case q.waiting.Load() < int64(q.capacity):
	case q.mu.without > 0:
		v.Displaced = q.takeLocked(q.mu.spared.front)
	case hopeless:
		return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
	default:
		full = true
		q.mu.trial.left++
		least := uint8(bits.Len8(q.mu.some)) - 1
		if c > least {
			q.lookLocked(now)
			return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
		}
		v.Displaced = q.takeLocked(q.mu.classes[least].oldest())
	}
	if hopeless {
		q.spareLocked(t)
		return v
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
	q.lookLocked(now)
	return v
}

// lookLocked looks at the queue, to which a task has come.
func (q *auto) lookLocked(now int64) {
	n, turn, trial := q.lengthLocked(), q.mu.stamp>>stampTurn, &q.mu.trial
	switch q.mu.state {
	case autoOverload:
		return
	case autoCalm:
		if float64(n) > q.most/2 {
			q.mu.state = autoOnTrial
			*trial = autoTrial{turn: turn, since: now, peak: n}
		}
		return
	}
	came := n + trial.left
	trial.peak = max(trial.peak, came)
	if turn-trial.turn < uint64(autoLookWorker*q.workers) || now-trial.since < autoLook {
		return
	}
	// In parts of what waits: those that have left may be far more, as when little was served for long.
	growth := int(float64(min(trial.most, n)) * autoGrowth)
	if trial.most > 0 && came <= trial.most+growth && turn-trial.turn < uint64(n/autoLookQueue) {
		return
	}
	shrinks := trial.peak < trial.most-growth
	if q.mu.state == autoSteady {
		shrinks = trial.peak < trial.most-trial.most/8
	}
	switch {
	case trial.most == 0:
		trial.most = trial.peak
	case came > trial.most+growth:
		q.mu.state = autoOnTrial
		if trial.grown++; trial.grown == autoLooks {
			q.mu.state = autoOverload
			q.mu.limit = min(q.mu.limit, max(q.stock, float64(autoMost*q.workers)))
			q.pushOutLocked()
		}
		trial.most, trial.same, trial.others = trial.peak, 0, 0
	case shrinks, trial.peak > trial.most+growth:
		q.mu.state, trial.same = autoOnTrial, 0
		trial.others++
	default:
		if trial.same++; trial.same == autoLooks {
			q.mu.state = autoSteady
		}
		trial.others++
	}
	if trial.others == autoForget {
		trial.most, trial.grown, trial.others = trial.peak, 0, 0
	}
	trial.peak, trial.turn, trial.since = came, turn, now
}

// Pop takes the next task, or one that has waited too long.
func (q *auto) Pop(now int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for old := q.tooOldLocked(now); old != nil; old = q.tooOldLocked(now) {
		if !q.observe {
			return q.takeLocked(old), Shed, ReasonCoDel
		}
		q.spareLocked(q.takeLocked(old))
	}
	if q.mu.some == 0 {
		if q.mu.limit += autoGrow; q.mu.state != autoOverload || q.mu.limit >= q.most {
			q.calmLocked()
		}
		q.quietLocked(now)
		q.mu.idle = true
		if q.mu.without > 0 {
			return q.takeLocked(q.mu.spared.front), Run, ReasonNone
		}
		return nil, Empty, ReasonNone
	}
	t := q.takeLocked(q.nextLocked())
	if q.mu.state != autoOverload && float64(q.lengthLocked()) <= min(q.mu.limit, q.most/2) {
		q.calmLocked()
	}
	return t, Run, ReasonNone
}

// spareLocked keeps t, which would be given up but for observe, until there is nothing
// else to do. For the law it is gone, so that as many are told of as would be given up.
func (q *auto) spareLocked(t *Task) {
	if t.WouldShed == ReasonNone {
		t.WouldShed = ReasonCoDel
	}
	q.mu.spared.pushBack(t)
	q.mu.without++
	q.waiting.Add(1)
}

// lengthLocked returns how many tasks wait, by the law.
func (q *auto) lengthLocked() int { return int(q.waiting.Load()) - q.mu.without }

// calmLocked ends a trial, or an overload.
func (q *auto) calmLocked() { q.mu.state, q.mu.limit = autoCalm, q.most }

// quietLocked notes that nothing waits at that time. If nothing has happened for
// long since a worker found nothing, what stood is over.
func (q *auto) quietLocked(now int64) {
	if q.mu.idle && float64(now-q.mu.turned) > float64(autoQuiet+autoQuietWorker*q.workers)*q.mu.pace {
		q.calmLocked()
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
func (q *auto) tooOldLocked(now int64) *Task {
	if q.mu.state != autoOverload || q.mu.newest == q.lengthLocked() {
		return nil
	}
	turn, patience := q.mu.stamp>>stampTurn, autoAge*q.mu.limit
	for some := q.mu.some; some != 0; patience = autoAge * q.most {
		i := bits.Len8(some) - 1
		some &^= 1 << i
		t := q.mu.classes[i].out.front
		if t != nil && turn-t.State.Number>>stampTurn > uint64(patience) && now-t.Submitted >= autoKind {
			return t
		}
	}
	return nil
}

// nextLocked returns the task whose turn it is. Some task waits.
func (q *auto) nextLocked() *Task {
	c := &q.mu.classes[bits.TrailingZeros8(q.mu.some)]
	switch {
	case q.mu.state == autoSteady, float64(q.lengthLocked()) <= q.mu.limit:
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
	before := q.lengthLocked()
	if q.standsLocked() && q.mu.state != autoSteady {
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
	c := &q.mu.classes[class(t)]
	switch {
	case c.newest.holds(t), c.out.holds(t):
		q.mu.trial.left++
	case !q.mu.spared.holds(t):
		return false
	}
	q.takeLocked(t)
	return true
}

// takeLocked takes t, which waits, and returns it.
func (q *auto) takeLocked(t *Task) *Task {
	i := class(t)
	c := &q.mu.classes[i]
	switch {
	case c.newest.holds(t):
		c.newest.remove(t)
		c.n--
		q.mu.newest--
	case q.mu.spared.holds(t):
		q.mu.spared.remove(t)
		q.mu.without--
	default:
		c.out.remove(t)
	}
	if c.oldest() == nil {
		q.mu.some &^= 1 << i
	}
	q.waiting.Add(-1)
	return t
}

// Measured returns the limit, which holds in an overload, and the pace of the turns.
func (q *auto) Measured() Measured {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit := q.most
	if q.mu.state == autoOverload {
		limit = q.mu.limit
	}
	return Measured{Limit: int(limit), Pace: int64(q.mu.pace)}
}
