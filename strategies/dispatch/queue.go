package dispatch

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// queue is one discipline in use.
type queue struct {
	spec       strategies.Spec
	byName     bool // spec is the registered one of its name
	discipline strategies.Discipline
	remover    strategies.Remover            // nil if the discipline is none
	learner    strategies.CompletionObserver // nil if the discipline is none
	turns      strategies.TurnObserver       // nil if the discipline is none
	events     Events
	backlog    *backlog

	// former are the events of the strategies that were active before, by name, for
	// tasks that a switch has moved here.
	former map[string]Events

	// entering counts the submitters that have chosen this queue and not yet
	// returned from Push.
	entering atomic.Int64
	// accused is set once the discipline was found to break a rule.
	accused atomic.Bool
}

func newQueue(b *backlog, spec strategies.Spec, d strategies.Discipline, events Events) *queue {
	q := &queue{spec: spec, discipline: d, events: events, backlog: b}
	q.remover, _ = d.(strategies.Remover)
	q.learner, _ = d.(strategies.CompletionObserver)
	q.turns, _ = d.(strategies.TurnObserver)
	return q
}

// eventsOf returns whom to tell of t, which waits or waited in q: those of the
// strategy that it was submitted to.
func (q *queue) eventsOf(t *Task) Events {
	if t.Strategy == q.spec.Name {
		return q.events
	}
	return q.former[t.Strategy]
}

// verdict is a strategies.Verdict that was checked.
type verdict struct {
	outcome      strategies.Outcome
	reason       strategies.Reason // to turn the task away for
	displaced    *Task             // nil if none was
	displacement strategies.Reason // to shed displaced for
}

// push offers t to the discipline and checks the verdict.
func (q *queue) push(t *Task, now int64) verdict {
	// Counted before it can be popped, so that never fewer are counted than wait.
	q.backlog.served.counted(t, 1)
	t.Owner = t
	t.held.Store(true)
	answer := q.discipline.Push(&t.Task, now)
	v := verdict{outcome: answer.Outcome, reason: answer.Reason}
	if v.outcome > strategies.CallerRuns {
		q.accuse(fmt.Sprintf("Push answered the outcome %d, which is none", v.outcome))
		v.outcome = strategies.TurnedAway
	}
	if answer.Displaced == &t.Task {
		q.accuse("Push displaced the task that it was offered")
		v.outcome, answer.Displaced = strategies.TurnedAway, nil
	}
	if v.outcome != strategies.Queued {
		t.held.Store(false)
		q.backlog.served.counted(t, -1)
	}
	if answer.Displaced != nil {
		v.displacement = answer.Displacement()
		if !q.spec.Sheds(v.displacement) {
			q.accuse(fmt.Sprintf("Push displaced a task for the reason %q, which is none of the strategy's", v.displacement))
			v.displacement = strategies.ReasonDisplaced
		}
		if v.displaced = q.givenUp(answer.Displaced, "Push displaced"); v.outcome != strategies.Queued {
			q.accuse("Push displaced a task although it did not queue the one that it was offered")
		}
	}
	if v.outcome == strategies.TurnedAway && !q.spec.Sheds(v.reason) {
		q.accuse(fmt.Sprintf("Push turned a task away for the reason %q, which is none of the strategy's", v.reason))
		v.reason = strategies.ReasonFull
	}
	return v
}

// pop takes the next task from the discipline and checks the answer.
func (q *queue) pop(now int64) (*Task, strategies.PopResult, strategies.Reason) {
	for range maxWrongPops {
		popped, what, reason := q.discipline.Pop(now)
		if popped == nil {
			if what == strategies.Run || what == strategies.Shed {
				q.accuse("Pop answered that there is a task, and returned none")
				what = strategies.Empty
			}
			return nil, what, strategies.ReasonNone
		}
		t := q.givenUp(popped, "Pop returned")
		if t == nil {
			continue // there may be others
		}
		switch {
		case what == strategies.Shed && !q.spec.Sheds(reason):
			q.accuse(fmt.Sprintf("Pop shed a task for the reason %q, which is none of the strategy's", reason))
			reason = strategies.ReasonDisplaced
		case what != strategies.Run && what != strategies.Shed:
			q.accuse(fmt.Sprintf("Pop answered %d with a task", what))
			what = strategies.Run
		}
		return t, what, reason
	}
	return nil, strategies.Empty, strategies.ReasonNone
}

// maxWrongPops is how often a discipline may return a task that is not its own before
// it is taken for empty.
const maxWrongPops = 64

// givenUp returns the task that the discipline has given up, nil if that was not its to
// give.
func (q *queue) givenUp(popped *strategies.Task, how string) *Task {
	t, ok := popped.Owner.(*Task)
	if !ok || &t.Task != popped || !t.held.CompareAndSwap(true, false) {
		q.accuse(how + " a task that it did not hold")
		return nil
	}
	q.backlog.served.counted(t, -1)
	q.tellWouldShed(t)
	return t
}

// tellWouldShed tells that t would have been shed if the dispatcher did not only observe. If
// it does more than that, t is served to see whether it would be late.
func (q *queue) tellWouldShed(t *Task) {
	if r := t.WouldShed; r != strategies.ReasonNone {
		t.WouldShed = strategies.ReasonNone
		switch {
		case r == strategies.ReasonLate && q.spec.ByObjective:
			t.probe = !q.backlog.observe.Load()
		case t.Spared == strategies.ReasonNone:
			t.Spared = r
			q.eventsOf(t).WouldShed(r)
		}
	}
}

// remove takes t out of the discipline, if that can.
func (q *queue) remove(t *Task) bool {
	if q.remover == nil || !q.remover.Remove(&t.Task) {
		return false
	}
	return q.givenUp(&t.Task, "Remove took out") != nil
}

// accuse tells, once, that the discipline breaks a rule.
func (q *queue) accuse(rule string) {
	if !q.accused.Swap(true) {
		q.backlog.opts.Broken(q.spec.Name, rule)
	}
}

// enter returns the active queue. No switch from it to another returns until
// leave.
func (b *backlog) enter() *queue {
	for {
		q := b.active.Load()
		q.entering.Add(1)
		if b.active.Load() == q {
			return q
		}
		q.leave()
	}
}

func (q *queue) leave() { q.entering.Add(-1) }

// awaitEntering returns when no submitter is on its way into q. None blocks on
// that way, so this does not take long.
func (q *queue) awaitEntering() {
	for q.entering.Load() != 0 {
		runtime.Gosched()
	}
}

// accept marks t as submitted to q.
func (q *queue) accept(t *Task) {
	t.Strategy, t.queue = q.spec.Name, q
	q.events.Submitted()
}

// began tells that t, which has waited, begins to run: first if no other of its turn has begun before it.
func (q *queue) began(t *Task, now int64, first bool) {
	t.Started = now
	q.eventsOf(t).Started(time.Duration(max(0, now-t.Submitted)))
	if first && q.turns != nil {
		q.turns.TurnBegan(now)
	}
}

// ended tells a discipline that learns of a task that was popped here and has run.
func (q *queue) ended(waited, service, now int64) {
	if q.learner != nil {
		q.learner.Completed(max(0, waited), service, now)
	}
}

// resize tells the discipline of the number of workers.
func (q *queue) resize(n int) {
	if r, ok := q.discipline.(strategies.Resizer); ok {
		r.Resize(max(1, n))
	}
}

// full reports whether q has no room beside so many tasks that wait elsewhere. A
// strategy without a queue has no bound either.
func (q *queue) full(elsewhere int) bool {
	c := q.discipline.Cap()
	return c > 0 && q.discipline.Len()+elsewhere >= c
}
