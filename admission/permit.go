package admission

import (
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
	admitted time.Time // for Options.Released
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
	t.Priority, t.Client, t.Cost = r.Priority, r.Client, r.Cost
	return w
}

// recycle puts w back into the pool. Only void permits may refer to it.
func (c *Controller) recycle(w *waiter) {
	w.task.Client = ""
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

// unused gives back the places of w, which nobody has used. So how long w had them tells
// nothing of how long requests take.
func (c *Controller) unused(w *waiter) {
	c.engine.Answered(&w.task, w.task.Began(), dispatch.Unmeasured)
	c.engine.Release(&w.task)
	c.recycle(w)
}

// shed is called by the engine when a task was shed.
func shed(t *dispatch.Task) {
	if w := t.Payload.(*waiter); !w.decide() {
		w.controller.recycle(w)
	}
}

// decide tells who asked, and reports whether anybody is there to hear it.
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
	if c.opts.Admitted != nil || c.opts.Shed != nil || c.opts.Released != nil {
		c.tellAdmitted(w)
	}
	return Permit{waiter: w, generation: w.generation.Load()}
}

func (c *Controller) tellAdmitted(w *waiter) {
	told := false
	defer func() {
		if !told { // a hook panics, and nobody gets the permit
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
	told = true
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

// Permit holds the places of a request. It is a value: its copies are the same permit. The
// zero value holds none.
type Permit struct {
	waiter     *waiter
	generation uint64
}

// Outcome is how a request ended, for a learned concurrency.
type Outcome uint8

const (
	// Good is a request that was served, also with an answer such as 404.
	Good Outcome = iota
	// Dropped is a request that ran out of time, or that an overloaded resource behind the
	// controller refused.
	Dropped
	// Unmeasured is a request whose duration says nothing about the resource, because it
	// did not reach it, for example.
	Unmeasured
)

// Answered ends the time that a learned concurrency measures, and says how the request
// ended. Call it when the answer begins, so that a client that reads slowly does not count.
// The places are kept until Release. Without Answered, Release ends the time, as Good. Only
// the first call has an effect, and only if the concurrency is learned.
func (p Permit) Answered(how Outcome) {
	w := p.waiter
	if w == nil {
		return
	}
	// In this order: if the permit is valid after the load of began, began is its own. If it
	// is released from now on, and the waiter is used again, that has another began.
	began := w.task.Began()
	if w.generation.Load() != p.generation {
		return
	}
	w.controller.engine.Answered(&w.task, began, dispatch.Outcome(how))
}

// Release gives the places back. Only the first call on any copy of the permit has an
// effect.
func (p Permit) Release() {
	w := p.waiter
	if w == nil || !w.generation.CompareAndSwap(p.generation, p.generation+1) {
		return
	}
	c := w.controller
	if c.opts.Released != nil {
		e := w.event()
		e.Held = time.Since(w.admitted)
		c.engine.Release(&w.task)
		c.recycle(w)
		c.opts.Released(e)
		return
	}
	c.engine.Release(&w.task)
	c.recycle(w)
}
