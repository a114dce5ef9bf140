package dispatch

import (
	"cmp"
	"maps"
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
// the former one into it. Its discipline was made for so many workers. The caller holds the
// dispatcher's mutex.
func (p *pool) activate(q *queue, madeFor int) {
	former := p.active.Load()
	if former != nil {
		q.former = maps.Clone(former.former)
		if q.former == nil {
			q.former = make(map[string]Events)
		}
		q.former[former.spec.Name] = former.events
	}
	p.active.Store(q)
	p.fit(q, madeFor)
	if former == nil {
		return
	}
	former.awaitEntering()
	for _, m := range p.empty(former) {
		p.offerAgain(m.task, q)
	}
	p.makeRoom(q, p.d.Now()) // the former one may have had more, or no bound
	if p.anyWaits() {
		p.watchStuck() // its timer may have found that nothing waits, while the switch had it all
	}
}

// empty takes all tasks out of q, that nobody pushes to any more, and returns them
// in order of arrival. What its law would shed is not shed.
func (p *pool) empty(q *queue) []moved {
	p.move.mu.Lock()
	p.move.tasks = make(map[*Task]struct{})
	p.move.mu.Unlock()
	var all []moved
	for contended := 0; ; {
		p.move.mu.Lock()
		t, what, _ := q.pop(p.d.Now())
		if t != nil {
			p.move.tasks[t] = struct{}{}
			all = append(all, moved{t, t.Arrival, t.Submitted})
		}
		p.move.mu.Unlock()
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
func (p *pool) offerAgain(t *Task, q *queue) {
	var shed strategies.Reason
	var v verdict
	var w worker // to note what is given up
	p.move.mu.Lock()
	if !p.move.takeLocked(t) { // given up meanwhile
		p.move.mu.Unlock()
		return
	}
	t.queue, t.probe = q, false
	now := p.d.Now()
	switch {
	case p.expired(t, now):
		shed = strategies.ReasonExpired
	case p.heldUp(t, q):
		shed = strategies.ReasonFull
	default:
		v = q.push(t, now)
		if v.outcome == strategies.CallerRuns && p.takeOut(now, &w) {
			v = q.push(t, now)
		}
		switch v.outcome {
		case strategies.CallerRuns: // its submitter sleeps
			p.await(t)
			p.lines.requeued.push(t)
		case strategies.TurnedAway:
			shed = v.reason
		}
	}
	p.move.mu.Unlock()
	p.giveUp(&w)
	if v.displaced != nil {
		p.d.shed(v.displaced, v.displacement)
	}
	if shed != strategies.ReasonNone {
		p.d.shed(t, shed)
	}
	p.wakeIfRunnable()
}

// takeOut puts the task whose turn is next ahead of the queue, so that there is room
// for one that the switch has in its hands and that comes later. It reports whether there
// may be.
func (p *pool) takeOut(now int64, w *worker) bool {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	t := p.pop(w, now)
	if t != nil {
		p.setAsideLocked(t, &p.lines.requeued)
	}
	return t != nil || len(w.given) > 0
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

// remove takes t, which was submitted to p, from wherever it waits. It asks no
// discipline but the one that t is in, if it is in any: its lock guards what
// disciplines note in t.
func (p *pool) remove(t *Task) bool {
	p.move.mu.Lock()
	defer p.move.mu.Unlock()
	if p.move.takeLocked(t) {
		return true
	}
	if t.queue.remove(t) {
		return true
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if p.lines.requeued.remove(t) {
		p.unawait(t)
		return true
	}
	return p.lines.held.remove(t)
}
