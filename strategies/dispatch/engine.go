package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// engine is what a Dispatcher and Places have in common. It starts no goroutine.
type engine struct {
	opts     Options
	backlogs []*backlog // one, or the readers' and the writers'

	refusing atomic.Bool   // whatever waits or comes is shed: a drain has run out of time
	leaving  atomic.Bool   // whatever comes is shed, but for continuations
	draining atomic.Bool   // Drain was called
	quiet    chan struct{} // signals that nothing is in flight, once draining
	observe  atomic.Bool   // nothing is shed that need not be; changes under mu

	_ [64]byte
	// inFlight counts the tasks between Submit, Continue or Acquire and the end of Done or Release.
	inFlight atomic.Int64
	_        [56]byte

	// mu serialises switches, and keeps them away while what waits is shed.
	mu sync.Mutex
	// numbers serialises changes of opts.Workers and opts.Learn, and of what there are limits for.
	numbers sync.Mutex
}

// open makes the strategy active, and has the number learned. The backlogs are there, and nobody else knows e yet.
func (e *engine) open() error {
	e.quiet = make(chan struct{}, 1)
	e.observe.Store(e.opts.Observe)
	spec, byName := e.opts.Spec, e.opts.Spec.Name == "" && e.opts.Spec.New == nil
	var err error
	if byName {
		spec, err = strategies.Lookup(e.opts.Strategy)
	}
	if err == nil && e.opts.Learn != nil {
		err = e.Learn(*e.opts.Learn)
	}
	if err == nil {
		err = e.activateLocked(spec, byName)
	}
	return err
}

// Now returns the time on the clock of Task.Arrival and Task.Deadline, in nanoseconds.
func (e *engine) Now() int64 { return int64(time.Since(e.opts.Epoch)) }

// orNow returns now, or the time if now is 0.
func (e *engine) orNow(now int64) int64 {
	if now == 0 {
		now = e.Now()
	}
	return now
}

// shed gives t back to its submitter, without having run it.
func (e *engine) shed(t *Task, reason strategies.Reason) {
	t.Shed = reason
	e.endRun(t, 0)    // it may have been popped
	if !t.continued { // which was counted when it started
		if reason == strategies.ReasonAbandoned || reason == strategies.ReasonExpired {
			e.observeLate(t, e.Now())
		}
		t.events.Shed(reason)
	}
	e.completed(t)
}

// endRun ends the run of t at the meter that has noted it, if one has. Now may be 0.
func (e *engine) endRun(t *Task, now int64) {
	if t.Run != 0 {
		t.queue.ends(t.Run, 1, e.orNow(now))
		t.Run = 0
	}
}

// completed gives t back to its submitter. Nobody here may touch it any more.
func (e *engine) completed(t *Task) {
	if t.Shed == strategies.ReasonNone && !t.continued && e.timed(t) {
		e.answered(t, t.Started, e.Now(), Good)
	}
	t.phase.becomes(false)
	t.Done(t)
	e.left()
}

// answered does what follows when t, which began to run at that time, was answered.
func (e *engine) answered(t *Task, began, now int64, how Outcome) {
	if how == Good && began != 0 && t.light.Load() && t.queue.backlog.light() {
		e.opts.Objective.Answered(now - began)
	}
	late := e.observeLate(t, now)
	t.InTime = how == Good && !late
	if t.probe && t.InTime {
		t.LateWrong = true
		t.events.LateWrong()
	}
	t.probe = false
}

// observeLate reports whether t has been there for longer than the objective: it is answered now, or has left. It notes
// that t would have been refused as late, if the dispatcher only observes.
func (e *engine) observeLate(t *Task, now int64) (late bool) {
	inForce := int64(e.opts.Objective.InForce())
	late = inForce != 0 && now-t.Arrival > inForce
	if late && e.observe.Load() && t.queue != nil && t.queue.spec.ByObjective && t.Spared == strategies.ReasonNone {
		t.Spared = strategies.ReasonLate
		t.events.WouldShed(strategies.ReasonLate)
	}
	return late
}

// entered counts a new task in flight, which is the engine's from now on.
func (e *engine) entered(t *Task) {
	e.inFlight.Add(1)
	t.phase.becomes(true)
	t.reset()
}

func (e *engine) left() {
	n := e.inFlight.Add(-1)
	counts(n, "tasks in flight")
	if n == 0 && e.draining.Load() {
		e.tellQuiet()
	}
}

func (e *engine) tellQuiet() {
	select {
	case e.quiet <- struct{}{}:
	default:
	}
}

// Switch makes the strategy of that name the active one, and moves what waits into it, in order of arrival and by its
// rules: see the package comment. New tasks go to the new strategy from the beginning. The error for an unknown name wraps
// strategies.ErrUnknown. Nothing happens if that strategy is active already, unless it was given as a value.
func (e *engine) Switch(name string) error {
	spec, err := strategies.Lookup(name)
	if err != nil {
		return err
	}
	return e.switchTo(spec, true)
}

// SwitchTo is Switch to a strategy that is given as a value, even if the active one has the same name. The error is
// that of Spec.Check.
func (e *engine) SwitchTo(spec strategies.Spec) error { return e.switchTo(spec, false) }

func (e *engine) switchTo(spec strategies.Spec, byName bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	former := e.backlogs[0].active.Load()
	if byName && former.byName && former.spec.Name == spec.Name {
		return nil
	}
	if err := e.activateLocked(spec, byName); err != nil {
		return err
	}
	e.opts.Switched(former.spec.Name, spec.Name)
	return nil
}

// SetObserve changes Options.Observe. The active strategy begins anew, with what waits; a learned number holds again, or
// holds nobody back. Switched is not called.
func (e *engine) SetObserve(observe bool) error {
	return e.renew(func() bool { return e.observe.Swap(observe) != observe }, func() { e.observe.Store(!observe) })
}

// SetCapacity changes Options.Capacity. The active strategy begins anew, with what waits; what has no room then is shed by
// its rules. Switched is not called.
func (e *engine) SetCapacity(n int) error {
	if err := checkCapacity(n); err != nil {
		return err
	}
	var former int
	return e.renew(func() bool {
		former, e.opts.Capacity = e.opts.Capacity, n
		return n != former
	}, func() { e.opts.Capacity = former })
}

// renew has the active strategy begin anew, if set has changed something that it is made for. If it cannot, undo takes the
// change back. Both are called with mu held.
func (e *engine) renew(set func() (changed bool), undo func()) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !set() {
		return nil
	}
	q := e.backlogs[0].active.Load()
	err := e.activateLocked(q.spec, q.byName)
	if err != nil {
		undo()
	}
	for _, b := range e.backlogs {
		for _, m := range *b.limits.Load() {
			m.change(func() {}) // what follows from that
		}
	}
	return err
}

// Objective returns the objective. Whoever sets it changes what is in force at once.
func (e *engine) Objective() *strategies.Objective { return e.opts.Objective }

func (e *engine) activateLocked(spec strategies.Spec, byName bool) error {
	if err := spec.Check(); err != nil {
		return err
	}
	events := new(Events)
	queues := make([]*queue, len(e.backlogs))
	for i, b := range e.backlogs {
		var err error
		if queues[i], err = newQueue(b, spec, byName, events); err != nil {
			return err
		}
	}
	*events = e.opts.Events(spec)
	if events.WouldShed == nil {
		events.WouldShed = func(strategies.Reason) {}
	}
	if events.LateWrong == nil {
		events.LateWrong = func() {}
	}
	for i, b := range e.backlogs {
		b.activate(queues[i])
	}
	return nil
}

// Drain waits until no task is in flight. If ctx ends before, it sheds all that waits and returns the error of ctx; tasks
// that have been started may still be running then. Once ctx has ended, all that is submitted is shed.
func (e *engine) Drain(ctx context.Context) error {
	e.draining.Store(true)
	for e.inFlight.Load() != 0 {
		select {
		case <-e.quiet:
		case <-ctx.Done():
			e.refusing.Store(true)
			for _, b := range e.backlogs {
				b.shedAll(strategies.ReasonDraining)
			}
			return ctx.Err()
		}
	}
	if ctx.Err() != nil {
		e.refusing.Store(true) // also what is between two turns now
	}
	e.tellQuiet() // for others who wait
	return nil
}

// Resize changes the number of workers, or of the places of each resource, at least 1, and ends its learning. It does not
// wait: if more are in use, they stay so until their turn ends or they are given back. It has no effect on split pools.
func (e *engine) Resize(n int) {
	if len(e.backlogs) > 1 {
		return
	}
	e.numbers.Lock()
	defer e.numbers.Unlock()
	e.opts.Workers, e.opts.Learn = max(1, n), nil
	for _, m := range *e.backlogs[0].limits.Load() {
		m.set(e.opts.Workers, nil)
	}
}

// Learn has the number learned from now on: see Options.Learn. It has no effect if it is already, or with split pools.
func (e *engine) Learn(o concurrency.Options) error {
	if _, err := newLearning(e, o); err != nil || len(e.backlogs) > 1 {
		return err
	}
	e.numbers.Lock()
	defer e.numbers.Unlock()
	e.opts.Learn = &o
	for _, m := range *e.backlogs[0].limits.Load() {
		if m.learning.Load() == nil {
			l, _ := newLearning(e, o) // which o allows
			m.set(0, l)
		}
	}
	return nil
}
