package dispatch

import (
	"runtime"
	"sync/atomic"

	"spillway/strategies"
)

// queue is one discipline in use.
type queue struct {
	spec       strategies.Spec
	discipline strategies.Discipline
	remover    strategies.Remover // nil if the discipline is none
	learner    strategies.Learner // nil if the discipline is none
	events     Events
	pool       *pool

	// entering counts the submitters that have chosen this queue and not yet
	// returned from Push.
	entering atomic.Int64
}

func newQueue(p *pool, spec strategies.Spec, events Events) *queue {
	q := &queue{
		spec:       spec,
		discipline: spec.New(strategies.Config{Capacity: p.d.opts.Capacity, Workers: p.workers}),
		events:     events,
		pool:       p,
	}
	q.remover, _ = q.discipline.(strategies.Remover)
	q.learner, _ = q.discipline.(strategies.Learner)
	return q
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

// drained reports whether q, which is no longer active, is empty for good. The
// order matters: once nobody is entering, nothing is added.
func (q *queue) drained() bool {
	return q.entering.Load() == 0 && q.discipline.Len() == 0
}

// activate makes q the queue that tasks are submitted to. It returns when no
// submitter uses the former one any more. The caller holds the dispatcher's
// mutex.
func (p *pool) activate(q *queue) {
	var former []*queue
	if qs := p.queues.Load(); qs != nil {
		former = *qs
	}
	// Workers have to know q before anything is pushed to it.
	qs := append(former[:len(former):len(former)], q)
	p.queues.Store(&qs)
	old := p.active.Swap(q)
	if old != nil {
		old.awaitEntering()
		p.retireLocked()
	}
}

// retire forgets the queues that are no longer active and have drained, unless
// a switch is under way: no worker waits for one, and the next that finds the
// queue empty tries again.
func (p *pool) retire() {
	if p.d.mu.TryLock() {
		defer p.d.mu.Unlock()
		p.retireLocked()
	}
}

// retireLocked needs the dispatcher's mutex.
func (p *pool) retireLocked() {
	qs := *p.queues.Load()
	last := len(qs) - 1
	if last == 0 {
		return
	}
	kept := make([]*queue, 0, len(qs))
	for i, q := range qs {
		if i == last || !q.drained() {
			kept = append(kept, q)
		}
	}
	p.queues.Store(&kept)
}
