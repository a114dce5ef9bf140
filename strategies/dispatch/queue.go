package dispatch

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// queue is one discipline in use.
type queue struct {
	spec       strategies.Spec
	discipline strategies.Discipline
	remover    strategies.Remover            // nil if the discipline is none
	learner    strategies.CompletionObserver // nil if the discipline is none
	turns      strategies.TurnObserver       // nil if the discipline is none
	events     Events
	pool       *pool

	// former are the events of the strategies that were active before, by name, for
	// tasks that a switch has moved here.
	former map[string]Events

	// entering counts the submitters that have chosen this queue and not yet
	// returned from Push.
	entering atomic.Int64
	// accused is set once the discipline was found to break a rule.
	accused atomic.Bool
}

func newQueue(p *pool, spec strategies.Spec, events Events) *queue {
	q := &queue{
		spec:       spec,
		discipline: spec.New(strategies.Config{Capacity: p.d.opts.Capacity, Workers: p.workers}),
		events:     events,
		pool:       p,
	}
	q.remover, _ = q.discipline.(strategies.Remover)
	q.learner, _ = q.discipline.(strategies.CompletionObserver)
	q.turns, _ = q.discipline.(strategies.TurnObserver)
	return q
}

// eventsOf returns whom to tell of t, which waits or waited in q: those of the
// strategy that it was submitted to.
func (q *queue) eventsOf(t *strategies.Task) Events {
	if t.Strategy == q.spec.Name {
		return q.events
	}
	return q.former[t.Strategy]
}

// push offers t to the discipline and checks the verdict.
func (q *queue) push(t *strategies.Task, now int64) strategies.Verdict {
	// Counted before it can be popped, so that never fewer are counted than wait.
	q.pool.await(t)
	v := q.discipline.Push(t, now)
	if v.Outcome > strategies.CallerRuns {
		q.accuse(fmt.Sprintf("Push answered %d, which is no outcome", v.Outcome))
		v.Outcome = strategies.TurnedAway
	}
	if v.Displaced == t {
		q.accuse("Push displaced the task that it was offered")
		v.Outcome, v.Displaced = strategies.TurnedAway, nil
	}
	if v.Outcome != strategies.Queued {
		q.pool.unawait(t)
	}
	if v.Displaced != nil {
		q.pool.unawait(v.Displaced)
	}
	switch {
	case v.Outcome == strategies.TurnedAway && !v.Reason.Valid():
		q.accuse(fmt.Sprintf("Push turned a task away for the reason %d", v.Reason))
		v.Reason = strategies.ReasonFull
	case v.Displaced != nil && v.Reason != strategies.ReasonNone && !v.Reason.Valid():
		q.accuse(fmt.Sprintf("Push displaced a task for the reason %d", v.Reason))
		v.Reason = strategies.ReasonNone
	}
	return v
}

// pop takes the next task from the discipline and checks the answer.
func (q *queue) pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	t, what, reason := q.discipline.Pop(now)
	switch {
	case t != nil:
		q.pool.unawait(t)
		switch {
		case what == strategies.Shed && !reason.Valid():
			q.accuse(fmt.Sprintf("Pop shed a task for the reason %d", reason))
			reason = strategies.ReasonDisplaced
		case what != strategies.Run && what != strategies.Shed:
			q.accuse(fmt.Sprintf("Pop answered %d with a task", what))
			what = strategies.Run
		}
	case what == strategies.Run, what == strategies.Shed:
		q.accuse("Pop answered that there is a task, and returned none")
		what = strategies.Empty
	}
	return t, what, reason
}

// remove takes t out of the discipline, if that can.
func (q *queue) remove(t *strategies.Task) bool {
	if q.remover == nil || !q.remover.Remove(t) {
		return false
	}
	q.pool.unawait(t)
	return true
}

// accuse tells, once, that the discipline breaks a rule.
func (q *queue) accuse(rule string) {
	if !q.accused.Swap(true) {
		q.pool.d.opts.Broken(q.spec.Name, rule)
	}
}

// enter returns the active queue. No switch from it to another returns until
// leave.
func (p *pool) enter() *queue {
	for {
		q := p.active.Load()
		q.entering.Add(1)
		if p.active.Load() == q {
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
