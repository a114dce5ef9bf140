package dispatch

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"github.com/spillway-go/spillway/strategies"
)

// move is what a switch has in its hands: the tasks that it has taken out of the
// former discipline and not yet offered to the new one.
type move struct {
	// mu is held from where a task leaves one place to where it is in the next, and
	// by Cancel, which so finds it in one of them.
	mu    sync.Mutex
	tasks map[*Task]struct{}
}

// moved is a task on its way, with what it is sorted by: the task itself may be
// given up meanwhile, and be its submitter's again.
type moved struct {
	task               *Task
	arrival, submitted int64
}

// activate makes q the queue that tasks are submitted to, and moves what waits in
// the former one into it. The caller holds engine.mu.
func (b *backlog) activate(q *queue) {
	former := b.active.Load()
	b.active.Store(q)
	b.limit.fit(q)
	if former == nil {
		return
	}
	former.awaitEntering()
	for _, m := range b.empty(former) {
		b.offerAgain(m.task, q)
	}
	b.served.makeRoom(q, b.Now()) // the former one may have had more, or no bound
	if b.served.toDo() > 0 {
		b.limit.waits() // its timer may have found that nothing waits, while the switch had it all
	}
}

// empty takes all tasks out of q, that nobody pushes to any more, and returns them
// in order of arrival. What its law would shed is not shed.
func (b *backlog) empty(q *queue) []moved {
	b.move.mu.Lock()
	b.move.tasks = make(map[*Task]struct{})
	b.move.mu.Unlock()
	var all []moved
	for contended := 0; ; {
		b.move.mu.Lock()
		t, what, _ := q.pop(b.Now())
		if t != nil {
			b.move.tasks[t] = struct{}{}
			all = append(all, moved{t, t.Arrival, t.Submitted})
		}
		b.move.mu.Unlock()
		switch what {
		case strategies.Empty:
			slices.SortStableFunc(all, func(a, b moved) int {
				return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.submitted, b.submitted))
			})
			return all
		case strategies.Contended:
			if contended++; contended == maxContended {
				q.accuse("Pop goes on to answer contended while nobody pushes")
				return all
			}
			runtime.Gosched()
		}
	}
}

// maxContended is how often a discipline that nobody pushes to may answer
// contended, which it should not at all.
const maxContended = 1 << 16

// offerAgain offers t, which a switch has in its hands, to q.
func (b *backlog) offerAgain(t *Task, q *queue) {
	var shed strategies.Reason
	var v verdict
	var out rejects
	b.move.mu.Lock()
	if !b.move.takeLocked(t) { // given up meanwhile
		b.move.mu.Unlock()
		return
	}
	t.queue, t.probe = q, false
	now := b.Now()
	switch {
	case t.expired(now):
		shed = strategies.ReasonExpired
	case !b.served.admits(t, q):
		shed = strategies.ReasonFull
	default:
		v = q.push(t, now)
		if v.outcome == strategies.CallerRuns && b.takeOut(now, &out) {
			v = q.push(t, now)
		}
		switch v.outcome {
		case strategies.CallerRuns: // its submitter sleeps
			b.setAsideLocked(t, &b.ahead)
		case strategies.TurnedAway:
			shed = v.reason
		}
	}
	b.move.mu.Unlock()
	b.shedRejects(&out)
	if v.displaced != nil {
		b.shed(v.displaced, v.displacement)
	}
	if shed != strategies.ReasonNone {
		b.shed(t, shed)
	}
	b.served.wake()
}

// takeOut puts the task whose turn is next ahead of the queue, so that there is room
// for one that the switch has in its hands and that comes later. It reports whether there
// may be.
func (b *backlog) takeOut(now int64, out *rejects) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.pop(now, out)
	if t != nil {
		b.setAsideLocked(t, &b.ahead)
	}
	return t != nil || len(*out) > 0
}

// take takes t out, and reports whether it was still there.
func (m *move) take(t *Task) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.takeLocked(t)
}

func (m *move) takeLocked(t *Task) bool {
	_, ok := m.tasks[t]
	delete(m.tasks, t)
	return ok
}

// inHand returns how many tasks a switch has in its hands.
func (m *move) inHand() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tasks)
}
