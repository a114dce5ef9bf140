package sim

import (
	"cmp"
	"math"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// request is one attempt of a client to have something done. It is pooled: the
// generation changes when it is used anew, which makes its old events void.
type request struct {
	task strategies.Task // its Owner is the request
	wish wish
	node *node
	gen  uint32
	// gone says that the client does not wait for this attempt any more.
	gone bool
	// inline says that no worker runs it.
	inline bool
	// learnt says that the discipline is notified when it has been run.
	learnt bool
	begun  int64 // when it began to run
}

// Work returns how long a worker of speed 1 takes for r, for rivals of strategies that know it beforehand.
func (r *request) Work() time.Duration { return time.Duration(r.wish.service) }

// wish is what a client wants: a request with all its attempts.
type wish struct {
	scheduled int64 // the time of the first attempt
	sent      int64 // when that reached the service; it may have waited for a connection
	service   int64 // how long a worker of speed 1 takes for it
	class     int32
	attempts  int32
	client    string
	route     string
	measured  bool
}

// node is one service: the model of a dispatcher with its workers.
type node struct {
	s          *simulation
	discipline strategies.Discipline
	remover    strategies.Remover            // nil if the discipline is none
	learner    strategies.CompletionObserver // nil if the discipline is none
	turns      strategies.TurnObserver       // nil if the discipline is none
	meter      strategies.Meter              // nil if the discipline is none
	objective  strategies.Objective
	limiter    Limiter // nil if the number of workers is given
	workers    int
	inline     bool              // whoever submits a task runs it
	idle       int               // workers that have nothing to do, below 0 if there are too many
	hands      int               // of the store that have nothing to do
	store      backlog[*request] // what has begun and waits in the store for a hand
	batch      *batch            // what the hands work at, nil unless that slows it down
	slowness   float64           // 1 over the speed

	outstanding int
}

func newNode(s *simulation, n Node) *node {
	out := &node{s: s, workers: n.Workers, slowness: 1 / n.Speed, hands: cmp.Or(s.c.Parallel, math.MaxInt)}
	if s.c.Serial > 0 {
		out.batch = &batch{serial: s.c.Serial}
	}
	_ = out.objective.Set(s.c.Objective) // which was checked
	if out.limiter = s.c.Limiter; out.limiter != nil {
		if a, ok := out.limiter.(Aimer); ok {
			a.Aim(out.objective.InForce())
		}
		n.Workers = max(1, out.limiter.Limit())
		out.workers = n.Workers
	}
	d := s.c.New(strategies.Config{Capacity: n.Capacity, Workers: n.Workers, Objective: &out.objective})
	out.discipline, out.inline = d, d.Cap() == 0
	out.remover, _ = d.(strategies.Remover)
	out.learner, _ = d.(strategies.CompletionObserver)
	out.turns, _ = d.(strategies.TurnObserver)
	out.meter, _ = d.(strategies.Meter)
	for range n.Workers {
		out.rest()
	}
	return out
}

// submit is Dispatcher.Submit: straight to an idle worker if nothing waits, or
// as the discipline decides.
func (n *node) submit(r *request) {
	n.outstanding++
	if n.idle > 0 && !n.inline && n.discipline.Len() == 0 {
		n.idle--
		n.run(r)
		return
	}
	v := n.discipline.Push(&r.task, n.s.now)
	switch v.Outcome {
	case strategies.Queued:
		if v.Displaced != nil {
			n.shed(v.Displaced.Owner.(*request), v.Displacement())
		}
		n.wake()
	case strategies.CallerRuns:
		r.inline = true
		n.run(r)
	default:
		n.shed(r, v.Reason)
	}
}

// wake lets idle workers look for tasks, one after the other, until one finds
// none.
func (n *node) wake() {
	for n.idle > 0 && n.take() {
	}
}

// take lets an idle worker take its next task, and reports whether there was
// one.
func (n *node) take() bool {
	for {
		t, what, reason := n.discipline.Pop(n.s.now)
		switch what {
		case strategies.Run:
			r := t.Owner.(*request)
			if t.Deadline != 0 && t.Deadline <= n.s.now {
				n.shed(r, strategies.ReasonExpired)
				continue
			}
			if n.turns != nil {
				n.turns.TurnBegan(n.s.now)
			}
			r.learnt = n.learner != nil
			n.idle--
			n.run(r)
			return true
		case strategies.Shed:
			n.shed(t.Owner.(*request), reason)
		default:
			return false
		}
	}
}

// run begins a request, which keeps its worker, if it has one, while it waits in
// the store.
func (n *node) run(r *request) {
	r.begun = n.s.now
	if n.meter != nil {
		n.meter.Began(&r.task, n.s.now)
	}
	if n.hands == 0 {
		n.store.push(r)
		return
	}
	n.hands--
	n.serve(r)
}

// serve is a hand of the store that takes a request.
func (n *node) serve(r *request) {
	service := r.wish.service
	if n.slowness != 1 {
		service = int64(float64(service) * n.slowness)
	}
	if n.batch != nil {
		n.batch.add(n.s, r, service)
		return
	}
	n.s.agenda.plan(n.s.now+service, finished, r)
}

// finish is the end of a worker's turn: the client has its answer, the
// discipline learns, the worker takes its next task.
func (n *node) finish(r *request) {
	now := n.s.now
	if n.batch != nil {
		n.batch.end(n.s)
	}
	if n.store.empty() {
		n.hands++
	} else {
		n.serve(n.store.pop())
	}
	n.outstanding--
	waited, service := r.begun-r.task.Submitted, now-r.begun
	inline, learnt := r.inline, r.learnt
	n.settle(r)
	if !n.s.c.untold && n.discipline.Len() == 0 && n.workers-n.idle <= max(1, n.workers/2) {
		n.objective.Answered(service)
	}
	n.s.done(r, Served, strategies.ReasonNone)
	if learnt {
		n.learner.Completed(waited, service, now)
	}
	if n.limiter != nil {
		n.limit(Ended{Now: now, Began: now - service, Running: n.workers - n.idle, Waiting: n.discipline.Len() > 0})
	}
	if !inline {
		n.rest()
	}
}

// limit tells the limiter of what has ended, and has as many workers as it says.
func (n *node) limit(e Ended) {
	n.limiter.Ended(e)
	more := max(1, n.limiter.Limit()) - n.workers
	if more == 0 {
		return
	}
	n.workers += more
	n.idle += more
	if r, ok := n.discipline.(strategies.Resizer); ok {
		r.Resize(n.workers)
	}
}

// rest is what a worker does that has nothing to do: it looks for a task if any
// waits, and again when it has parked, which is one Pop that finds nothing to a
// discipline that counts them. If it finds a task, it passes the word on.
func (n *node) rest() {
	if n.idle++; n.idle <= 0 { // there are too many
		return
	}
	if (n.discipline.Len() > 0 && n.take() || n.take()) && n.idle > 0 && n.discipline.Len() > 0 {
		n.wake()
	}
}

// cancel is Dispatcher.Cancel: it gives r up if it still waits and its
// discipline can.
func (n *node) cancel(r *request, reason strategies.Reason) bool {
	if n.remover == nil || !n.remover.Remove(&r.task) {
		return false
	}
	n.shed(r, reason)
	return true
}

// settle tells a discipline that goes by it how long r has run, which was popped or begun.
func (n *node) settle(r *request) {
	if r.task.Run != 0 {
		n.meter.Ended(r.task.Run, 1, n.s.now)
		r.task.Run = 0
	}
}

func (n *node) shed(r *request, reason strategies.Reason) {
	n.settle(r)
	n.outstanding--
	n.s.done(r, Refused, reason)
}
