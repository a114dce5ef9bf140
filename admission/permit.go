package admission

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// waiter is a request on its way through the engine, and then what its permit refers to.
// It is pooled: when its places are given back its generation changes, which voids the
// permits that refer to it.
type waiter struct {
	task       dispatch.Task
	controller *Controller
	decided    chan struct{} // of capacity 1: it has its places, or was shed
	generation atomic.Uint64
	// ends counts how often its waiting has ended: by a decision of the engine, or because the
	// caller has left, whom no decision concerns any more. ended is the count before this use.
	ends     atomic.Uint32
	ended    uint32
	admitted time.Time // for Options.Released, and a Group
}

func (c *Controller) newWaiter() *waiter {
	w := &waiter{controller: c, decided: make(chan struct{}, 1)}
	w.task.Payload = w
	w.task.Done = shed
	return w
}

// waiter returns one from the pool.
func (c *Controller) waiter(r Request) *waiter {
	w := c.waiters.Get().(*waiter)
	w.ended = w.ends.Load()
	t := &w.task
	t.Arrival, t.Submitted, t.Deadline = 0, 0, 0
	t.Priority, t.Client, t.Route, t.Cost = r.Priority, r.Client, r.Route, r.Cost
	return w
}

// recycle puts w back into the pool. Only void permits may refer to it.
func (c *Controller) recycle(w *waiter) {
	w.task.Client, w.task.Route = "", ""
	c.waiters.Put(w)
}

// granted is called by the engine when a task that may have waited has its places.
func granted(t *dispatch.Task) {
	w := t.Payload.(*waiter)
	if w.decide() {
		return
	}
	go w.controller.unused(w) // it may grant the next one: a line of those who have left would nest as deep
}

// unused gives back the places of w, which nobody has used. How long w had them is no service
// time.
func (c *Controller) unused(w *waiter) {
	c.engine.Answered(&w.task, w.task.Began(), dispatch.Ignored)
	c.engine.Release(&w.task)
	c.recycle(w)
}

// shed is called by the engine when a task was shed.
func shed(t *dispatch.Task) {
	if w := t.Payload.(*waiter); !w.decide() {
		w.controller.recycle(w)
	}
}

// decide wakes the caller, and reports whether it still waits.
func (w *waiter) decide() bool {
	if !w.end() {
		return false
	}
	w.decided <- struct{}{}
	return true
}

// end ends the waiting of w, and reports whether nobody else has.
func (w *waiter) end() bool { return w.ends.CompareAndSwap(w.ended, w.ended+1) }

// admitted returns the permit of w, which has its places.
func (c *Controller) admitted(w *waiter) Permit {
	if c.group != nil {
		w.admitted = time.Now()
	}
	if c.opts.Admitted != nil || c.opts.Shed != nil || c.opts.Released != nil {
		c.callAdmitted(w)
	}
	return Permit{waiter: w, generation: w.generation.Load()}
}

func (c *Controller) callAdmitted(w *waiter) {
	returned := false
	defer func() {
		if !returned { // a hook panics, and nobody gets the permit
			c.unused(w)
		}
	}()
	e := w.event()
	if spared := w.task.Spared; spared != strategies.ReasonNone && c.opts.Shed != nil {
		e.Reason, e.Observed = spared, true
		c.opts.Shed(e)
		e.Reason, e.Observed = strategies.ReasonNone, false
	}
	if c.opts.Admitted != nil {
		c.opts.Admitted(e)
	}
	if c.opts.Released != nil {
		w.admitted = time.Now()
	}
	returned = true
}

// event returns what is known of w.
func (w *waiter) event() Event {
	t := &w.task
	e := Event{Strategy: t.Strategy, Request: Request{Priority: t.Priority, Client: t.Client, Cost: t.Cost}}
	if t.Started != 0 {
		e.Waited = time.Duration(max(0, t.Started-t.Submitted))
	}
	return e
}

// Permit holds the places of a request until it is Done. It is a value: its copies are the
// same permit. The zero value holds none.
type Permit struct {
	waiter     *waiter
	generation uint64
}

func (p Permit) valid() bool { return p.waiter != nil && p.waiter.generation.Load() == p.generation }

// Context returns a context for what the request of p does: where that asks the same
// controller for places, it has them, so that it does not wait for itself. Under the controller
// as the key, p is among the values of the context.
func (p Permit) Context(ctx context.Context) context.Context {
	if p.waiter == nil {
		return ctx
	}
	return &holding{ctx, p}
}

// holding is what context.WithValue would return, in one allocation.
type holding struct {
	context.Context
	permit Permit
}

func (h *holding) Value(key any) any {
	if c, ok := key.(*Controller); ok && c == h.permit.waiter.controller {
		return h.permit
	}
	return h.Context.Value(key)
}

// Outcome is how a request ended. A learned concurrency goes by it.
type Outcome uint8

const (
	// Good is a request that was served, also with an answer such as 404.
	Good Outcome = iota
	// Dropped is a request for which the resource behind the controller could not do enough:
	// it refused, or took longer than the request had. It counts as Ignored if the request
	// had less than a usual service time until its deadline when it got its places.
	Dropped
	// Ignored is a request that says nothing of the resource: its client left, or it did
	// not reach the resource.
	Ignored
	// Unreached is a request that could not be sent to its resource, which therefore rests if
	// it is one of a Group's. It counts as Ignored.
	Unreached
	// Failed is a request that its resource answered with an error of its own, such as a status
	// of 500. How long that took says nothing of the work, so it counts as Ignored, and against a
	// resource of a Group.
	Failed
)

// learned is what the outcome says to a learned number.
func (how Outcome) learned() dispatch.Outcome {
	return dispatch.Outcome(min(how, Ignored))
}

// Done gives the places back, and says how the request ended. Only the first call on any
// copy of the permit has an effect.
func (p Permit) Done(how Outcome) {
	w := p.waiter
	if w == nil || !w.generation.CompareAndSwap(p.generation, p.generation+1) {
		return
	}
	c := w.controller
	if c.group != nil {
		c.group.ended(w, how)
	}
	c.end(w, how)
}

// end gives the places of w back, which then is another's, and says how the request ended.
func (c *Controller) end(w *waiter, how Outcome) {
	if how.learned() != dispatch.Good {
		c.engine.Answered(&w.task, w.task.Began(), how.learned())
	}
	if c.opts.Released == nil && c.opts.Shed == nil {
		c.engine.Release(&w.task)
		c.recycle(w)
		return
	}
	e, spared := w.event(), w.task.Spared
	e.Held = time.Since(w.admitted)
	c.engine.Release(&w.task)
	e.InTime, e.LateWrong = w.task.InTime, w.task.LateWrong
	late := w.task.Spared != spared
	c.recycle(w)
	if late && c.opts.Shed != nil {
		c.opts.Shed(Event{Strategy: e.Strategy, Request: e.Request, Waited: e.Waited, Reason: strategies.ReasonLate, Observed: true})
	}
	if c.opts.Released != nil {
		c.opts.Released(e)
	}
}

// Release is Done(Good).
func (p Permit) Release() { p.Done(Good) }

// Tell ends the service time of the request and says how it ended, but keeps the places.
// It is for an answer that is ready and still has to be sent: the time in which a client
// reads it is no service time. Only the first of Tell and Done says how the request ended.
func (p Permit) Tell(how Outcome) {
	w := p.waiter
	if w == nil {
		return
	}
	// In this order: if the permit is valid after the load of began, began is its own. If it
	// is given back from now on, and the waiter is used again, that has another began.
	began := w.task.Began()
	if !p.valid() {
		return
	}
	w.controller.engine.Answered(&w.task, began, how.learned())
}
