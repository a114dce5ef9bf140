package strategies

import (
	"math"
	"math/bits"
	"sync"
)

// auto steers by the objective: within which time a request should be answered, counted
// from its arrival.
//
// A turn is a worker taking work. The pace is the mean time from one task taken to the next
// while tasks wait; one that takes 16 service times or more counts as so many, as a standstill
// is no pace. The room is how many may wait such that the last is still answered in
// time: what the objective leaves over the present service time, divided by the pace. While
// all that wait fit into it, they are served in order of arrival and nobody is refused.
//
//	state     order          told that they are late
//	calm      of arrival     nobody
//	crowded   newest first   the oldest beyond 5/4 of the room, and beyond 40 tasks
//	overload  newest first   they, and who has waited 36 turns or can be in time no more
//	retry     newest first   as crowded
//
// From one to the other:
//
//	calm      to crowded:    more wait than the room
//	crowded   to calm:       no more do, for 64 turns or as many as the room has tasks
//	          to overload:   it lasts for an objective and 512 turns
//	overload  to calm:       workers find nothing 256 times more often than somebody is told,
//	                         or nothing happens for 8 turns and 3 for each worker
//	          to retry:      for 16 times as many turns as the last retry took, 2,048 to 8,192:
//	                         those told may be those who come again
//	retry     to overload:   more wait than the room
//	          to calm:       no more do, for 16 turns for each task of the room
//
// Newest first is for what waits beyond 24 tasks, or a quarter of the room if that is less:
// so many are served in order of arrival. More important classes go before others, except
// while it is calm, and the least important are told first. A task that would miss its own
// deadline in order of arrival counts as one beyond the room; one that would miss it even if
// it went before all that are not more important is told at once, unless none waits.
//
// The room is one task for each worker, and no more wait, while the work alone takes longer
// than the objective leaves, and once no turn has begun for an objective and 16 service times.
// In the first case nobody is told for how long he waits: all are late, and workers, or a
// share of them, would find nothing now and then.
// Nobody is late before the pace is known.
//
// Of a hundred that would be told one is served all the same, once nothing else waits or its
// objective has passed: at most one in 500 turns, so that those cost little.
//
// With exponential work at 0.9 times the capacity, whatever the number of workers, 0.3% find
// 40 waiting, and the room is exceeded for 512 turns as rarely. At 1.1 times it, a stock of 24
// leaves workers idle for 1% of the time. loadtest/sim/objective_test.go compares auto with other
// strategies in thousands of settings.
//
// Newest first once a queue stands: adaptive LIFO (Maurer, "Fail at Scale", ACM Queue 2015).
// Waiting as the sign of overload, and classes: DAGOR (Zhou et al., SoCC 2018). A small stock,
// others told early: Breakwater (Cho et al., OSDI 2020). Admission by the predicted time:
// Bouncer (Xi et al., SIGMOD 2021).
type auto struct {
	objective *Objective
	observe   bool
	workers   int // changes under mu

	mu struct {
		sync.Mutex
		classes [classes]autoClass
		some    uint8 // bit i: something of class i waits
		// spared is what would have been told but for observe, or to see whether that is
		// right. The law takes it for gone. without is its length.
		spared  list
		without int
		pushes  uint64 // State.Number of the last task

		state autoState
		since int64 // when crowded began
		from  int64 // the turn at which the state began
		above int64 // the last turn at which more waited than the room
		spare int   // how often workers have found nothing, less how often somebody was told
		doubt int64 // the turns of the overload until the next retry

		turns  int64 // counts them
		turned int64 // when the last one began, or something began to wait
		found  int64 // when a worker found nothing last, if nothing has come since, or 0
		popped int   // tasks taken since the last turn began
		pace   float64
		recent float64 // the pace of the last turns
		known  float64 // of how many tasks pace is the mean
		// service is how long a task takes where that is known, and workers are only so many as
		// these tasks have by that: see fair.
		service float64
		// shares is how many such shares there are, so that 512 turns of all are fewer of this one.
		shares float64

		told   int   // since the last one that was spared to see whether it is late
		probed int64 // the turn of that
	}
	room
}

// autoState is what auto takes the queue for: see the law.
type autoState uint8

const (
	autoCalm autoState = iota
	autoCrowded
	autoOverload
	autoRetry
)

// autoClass holds the tasks of one class of priority, the oldest in front.
type autoClass struct {
	list
	n int // its length
}

const (
	autoOver       = 5. / 4 // of the room: how many may wait
	autoLeast      = 40     // tasks that may wait, whatever the room is
	autoStock      = 24     // tasks that are served in order of arrival in an overload
	autoStockShare = 1. / 4 // of the room, if that is less
	autoAge        = 36     // turns that a task waits in an overload: 3/2 of the stock
	autoSettle     = 64     // turns without more than the room until it is calm
	autoLasts      = 512    // turns until it is an overload
	autoSpare      = 256    // times that workers find nothing until it is over
	autoQuiet      = 8      // turns in whose time nothing happens until it is over
	autoQuietEach  = 3      // and turns for each worker
	autoRetryShare = 16     // times as long as the last retry took until the next
	autoRetryFirst = 2048   // turns until the next at least
	autoRetryLast  = 8192   // turns until the next at most
	autoRetryFor   = 16     // turns for each task of the room
	autoHang       = 16     // service times in which no turn begins until hardly anybody may wait

	autoMemory     = 512 // tasks that the pace is the mean of
	autoMemoryEach = 16  // and for each worker
	autoRecent     = 64  // tasks of the recent pace
	autoRecentEach = 4   // and for each worker
	autoJump       = 3   // a factor between the two that is no chance

	autoProbe      = 100 // of so many that would be told one is spared
	autoProbeTurns = 500 // turns between two of them at least
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

// Resize tells how many workers there are.
func (q *auto) Resize(workers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = max(1, workers)
}

// Push adds t, unless it would miss its own deadline. The oldest of the least important is
// displaced if there is no room, or if it is late.
func (q *auto) Push(t *Task, now int64) Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pushLocked(t, now)
}

func (q *auto) pushLocked(t *Task, now int64) Verdict {
	c := class(t)
	if q.waiting.Load() == 0 {
		if q.mu.found != 0 && q.quietLocked(q.mu.found, now) {
			q.mu.state = autoCalm
		}
		q.mu.turned, q.mu.found = now, 0
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
	q.mu.some |= 1 << c
	q.waiting.Add(1)
	late := q.judgeLocked(tight, now)
	switch {
	case v.Displaced != nil || late == nil:
	case late != t:
		if v.Displaced = q.tellLocked(late); v.Displaced != nil {
			v.Reason = ReasonLate
		}
	case q.tellLocked(t) != nil: // it is the least important
		return Verdict{Outcome: TurnedAway, Reason: ReasonLate}
	}
	return v
}

// quietLocked reports whether an overload is over if nothing has happened since then.
func (q *auto) quietLocked(since, now int64) bool {
	return float64(now-since) > float64(autoQuiet+autoQuietEach*q.workers)*q.mu.pace
}

// leastLocked returns the least important class of which something waits.
func (q *auto) leastLocked() uint8 { return uint8(bits.Len8(q.mu.some)) - 1 }

// surplus returns who leaves for want of room: the oldest of the least important. Something waits.
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
		if t := q.tellLocked(late); t != nil {
			return t, Shed, ReasonLate
		}
	}
	t := q.mu.spared.front
	switch {
	case q.mu.some != 0 && (t == nil || q.observe || now-t.Arrival < int64(q.objective.InForce())):
		t = q.nextLocked(now)
	case t == nil:
		q.mu.turned, q.mu.found = now, now
		if q.mu.spare++; q.mu.spare >= autoSpare {
			q.mu.state = autoCalm
		}
		return nil, Empty, ReasonNone
	}
	q.takeLocked(t)
	q.mu.popped++
	return t, Run, ReasonNone
}

// TurnBegan counts a turn, and measures the pace.
func (q *auto) TurnBegan(now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turnLocked(now)
}

func (q *auto) turnLocked(now int64) {
	if q.mu.popped == 0 { // another worker has told of what this one popped
		return
	}
	took, n, workers := float64(max(now-q.mu.turned, 1)), float64(q.mu.popped), float64(q.workers)
	q.mu.turned, q.mu.popped = now, 0
	q.mu.turns++
	// The first turns of all workers tell no more than one: they may end together.
	recent := autoRecent + autoRecentEach*workers
	if q.mu.known >= recent {
		took = min(took, autoHang*workers*q.mu.pace)
	}
	q.mu.known = min(q.mu.known+n, autoMemory+autoMemoryEach*workers)
	q.mu.pace += (took - n*q.mu.pace) / max(q.mu.known, workers)
	q.mu.recent += (took - n*q.mu.recent) / max(min(q.mu.known, recent), workers, n)
	if q.mu.known >= 2*recent && (q.mu.recent > autoJump*q.mu.pace || q.mu.recent*autoJump < q.mu.pace) {
		q.mu.pace, q.mu.known = q.mu.recent, recent
	}
}

// lengthLocked returns how many tasks wait, by the law.
func (q *auto) lengthLocked() int { return int(q.waiting.Load()) - q.mu.without }

// serviceLocked returns how long a task takes at present, in nanoseconds: all workers are
// busy while tasks wait.
func (q *auto) serviceLocked() float64 {
	if q.mu.service != 0 {
		return q.mu.service
	}
	return q.mu.pace * float64(q.workers)
}

// roomLocked returns how many tasks may wait such that the last is answered in time, how many
// may before somebody is told, and for how long one may in an overload, in nanoseconds.
func (q *auto) roomLocked(now int64) (room, most, age float64) {
	objective, workers := float64(q.objective.InForce()), float64(q.workers)
	left, known := objective-q.serviceLocked(), q.mu.known >= autoRecent+autoRecentEach*workers
	switch {
	case q.mu.pace == 0:
		return float64(q.capacity), float64(q.capacity), objective
	case float64(now-q.mu.turned) > max(objective, autoHang*workers*q.mu.pace):
		return workers, workers, objective
	case known && left < q.serviceLocked():
		return workers, workers, math.Inf(1)
	}
	room = max(left/q.mu.pace, workers)
	if !known {
		return room, max(autoJump*room, autoLeast), objective
	}
	return room, max(autoOver*room, autoLeast), min(left, autoAge*q.mu.pace)
}

// judgeLocked moves on to the state that holds now. It returns a task that is late, nil if
// none is. Tight says that the task just pushed misses its own deadline in order of arrival.
func (q *auto) judgeLocked(tight bool, now int64) *Task {
	length := q.lengthLocked()
	switch {
	case q.mu.some == 0, q.mu.state == autoCalm && length <= q.workers && !tight:
		return nil
	case q.objective.InForce() == 0:
		q.mu.state = autoCalm
		return nil
	}
	n := float64(length)
	room, most, age := q.roomLocked(now)
	over := n > room || tight
	if over {
		q.mu.above = q.mu.turns
	}
	lasted := q.mu.turns - q.mu.from
	switch q.mu.state {
	case autoCalm:
		if !over {
			return nil
		}
		q.enterLocked(autoCrowded)
		q.mu.since = now
	case autoCrowded:
		switch {
		case !over && q.mu.turns-q.mu.above >= int64(min(autoSettle, room)):
			q.enterLocked(autoCalm)
			return nil
		case float64(lasted)*max(1, q.mu.shares) >= autoLasts && now-q.mu.since >= int64(q.objective.InForce()):
			q.enterLocked(autoOverload)
			q.mu.spare, q.mu.doubt = 0, autoRetryFirst
		}
	case autoOverload:
		if lasted >= q.mu.doubt {
			q.enterLocked(autoRetry)
		}
	case autoRetry:
		switch {
		case over:
			q.enterLocked(autoOverload)
			q.mu.doubt = min(max(autoRetryShare*lasted, autoRetryFirst), autoRetryLast)
		case float64(lasted) >= autoRetryFor*room:
			q.enterLocked(autoCalm)
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
	q.mu.state, q.mu.from = s, q.mu.turns
}

// tellLocked takes t out, which is late, and returns it. It is nil if t is spared.
func (q *auto) tellLocked(t *Task) *Task {
	q.takeLocked(t)
	q.mu.told++
	q.mu.spare = max(0, q.mu.spare-1)
	if !q.observe {
		if q.mu.told < autoProbe || q.mu.turns-q.mu.probed < autoProbeTurns {
			return t
		}
		t.WouldShed = ReasonLate
	}
	q.mu.told, q.mu.probed = 0, q.mu.turns
	q.mu.spared.pushBack(t)
	q.mu.without++
	q.waiting.Add(1)
	return nil
}

// nextLocked returns the task whose turn it is. Some task waits.
func (q *auto) nextLocked(now int64) *Task {
	if q.mu.state != autoCalm {
		c := &q.mu.classes[bits.TrailingZeros8(q.mu.some)]
		room, _, _ := q.roomLocked(now)
		if float64(q.lengthLocked()) > min(autoStock, autoStockShare*room) {
			return c.back
		}
		return c.front
	}
	var oldest *Task
	for some := q.mu.some; some != 0; some &= some - 1 {
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

// missesLocked reports whether t would miss its own deadline at the present pace if so many
// tasks went before it.
func (q *auto) missesLocked(t *Task, before int, now int64) bool {
	return t.Deadline != 0 && q.mu.some != 0 && q.objective.InForce() != 0 &&
		float64(t.Deadline-now) < float64(before+1)*q.mu.pace+q.serviceLocked()
}

// Remove takes t out of the queue.
func (q *auto) Remove(t *Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.classes[class(t)].holds(t) && !q.mu.spared.holds(t) {
		return false
	}
	q.takeLocked(t)
	if t.Deadline != 0 { // it has passed, or its client has left before: it was as if told
		q.mu.above = q.mu.turns
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
		q.mu.some &^= 1 << i
	}
}

// Measured returns how many tasks may wait before somebody is told that he is late, and the
// pace.
func (q *auto) Measured() Measured {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := Measured{Pace: int64(q.mu.pace)}
	if q.mu.pace != 0 && q.objective.InForce() != 0 {
		_, most, _ := q.roomLocked(q.mu.turned)
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

// missed tells that workers have looked so often since the last task left, the last time then.
func (q *auto) missed(times int, at int64) {
	q.mu.found = max(1, at)
	if q.mu.spare += times; q.mu.spare >= autoSpare {
		q.mu.state = autoCalm
	}
}

// pressed reports whether more was asked for than could be done in time, until nothing was left. The last task was taken
// at that time.
func (q *auto) pressed(taken, now int64) bool {
	return q.mu.state != autoCalm && !q.quietLocked(taken, now)
}

// turnOf is TurnBegan in a share of so many workers, where a task takes so long, 0 if that is not known. The share has as
// many workers as these tasks would keep busy, and one more, as it need not be its turn when a worker becomes free.
func (q *auto) turnOf(service float64, workers int, now int64) {
	q.mu.service = service
	q.turnLocked(now)
	if service > 0 && q.mu.pace > 0 {
		q.workers = 1 + int(min(math.Round(service/q.mu.pace), 1<<20))
		q.mu.shares = float64(workers) * q.mu.pace / service
	}
}
