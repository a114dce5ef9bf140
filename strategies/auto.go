package strategies

import (
	"math"
	"math/bits"
	"sync"
)

// auto refuses what would be answered later than the objective: the time from its arrival within
// which a request should be answered.
//
// A dispatch is a worker that begins with what it has popped, mostly one task. The interval is the
// mean time from one task to the next while tasks wait, over the last 512 + 16 · workers tasks. If that
// over the last 64 + 4 · workers is more than three times as long, or less than a third, it is taken
// instead. The service time is the interval times the number of workers, as all are busy then. A gap
// counts for at most 16 service times, so that a stall is not taken for a rate. So many tasks may wait
// such that the last is answered in time:
//
//	B = max((objective - service time) / interval, workers)
//
// While no more wait, auto is a FIFO queue, and none is late but by its own deadline.
//
//	state      refused as late
//	normal     none
//	congested  the oldest, while more than max(5/4 B, 40) wait
//	overload   the same, and who has waited for min(36 intervals, objective - service time)
//	probing    the oldest, as when congested
//
//	from       to         when
//	normal     congested  more than B wait
//	congested  normal     at most B have waited for min(64, B) dispatches
//	           overload   512 dispatches have passed, and an objective
//	overload   probing    16 times the dispatches of the last probing have passed, at least 2,048 and
//	                      at most 8,192: those refused may be those who come again
//	probing    overload   more than B wait
//	           normal     at most B have waited for 16 B dispatches
//	any        normal     idle polls less refusals, which is 0 when an overload begins and never below,
//	                      are 256; or the queue has been empty for 8 + 3 · workers intervals; or there
//	                      is no objective
//
// Except in the normal state the newest is next while more than min(24, B/4) wait, and the oldest
// otherwise; the most important class is served first, and the least important refused first.
//
// A task that would miss its own deadline in order of arrival counts as more than B tasks. So does one
// with a deadline that is given up, and it is subtracted from the idle polls as a refusal. A task that
// would miss its deadline even if it were next in its class is refused on arrival, unless none waits.
//
// While the service time is more than half of the objective, and once there was no dispatch for
// max(objective, 16 service times), B is the number of workers, and no more wait. While it is more than
// the objective, none is refused for how long it has waited, so that workers always find a task, and the
// oldest is next, so that each waits for one service time. Until 64 + 4 · workers tasks were dispatched
// neither case of the service time arises, and max(3 B, 40) may wait. Then, and without a dispatch, one
// may wait for the objective in an overload. Before the first dispatch none is late.
//
// As a control, one of 100 refusals, but at most one in 500 dispatches, is spared: it is served
// once nothing else waits, or its objective has passed.
//
// In M/M/c at a load of 0.9 at most 0.9^40, 1.5%, find 40 waiting. In M/M/1 at 1.1, a queue of 24
// leaves the worker idle for 0.9% of the time. loadtest/sim/objective_test.go compares auto with
// other strategies in thousands of settings.
//
// Newest first once a queue stands: adaptive LIFO (Maurer, "Fail at Scale", ACM Queue 2015).
// Waiting as the sign of overload, and classes: DAGOR (Zhou et al., SoCC 2018). A short standing
// queue and early refusals: Breakwater (Cho et al., OSDI 2020). Admission by the predicted time:
// Bouncer (Xu and Colmenares, SIGMOD 2024).
type auto struct {
	objective *Objective
	observe   bool
	workers   int // changes under mu

	mu struct {
		sync.Mutex
		classes  [classes]autoClass
		occupied uint8 // bit i: something of class i waits
		// spared holds what would have been refused but for observe, or is a control. It does not
		// count as waiting. without is its length.
		spared  list
		without int
		pushes  uint64 // State.Number of the last task

		state      autoState
		began      int64 // the time at which it was congested
		entered    int64 // the dispatch at which the state began
		exceeded   int64 // the last dispatch at which more than B waited
		spare      int   // how often workers found nothing, less the refusals
		probeAfter int64 // dispatches of the overload until the next probing

		dispatches int64
		dispatched int64 // the time of the last one, or at which the queue was last seen empty
		emptyAt    int64 // when a worker last found nothing, 0 if a task has come since
		popped     int   // tasks since the last dispatch
		interval   float64
		recent     float64 // the interval of the last tasks
		samples    float64 // tasks that interval is the mean of
		// service is the service time in one client's queue of fair, where workers is how many these tasks keep
		// busy. 0 if it is not known.
		service float64
		// shares is the reciprocal of that client's share: 512 dispatches of all are 512 / shares of its own.
		shares float64

		refusals int   // since the last control
		sparedAt int64 // the dispatch of that
	}
	room
}

// autoState is a state of the table above.
type autoState uint8

const (
	autoNormal autoState = iota
	autoCongested
	autoOverload
	autoProbing
)

// autoClass holds the tasks of one class of priority, the oldest in front.
type autoClass struct {
	list
	n int // its length
}

const (
	autoSlack       = 5. / 4 // of B: how many may wait but in the normal state
	autoSlackMin    = 40     // tasks that may, however small B is
	autoFloor       = 24     // tasks up to which the oldest is next
	autoFloorShare  = 1. / 4 // of B, if that is less
	autoAge         = 36     // intervals that a task may wait in an overload: 3/2 of the floor
	autoSettle      = 64     // dispatches with at most B waiting until it is normal
	autoLasts       = 512    // dispatches until it is an overload
	autoSpare       = 256    // times that workers find nothing until it is over
	autoQuiet       = 8      // intervals without a task until it is over
	autoQuietEach   = 3      // and for each worker
	autoProbeFactor = 16     // times as long as the last probing took until the next
	autoProbeMin    = 2048   // dispatches until the next
	autoProbeMax    = 8192
	autoProbeFor    = 16 // dispatches of a probing for each task of B
	autoStall       = 16 // service times without a dispatch until it is a stall

	autoMemory     = 512 // tasks that the interval is the mean of
	autoMemoryEach = 16  // and for each worker
	autoRecent     = 64  // tasks of the recent interval
	autoRecentEach = 4   // and for each worker
	autoJump       = 3   // a factor between the two that is no chance

	autoControl    = 100 // of so many refusals one is spared
	autoControlGap = 500 // dispatches between two of them at least
)

var (
	_ Remover      = (*auto)(nil)
	_ TurnObserver = (*auto)(nil)
	_ Measurer     = (*auto)(nil)
	_ Resizer      = (*auto)(nil)
)

func newAuto(c Config) Discipline {
	q := new(auto)
	q.init(c)
	return q
}

func (q *auto) init(c Config) {
	q.capacity, q.observe, q.objective = max(1, c.Capacity), c.Observe, c.Objective
	if q.objective == nil {
		q.objective = new(Objective)
	}
	q.Resize(c.Workers)
}

// Resize sets the number of workers.
func (q *auto) Resize(workers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = max(1, workers)
}

// Push adds t, unless it would miss its own deadline. The oldest of the least important is
// displaced if the queue is full, or if it is late.
func (q *auto) Push(t *Task, now int64) Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pushLocked(t, now)
}

func (q *auto) pushLocked(t *Task, now int64) Verdict {
	c := class(t)
	if q.waiting.Load() == 0 {
		if q.mu.emptyAt != 0 && q.quietLocked(q.mu.emptyAt, now) {
			q.mu.state = autoNormal
		}
		q.mu.dispatched, q.mu.emptyAt = now, 0
	}
	waits, soonest := q.behindLocked(t)
	if !q.observe && q.missesLocked(t, soonest, now) {
		return Verdict{Outcome: TurnedAway, Reason: ReasonLate}
	}
	tight := q.missesLocked(t, waits, now)
	var v Verdict
	if q.fullLocked() {
		if q.mu.spared.front == nil && c > q.leastLocked() {
			return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
		}
		v.Displaced = q.surplus()
		q.takeLocked(v.Displaced)
	}
	q.mu.pushes++
	t.State.Number = q.mu.pushes
	q.mu.classes[c].pushBack(t)
	q.mu.classes[c].n++
	q.mu.occupied |= 1 << c
	q.waiting.Add(1)
	late := q.judgeLocked(tight, now)
	switch {
	case v.Displaced != nil || late == nil:
	case late != t:
		if v.Displaced = q.refuseLocked(late); v.Displaced != nil {
			v.Reason = ReasonLate
		}
	case q.refuseLocked(t) != nil: // it is the least important
		return Verdict{Outcome: TurnedAway, Reason: ReasonLate}
	}
	return v
}

// quietLocked reports whether an overload is over if nothing has happened since then.
func (q *auto) quietLocked(since, now int64) bool {
	return float64(now-since) > float64(autoQuiet+autoQuietEach*q.workers)*q.mu.interval
}

// leastLocked returns the least important class of which something waits.
func (q *auto) leastLocked() uint8 { return uint8(bits.Len8(q.mu.occupied)) - 1 }

// surplus returns the task that leaves when the queue is full: the oldest of the least important. Something waits.
func (q *auto) surplus() *Task {
	if t := q.mu.spared.front; t != nil {
		return t
	}
	return q.mu.classes[q.leastLocked()].front
}

// Pop takes the next task, or one that is late.
func (q *auto) Pop(now int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for late := q.judgeLocked(false, now); late != nil; late = q.judgeLocked(false, now) {
		if t := q.refuseLocked(late); t != nil {
			return t, Shed, ReasonLate
		}
	}
	t := q.mu.spared.front
	switch {
	case q.mu.occupied != 0 && (t == nil || q.observe || now-t.Arrival < int64(q.objective.InForce())):
		t = q.nextLocked(now)
	case t == nil:
		q.mu.dispatched, q.mu.emptyAt = now, now
		if q.mu.spare++; q.mu.spare >= autoSpare {
			q.mu.state = autoNormal
		}
		return nil, Empty, ReasonNone
	}
	q.takeLocked(t)
	q.mu.popped++
	return t, Run, ReasonNone
}

// TurnBegan counts a dispatch, and measures the interval.
func (q *auto) TurnBegan(now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatchLocked(now)
}

func (q *auto) dispatchLocked(now int64) {
	if q.mu.popped == 0 { // it counted in another worker's dispatch
		return
	}
	took, n, workers := float64(max(now-q.mu.dispatched, 1)), float64(q.mu.popped), float64(q.workers)
	q.mu.dispatched, q.mu.popped = now, 0
	q.mu.dispatches++
	// The first tasks of all workers count as one sample: they may end together.
	recent := autoRecent + autoRecentEach*workers
	if q.mu.samples >= recent {
		took = min(took, autoStall*workers*q.mu.interval)
	}
	q.mu.samples = min(q.mu.samples+n, autoMemory+autoMemoryEach*workers)
	q.mu.interval += (took - n*q.mu.interval) / max(q.mu.samples, workers)
	q.mu.recent += (took - n*q.mu.recent) / max(min(q.mu.samples, recent), workers, n)
	if q.mu.samples >= 2*recent && (q.mu.recent > autoJump*q.mu.interval || q.mu.recent*autoJump < q.mu.interval) {
		q.mu.interval, q.mu.samples = q.mu.recent, recent
	}
}

// lengthLocked returns how many tasks wait, but for the spared.
func (q *auto) lengthLocked() int { return int(q.waiting.Load()) - q.mu.without }

// serviceLocked returns how long a task takes at present, in nanoseconds: all workers are
// busy while tasks wait.
func (q *auto) serviceLocked() float64 {
	if q.mu.service != 0 {
		return q.mu.service
	}
	return q.mu.interval * float64(q.workers)
}

// limitsLocked returns B, how many tasks may wait until the oldest is refused, and for how long one
// may in an overload, in nanoseconds.
func (q *auto) limitsLocked(now int64) (limit, most, age float64) {
	objective, workers := float64(q.objective.InForce()), float64(q.workers)
	left, known := objective-q.serviceLocked(), q.mu.samples >= autoRecent+autoRecentEach*workers
	switch {
	case q.mu.interval == 0:
		return float64(q.capacity), float64(q.capacity), objective
	case float64(now-q.mu.dispatched) > max(objective, autoStall*workers*q.mu.interval):
		return workers, workers, objective
	case known && left <= 0:
		return workers, workers, math.Inf(1)
	case known && left < q.serviceLocked():
		return workers, workers, left
	}
	limit = max(left/q.mu.interval, workers)
	if !known {
		return limit, max(autoJump*limit, autoSlackMin), objective
	}
	return limit, max(autoSlack*limit, autoSlackMin), min(left, autoAge*q.mu.interval)
}

// judgeLocked moves on to the present state. It returns a task that is late, nil if
// none is. Tight says that the task just pushed misses its own deadline in order of arrival.
func (q *auto) judgeLocked(tight bool, now int64) *Task {
	length := q.lengthLocked()
	switch {
	case q.mu.occupied == 0, q.mu.state == autoNormal && length <= q.workers && !tight:
		return nil
	case q.objective.InForce() == 0:
		q.mu.state = autoNormal
		return nil
	}
	n := float64(length)
	limit, most, age := q.limitsLocked(now)
	over := n > limit || tight
	if over {
		q.mu.exceeded = q.mu.dispatches
	}
	lasted := q.mu.dispatches - q.mu.entered
	switch q.mu.state {
	case autoNormal:
		if !over {
			return nil
		}
		q.enterLocked(autoCongested)
		q.mu.began = now
	case autoCongested:
		switch {
		case !over && q.mu.dispatches-q.mu.exceeded >= int64(min(autoSettle, limit)):
			q.enterLocked(autoNormal)
			return nil
		case float64(lasted)*max(1, q.mu.shares) >= autoLasts && now-q.mu.began >= int64(q.objective.InForce()):
			q.enterLocked(autoOverload)
			q.mu.spare, q.mu.probeAfter = 0, autoProbeMin
		}
	case autoOverload:
		if lasted >= q.mu.probeAfter {
			q.enterLocked(autoProbing)
		}
	case autoProbing:
		switch {
		case over:
			q.enterLocked(autoOverload)
			q.mu.probeAfter = min(max(autoProbeFactor*lasted, autoProbeMin), autoProbeMax)
		case float64(lasted) >= autoProbeFor*limit:
			q.enterLocked(autoNormal)
			return nil
		}
	}
	oldest := q.mu.classes[q.leastLocked()].front
	if n > most || q.mu.state == autoOverload && float64(now-oldest.Arrival) > age {
		return oldest
	}
	return nil
}

func (q *auto) enterLocked(s autoState) {
	q.mu.state, q.mu.entered = s, q.mu.dispatches
}

// refuseLocked takes out t, which is late, and returns it to be refused, or nil if it is spared.
func (q *auto) refuseLocked(t *Task) *Task {
	q.takeLocked(t)
	q.mu.refusals++
	q.mu.spare = max(0, q.mu.spare-1)
	if !q.observe {
		if q.mu.refusals < autoControl || q.mu.dispatches-q.mu.sparedAt < autoControlGap {
			return t
		}
		t.WouldShed = ReasonLate
	}
	q.mu.refusals, q.mu.sparedAt = 0, q.mu.dispatches
	q.mu.spared.pushBack(t)
	q.mu.without++
	q.waiting.Add(1)
	return nil
}

// nextLocked returns the task to be served next. Some task waits.
func (q *auto) nextLocked(now int64) *Task {
	if q.mu.state != autoNormal {
		c := &q.mu.classes[bits.TrailingZeros8(q.mu.occupied)]
		limit, _, age := q.limitsLocked(now)
		if math.IsInf(age, 1) || float64(q.lengthLocked()) <= min(autoFloor, autoFloorShare*limit) {
			return c.front
		}
		return c.back
	}
	var oldest *Task
	for some := q.mu.occupied; some != 0; some &= some - 1 {
		t := q.mu.classes[bits.TrailingZeros8(some)].front
		if oldest == nil || t.State.Number < oldest.State.Number {
			oldest = t
		}
	}
	return oldest
}

// behindLocked returns how many tasks go before t in order of arrival, and newest first.
func (q *auto) behindLocked(t *Task) (waits, soonest int) {
	for i := range class(t) {
		soonest += q.mu.classes[i].n
	}
	return q.lengthLocked(), soonest
}

// missesLocked reports whether t would miss its own deadline at the present interval if so many
// tasks went before it.
func (q *auto) missesLocked(t *Task, before int, now int64) bool {
	return t.Deadline != 0 && q.mu.occupied != 0 && q.objective.InForce() != 0 &&
		float64(t.Deadline-now) < float64(before+1)*q.mu.interval+q.serviceLocked()
}

// Remove takes t out of the queue.
func (q *auto) Remove(t *Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.classes[class(t)].holds(t) && !q.mu.spared.holds(t) {
		return false
	}
	q.takeLocked(t)
	if t.Deadline != 0 { // it has passed, or its client has left: that is as good as a refusal
		q.mu.exceeded = q.mu.dispatches
		q.mu.spare = max(0, q.mu.spare-1)
	}
	return true
}

// takeLocked takes t, which waits.
func (q *auto) takeLocked(t *Task) {
	q.waiting.Add(-1)
	if q.mu.spared.holds(t) {
		q.mu.spared.remove(t)
		q.mu.without--
		return
	}
	i := class(t)
	c := &q.mu.classes[i]
	c.remove(t)
	if c.n--; c.n == 0 {
		q.mu.occupied &^= 1 << i
	}
}

// Measured returns how many tasks may wait until the oldest is refused, and the interval.
func (q *auto) Measured() Measured {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := Measured{Pace: int64(q.mu.interval)}
	if q.mu.interval != 0 && q.objective.InForce() != 0 {
		_, most, _ := q.limitsLocked(q.mu.dispatched)
		m.Limit = int(min(most, float64(q.capacity)))
	}
	return m
}

// What follows is for fair, which has a queue for each client, and a lock that is held whenever one of them is used.

// pushAs is Push after so many pushes, counted over all queues.
func (q *auto) pushAs(pushes uint64, t *Task, now int64) Verdict {
	q.mu.pushes = pushes
	return q.pushLocked(t, now)
}

// missed notes that workers have found nothing so often since the last task left, the last time then.
func (q *auto) missed(times int, at int64) {
	q.mu.emptyAt = max(1, at)
	if q.mu.spare += times; q.mu.spare >= autoSpare {
		q.mu.state = autoNormal
	}
}

// pressed reports whether more was asked for than could be done in time, until nothing was left. The last task was taken
// at that time.
func (q *auto) pressed(taken, now int64) bool {
	return q.mu.state != autoNormal && !q.quietLocked(taken, now)
}

// turnOf is TurnBegan in a share of so many workers, where a task takes so long, 0 if that is not known. The share has as
// many workers as these tasks would keep busy, and one more, as the next worker to become free may serve another client.
func (q *auto) turnOf(service float64, workers int, now int64) {
	q.mu.service = service
	q.dispatchLocked(now)
	if service > 0 && q.mu.interval > 0 {
		q.workers = 1 + int(min(math.Round(service/q.mu.interval), 1<<20))
		q.mu.shares = float64(workers) * q.mu.interval / service
	}
}
