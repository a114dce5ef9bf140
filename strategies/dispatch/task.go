package dispatch

import (
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// Task is one request on its way from the goroutine that submits it to whoever runs it: what a discipline sees of it,
// and what the dispatcher wants to know besides.
//
// Ownership. A task belongs to exactly one side at any moment: to the submitter until Submit, then to the discipline and
// the dispatcher, then to whoever runs it, and to the submitter again from the moment Done is called. Tasks are pooled by
// their submitter, so whoever has passed a task on must not look at it again.
//
// The submitter sets Arrival, Deadline, Priority, Cost, Client and Route, and the fields up to Done, before it submits the
// task; they are constant until Done is called. The dispatcher sets the others. The submitter may read those from Strategy
// on once Done is called.
type Task struct {
	strategies.Task

	// Write says that the task may be taken together with other writes, because what it does can be committed with them
	// at once.
	Write bool
	// InPlace says that the submitter would rather run the task itself, in the place of a worker that is idle, than have
	// the worker woken: it has nothing else to do meanwhile. A write that may be taken together with others goes to the
	// worker all the same, unless none has come of late.
	InPlace bool
	// Size is how many bytes the task writes. It bounds what is taken together.
	Size int64
	// Payload is what the task does. Only the submitter and whoever runs the task know its type.
	Payload any
	// Done is called exactly once for every submitted task, from any goroutine, after the task has run or was shed. It
	// must neither block nor submit a task.
	Done func(*Task)

	// Strategy is the name of the strategy that the task was submitted to.
	Strategy string
	// Shed is ReasonNone if the task was run, otherwise the reason why it was not.
	Shed strategies.Reason
	// Spared is why it would have been shed but for Options.Observe, ReasonNone if it would not.
	Spared strategies.Reason
	// Started is when the task was first run, on the clock of Arrival, and zero if it was shed before.
	Started int64
	// InTime is whether it was Good, and answered within the objective, and LateWrong whether it was so although the
	// strategy would have refused it as late: see Events.LateWrong. They are known after Release, if Options.Timed is set.
	InTime, LateWrong bool

	// queue is where the task was submitted or moved to, and events are those of the strategy that it was submitted to.
	queue  *queue
	events *Events
	// granted is how many places the task has, and found was limit.found when that was seen last.
	granted int64
	found   uint32
	// on is the resource whose places these are or, if it has none, where it runs.
	on atomic.Pointer[Resource]
	// began is when a task that is measured got its places, negative if it was hurried; 0 once its end was sampled.
	// ended is when Answered was called, negative if the end was not Good; 0 before. Answered and Release may be called
	// at once.
	began, ended atomic.Int64
	// outcome is where whoever runs the task says how it ended, nil if nobody learns from it.
	// hurried says that it had little time when it began.
	outcome *Outcome
	hurried bool
	// alone is the task itself, once it has run on its own: for Options.Run.
	alone [1]*Task
	// line is where the task waits, nil if it is in none, between those neighbours. All are under backlog.mu.
	line          *line
	before, after *Task
	// held is what the discipline of queue holds: the task as it knows it, nil if it does not hold it.
	held atomic.Pointer[strategies.Task]
	// doubted says that a discipline may have the task that had to be taken from it, as it had panicked. It may give up
	// what it has at any time, so from then on it and others are offered copies, a new one each time.
	doubted bool
	// probe says that the discipline would have refused it as late: see Events.LateWrong.
	probe bool
	// light says that the load was light when the task began, and continued that Continue was called for it.
	light     atomic.Bool
	continued bool
	// uses counts submissions, to time some of them.
	uses  uint8
	phase phase
}

// offered is what a discipline is offered for t.
func (t *Task) offered() *strategies.Task {
	if !t.doubted {
		return &t.Task
	}
	return &strategies.Task{
		Arrival: t.Arrival, Submitted: t.Submitted, Deadline: t.Deadline, Priority: t.Priority, Cost: t.Cost, Client: t.Client, Route: t.Route,
	}
}

func (t *Task) expired(now int64) bool { return t.Deadline != 0 && t.Deadline <= now }

// timedUses is how many submissions of a task go by between two that are timed.
const timedUses = 16

// timed reports whether it is to be measured when t is answered.
func (e *engine) timed(t *Task) bool {
	return t.uses%timedUses == 1 || t.probe || e.opts.Timed || e.observe.Load()
}

// begins notes whether the load is light when t begins.
func (t *Task) begins(light bool) {
	if t.light.Load() != light { // which costs less than to store it
		t.light.Store(light)
	}
}

func abs(n int64) int64 { return max(n, -n) }

// Began identifies this use of the places of t, for Answered. It is 0 if t is not measured, or its end was sampled.
func (t *Task) Began() int64 { return t.began.Load() }

// measure begins to measure how long t has its places.
func (t *Task) measure(now int64) {
	began := max(1, now)
	if l := t.on.Load().limit.learning.Load(); l != nil && l.hurried(t, now) {
		began = -began
	}
	t.began.Store(began)
}

// Ended says how t ended, for a learned number of workers. Whoever runs t calls it before done, and before Run returns,
// unless t was Good. Of several writes that are run at once one that was Dropped counts for all.
func (t *Task) Ended(how Outcome) {
	if t.outcome == nil || *t.outcome == Dropped {
		return
	}
	if how == Dropped && t.hurried {
		how = Ignored
	}
	*t.outcome = how
}

// reset prepares t for another submission.
func (t *Task) reset() {
	t.Shed, t.WouldShed, t.Spared = strategies.ReasonNone, strategies.ReasonNone, strategies.ReasonNone
	t.Started = 0
	t.probe, t.continued, t.InTime, t.LateWrong = false, false, false, false
	t.uses++
	if t.outcome != nil {
		t.outcome = nil
	}
	if t.began.Load() != 0 { // which costs less than to store it
		t.began.Store(0)
	}
	if t.ended.Load() != 0 {
		t.ended.Store(0)
	}
}
