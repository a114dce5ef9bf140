package dispatch

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// queue is one discipline in use. All its methods are called here, and their answers checked: a third party may have
// written it. A panic of a method ends in the call that met it: see guard. So a caller may hold a lock. What the discipline
// had in its hands then may be lost in it; Cancel gives that up.
type queue struct {
	spec       strategies.Spec
	byName     bool // spec is the registered one of its name
	discipline strategies.Discipline
	learner    strategies.CompletionObserver // nil if the discipline is none
	turns      strategies.TurnObserver       // nil if the discipline is none
	meter      strategies.Meter              // nil if the discipline is none
	events     *Events
	backlog    *backlog

	accused  atomic.Bool // the discipline was found to break a rule
	panicked atomic.Bool // a method of the discipline has panicked
}

func newQueue(b *backlog, spec strategies.Spec, byName bool, events *Events) (q *queue, err error) {
	q = &queue{spec: spec, byName: byName, events: events, backlog: b}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("strategy %q: New panicked: %v", spec.Name, p)
		}
	}()
	q.discipline = spec.New(strategies.Config{
		Capacity: spec.CapacityOr(b.opts.Capacity), Workers: max(1, b.width()), Objective: b.opts.Objective, Observe: b.observe.Load(),
		Weight: b.opts.Weight,
	})
	if q.discipline == nil {
		return nil, fmt.Errorf("strategy %q: New returned no discipline", spec.Name)
	}
	q.learner, _ = q.discipline.(strategies.CompletionObserver)
	q.turns, _ = q.discipline.(strategies.TurnObserver)
	q.meter, _ = q.discipline.(strategies.Meter)
	return q, nil
}

// guard is deferred before a method of the discipline is called, and recovers from its panic. Then answers, unless it is
// nil, says what the caller returns.
func (q *queue) guard(method string, answers func()) {
	if p := recover(); p != nil {
		q.panics(method, p)
		if answers != nil {
			answers()
		}
	}
}

func (q *queue) panics(method string, with any) {
	q.panicked.Store(true)
	q.accuse("%s panicked: %v", method, with)
}

// accuse reports, once, that the discipline breaks a rule.
func (q *queue) accuse(format string, args ...any) {
	if !q.accused.Swap(true) {
		q.backlog.opts.Broken(q.spec.Name, fmt.Sprintf(format, args...))
	}
}

// len returns how many tasks wait in the discipline. If it panics, some may.
func (q *queue) len() (n int) {
	returned := false
	defer func() {
		if !returned { // costs less than guard, and len is called often
			q.panics("Len", recover())
			n = 1
		}
	}()
	n = q.discipline.Len()
	returned = true
	return n
}

// cap returns how many may wait. If the discipline panics, it is not held to any.
func (q *queue) cap() (n int) {
	defer q.guard("Cap", func() { n = strategies.Unbounded })
	return q.discipline.Cap()
}

// push offers t to the discipline. It returns a verdict in which all is as it should be, and the displaced task, if any.
func (q *queue) push(t *Task, now int64) (v strategies.Verdict, displaced *Task) {
	// Counted before it can be popped, so that never fewer are counted than wait.
	q.backlog.served.counted(t, 1)
	offered := t.offered()
	offered.Owner, offered.Run = t, 0
	t.held.Store(offered)
	v = q.offer(offered, now)
	if v.Outcome > strategies.CallerRuns {
		q.accuse("Push answered the outcome %d, which is none", v.Outcome)
		v.Outcome = strategies.TurnedAway
	}
	if v.Displaced == offered {
		q.accuse("Push displaced the task that it was offered")
		v.Outcome, v.Displaced = strategies.TurnedAway, nil
	}
	if v.Outcome != strategies.Queued {
		if !t.held.CompareAndSwap(offered, nil) {
			q.accuse("Push did not queue a task that it gave out")
			return strategies.Verdict{}, nil // it is whoever's took it
		}
		t.doubted = t.doubted || q.panicked.Load()
		q.backlog.served.counted(t, -1)
	}
	if v.Outcome == strategies.TurnedAway {
		v.Reason = q.checked(v.Reason, "Push turned a task away", strategies.ReasonFull)
	}
	if v.Displaced != nil {
		v.Reason = q.checked(v.Displacement(), "Push displaced a task", strategies.ReasonDisplaced)
		if displaced = q.givenUp(v.Displaced, "Push displaced"); v.Outcome != strategies.Queued {
			q.accuse("Push displaced a task although it did not queue the one that it was offered")
		}
	}
	return v, displaced
}

// checked returns r, for which the discipline has given up a task, or the other if r is none of the strategy's.
func (q *queue) checked(r strategies.Reason, how string, instead strategies.Reason) strategies.Reason {
	if q.spec.Sheds(r) {
		return r
	}
	q.accuse("%s for the reason %q, which is none of the strategy's", how, r)
	return instead
}

// offer calls Push. If that panics, the task is turned away.
func (q *queue) offer(t *strategies.Task, now int64) (v strategies.Verdict) {
	defer q.guard("Push", func() { v = strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull} })
	return q.discipline.Push(t, now)
}

// maxWrongPops is how often a Pop may panic, or return a task that is not the discipline's own or none, before the
// discipline is taken for empty.
const maxWrongPops = 64

// pop takes the next task from the discipline and checks the answer.
func (q *queue) pop(now int64) (*Task, strategies.PopResult, strategies.Reason) {
	for range maxWrongPops {
		popped, what, reason := q.take(now)
		if popped == nil {
			if what == strategies.Empty || what == strategies.Contended {
				return nil, what, strategies.ReasonNone
			}
			q.accuse("Pop answered that there is a task, and returned none")
			continue // there may be others
		}
		t := q.givenUp(popped, "Pop returned")
		if t == nil {
			continue
		}
		switch {
		case what == strategies.Shed:
			reason = q.checked(reason, "Pop shed a task", strategies.ReasonDisplaced)
		case what != strategies.Run:
			q.accuse("Pop answered %d with a task", what)
			what = strategies.Run
		}
		return t, what, reason
	}
	return nil, strategies.Empty, strategies.ReasonNone
}

// take calls Pop. If that panics, it returns no task, as if there were one.
func (q *queue) take(now int64) (t *strategies.Task, what strategies.PopResult, reason strategies.Reason) {
	defer q.guard("Pop", func() { what = strategies.Run })
	return q.discipline.Pop(now)
}

// givenUp returns the task that the discipline has given up, nil if that was not its to give.
func (q *queue) givenUp(popped *strategies.Task, how string) *Task {
	t, ok := popped.Owner.(*Task)
	if !ok || !t.held.CompareAndSwap(popped, nil) {
		q.accuse("%s a task that it did not hold", how)
		return nil
	}
	if popped != &t.Task {
		t.Run, t.WouldShed = popped.Run, popped.WouldShed
	}
	q.backlog.served.counted(t, -1)
	q.wouldShed(t)
	return t
}

// wouldShed notes that t would have been shed if the dispatcher did not only observe. If it does more than that, t is
// served to see whether it would be late.
func (q *queue) wouldShed(t *Task) {
	if r := t.WouldShed; r != strategies.ReasonNone {
		t.WouldShed = strategies.ReasonNone
		switch {
		case r == strategies.ReasonLate && q.spec.ByObjective:
			t.probe = !q.backlog.observe.Load()
		case t.Spared == strategies.ReasonNone:
			t.Spared = r
			t.events.WouldShed(r)
		}
	}
}

// remove takes t out of the discipline, if that can. From one that has panicked it is taken all the same, as the
// discipline may have lost it.
func (q *queue) remove(t *Task) bool {
	held := cmp.Or(t.held.Load(), &t.Task)
	removed := q.takeOut(held)
	if !removed && !q.panicked.Load() || q.givenUp(held, "Remove took out") == nil {
		return false
	}
	t.doubted = t.doubted || !removed
	return true
}

// takeOut calls Remove. If that panics, t was not there.
func (q *queue) takeOut(t *strategies.Task) bool {
	r, ok := q.discipline.(strategies.Remover)
	defer q.guard("Remove", nil)
	return ok && r.Remove(t)
}

// accept marks t as submitted to q.
func (q *queue) accept(t *Task) {
	if t.queue != q || t.events != q.events { // which costs less than to store them
		t.Strategy, t.queue, t.events = q.spec.Name, q, q.events
	}
	q.events.Submitted()
}

// began notes that t, which has waited, begins to run: first if no other of its turn has begun before it. The turn began
// now, before t was looked for, so that t may have come since.
func (q *queue) began(t *Task, now int64, first bool) {
	t.Started = max(now, t.Submitted)
	t.begins(false)
	if !t.continued { // Started was called before
		t.events.Started(time.Duration(t.Started - t.Submitted))
	}
	q.begins(t, now)
	if first && q.turns != nil {
		defer q.guard("TurnBegan", nil)
		q.turns.TurnBegan(now)
	}
}

func (q *queue) begins(t *Task, now int64) {
	if q.meter != nil {
		defer q.guard("Began", nil)
		q.meter.Began(&t.Task, now)
	}
}

// ends notifies of the end of a run, one of so many in the same turn.
func (q *queue) ends(run uint64, of int, now int64) {
	defer q.guard("Ended", nil)
	q.meter.Ended(run, of, now)
}

// ended notifies a discipline that learns from it of a task that was popped here and has run.
func (q *queue) ended(waited, service, now int64) {
	if q.learner != nil {
		defer q.guard("Completed", nil)
		q.learner.Completed(max(0, waited), service, now)
	}
}

func (q *queue) resize(n int) {
	if r, ok := q.discipline.(strategies.Resizer); ok {
		defer q.guard("Resize", nil)
		r.Resize(max(1, n))
	}
}

// measured returns what the discipline has measured, if it says so.
func (q *queue) measured() (m strategies.Measured) {
	if by, ok := q.discipline.(strategies.Measurer); ok {
		defer q.guard("Measured", nil)
		m = by.Measured()
	}
	return m
}

// full reports whether q has no room beside so many tasks that wait elsewhere. A strategy without a queue has no bound.
func (q *queue) full(elsewhere int) bool {
	c := q.cap()
	return c > 0 && q.len()+elsewhere >= c
}
