package dispatch

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/spillway-go/spillway/strategies"
)

// activate makes q the queue that tasks are submitted to, and moves what waits in the former one into it. The caller
// holds engine.mu.
func (b *backlog) activate(q *queue) {
	former := b.active.Load()
	b.mu.Lock()
	b.active.Store(q)
	q.resize(b.width()) // it may have changed since q was made
	b.mu.Unlock()
	if former == nil {
		return
	}
	b.moveFrom(former)
	b.makeRoom(b.Now()) // the former one may have had more, or no bound
}

// moveFrom offers what waits in q to the active queue, in order of arrival.
func (b *backlog) moveFrom(q *queue) {
	b.empty(q)
	b.mu.Lock()
	var all []*Task
	for t := b.moving.pop(); t != nil; t = b.moving.pop() {
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b *Task) int {
		return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Submitted, b.Submitted))
	})
	for _, t := range all {
		b.moving.push(t)
	}
	b.mu.Unlock()
	for b.offerAgain() {
	}
	if b.toDo() > 0 {
		b.watch() // its timer may have found that nothing waits, while all of it moved
	}
}

// empty takes all tasks out of q, which is not the active one any more or from which all is shed, into moving. Who is
// about to push another into q empties it then. What its law would shed is not shed.
func (b *backlog) empty(q *queue) {
	for contended := 0; ; {
		b.mu.Lock()
		now := b.Now()
		t, what, _ := q.pop(now)
		if t != nil {
			b.endRun(t, now) // only q knows of it
			b.moving.push(t)
		}
		b.mu.Unlock()
		switch {
		case what == strategies.Contended && contended < maxWrongPops: // by one that does not push, and so does not look again
			contended++
			runtime.Gosched()
		case t == nil:
			return
		}
	}
}

// offerAgain offers the first of what moves to the active queue. It reports whether there was one.
func (b *backlog) offerAgain() bool {
	var out rejects
	b.mu.Lock()
	t := b.moving.pop()
	if t == nil {
		b.mu.Unlock()
		return false
	}
	q, now := b.active.Load(), b.Now()
	t.queue, t.probe = q, false
	switch {
	case !b.mayWaitLocked(t, now, &out):
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
	return true
}
