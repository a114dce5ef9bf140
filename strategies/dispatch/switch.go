package dispatch

import (
	"cmp"
	"slices"

	"github.com/spillway-go/spillway/strategies"
)

// moved is a task on its way, with what it is sorted by: the task itself may be given up meanwhile, and be its
// submitter's again.
type moved struct {
	task               *Task
	arrival, submitted int64
}

// activate makes q the queue that tasks are submitted to, and moves what waits in the former one into it. The caller
// holds engine.mu.
func (b *backlog) activate(q *queue) {
	former := b.active.Load()
	b.mu.Lock()
	b.active.Store(q)
	q.resize(int(b.width.Load())) // it may have changed since q was made
	b.mu.Unlock()
	if former == nil {
		return
	}
	b.moveFrom(former)
	b.served.makeRoom(b.Now()) // the former one may have had more, or no bound
	if b.toDo() > 0 {
		b.watch() // its timer may have found that nothing waits, while the switch had it all
	}
}

// moveFrom offers what waits in q to the active queue, in order of arrival.
func (b *backlog) moveFrom(q *queue) {
	for _, m := range b.empty(q) {
		b.offerAgain(m.task)
	}
}

// empty takes all tasks out of q, which is not the active one any more or from which all is shed, into moving, and returns
// them in order of arrival. Who is about to push another into q empties it then. What its law would shed is not shed.
func (b *backlog) empty(q *queue) (all []moved) {
	for {
		b.mu.Lock()
		now := b.Now()
		t, _, _ := q.pop(now)
		if t != nil {
			b.endRun(t, now) // only q knows of it
			b.moving.push(t)
			all = append(all, moved{t, t.Arrival, t.Submitted})
		}
		b.mu.Unlock()
		if t == nil {
			slices.SortStableFunc(all, func(a, b moved) int {
				return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.submitted, b.submitted))
			})
			return all
		}
	}
}

// offerAgain offers t, which was taken out of another queue, to the active one.
func (b *backlog) offerAgain(t *Task) {
	var out rejects
	b.mu.Lock()
	if t.line != &b.moving { // given up meanwhile
		b.mu.Unlock()
		return
	}
	b.moving.remove(t)
	q, now := b.active.Load(), b.Now()
	t.queue, t.probe = q, false
	switch unfit := b.unfitLocked(t, now); {
	case unfit != strategies.ReasonNone:
		out.add(t, unfit)
	case !b.served.admits(t, q):
		out.add(t, strategies.ReasonFull)
	default:
		v, displaced := q.push(t, now)
		if v.Outcome == strategies.CallerRuns && displaced == nil {
			// The task whose turn is next goes ahead, so that there may be room.
			first := b.pop(now, &out)
			if first != nil {
				b.ahead.push(first)
			}
			if first != nil || len(out) > 0 {
				v, displaced = q.push(t, now)
			}
		}
		if displaced != nil {
			out.add(displaced, v.Displacement())
		}
		switch v.Outcome {
		case strategies.CallerRuns: // its submitter sleeps
			b.ahead.push(t)
		case strategies.TurnedAway:
			out.add(t, v.Reason)
		}
	}
	b.mu.Unlock()
	b.shedRejects(&out)
	b.served.wake()
}
