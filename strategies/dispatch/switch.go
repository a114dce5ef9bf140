package dispatch

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/spillway-go/spillway/strategies"
)

// moved is a task on its way, with what it is sorted by: the task itself may be given up meanwhile, and be its
// submitter's again.
type moved struct {
	task               *Task
	arrival, submitted int64
}

// activate makes q the queue that tasks are submitted to, and moves what waits in
// the former one into it. The caller holds engine.mu.
func (b *backlog) activate(q *queue) {
	former := b.active.Load()
	b.mu.Lock()
	b.active.Store(q)
	if n := int(b.width.Load()); n != q.madeFor {
		q.resize(n)
	}
	b.mu.Unlock()
	if former == nil {
		return
	}
	former.awaitEntering()
	for _, m := range b.empty(former) {
		b.offerAgain(m.task, q)
	}
	b.served.makeRoom(q, b.Now()) // the former one may have had more, or no bound
	if b.toDo() > 0 {
		b.watch() // its timer may have found that nothing waits, while the switch had it all
	}
}

// maxContended is how often a discipline that nobody pushes to may answer contended, which it should not at all.
const maxContended = 1 << 16

// empty takes all tasks out of q, that nobody pushes to any more, into moving, and returns them in order of arrival.
// What its law would shed is not shed.
func (b *backlog) empty(q *queue) (all []moved) {
	for contended := 0; contended < maxContended; {
		b.mu.Lock()
		now := b.Now()
		t, what, _ := q.pop(now)
		if t != nil {
			b.endRun(t, now) // only q knows of it
			b.moving.push(t)
			all = append(all, moved{t, t.Arrival, t.Submitted})
		}
		b.mu.Unlock()
		switch what {
		case strategies.Empty:
			slices.SortStableFunc(all, func(a, b moved) int {
				return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.submitted, b.submitted))
			})
			return all
		case strategies.Contended:
			contended++
			runtime.Gosched()
		}
	}
	q.accuse("Pop goes on to answer contended while nobody pushes")
	return all
}

// offerAgain offers t, which a switch has in its hands, to q.
func (b *backlog) offerAgain(t *Task, q *queue) {
	var out rejects
	b.mu.Lock()
	if t.line != &b.moving { // given up meanwhile
		b.mu.Unlock()
		return
	}
	b.moving.remove(t)
	t.queue, t.probe = q, false
	now := b.Now()
	switch {
	case t.expired(now):
		out.add(t, strategies.ReasonExpired)
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
