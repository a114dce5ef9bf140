package dispatch

import (
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// Task is one request on its way from the goroutine that submits it to whoever runs
// it: what a discipline is told of it, and what the dispatcher wants to know besides.
//
// Ownership. A task belongs to exactly one side at any moment: to the
// submitter until Submit, then to the discipline and the dispatcher, then to
// whoever runs it, and to the submitter again from the moment Done is
// called. Tasks are pooled by their submitter, so whoever has passed a task on
// must not look at it again.
//
// Arrival, Deadline, Priority, Cost and Client, and the fields up to Done, are set by
// the submitter before it submits the task and are constant until Done is called. The
// dispatcher sets Submitted, Owner and the fields below.
type Task struct {
	strategies.Task

	// Write says that the task may be taken together with other writes, because
	// what it does can be committed with them at once.
	Write bool
	// InPlace says that the submitter would rather run the task itself, in the
	// place of a worker that is idle, than have the worker woken: it has nothing
	// else to do meanwhile. A write that may be taken together with others goes to
	// the worker all the same, unless none has come of late.
	InPlace bool
	// Size is how many bytes the task writes. It bounds what is taken together.
	Size int64
	// Payload is what the task does. Only the submitter and whoever runs the
	// task know its type.
	Payload any
	// Done is called exactly once for every submitted task, from any goroutine,
	// after the task has run or was shed; Shed then tells which. It must neither
	// block nor submit a task. The task is the submitter's again from the beginning
	// of the call.
	Done func(*Task)

	// Strategy is the name of the strategy that the task was submitted to. The
	// submitter may read it once Done is called.
	Strategy string
	// Shed is ReasonNone if the task was run, otherwise the reason why it was
	// not. The submitter may read it once Done is called.
	Shed strategies.Reason
	// Spared is why it would have been shed but for Options.Observe, ReasonNone if it
	// would not. The submitter may read it once Done is called.
	Spared strategies.Reason
	// Started is when the task was first run, on the clock of Arrival, and zero
	// if it was shed before. The submitter may read it once Done is called.
	Started int64

	// queue is where the task was submitted to or has been moved to.
	queue *queue
	// granted is how many places the task has, and learner whom to tell of its end, with
	// Options.Grant.
	granted int64
	// stuck is the pool's stuck.times when that was seen last.
	stuck   uint32
	learner strategies.CompletionObserver
	// began is when it was granted its places, if their number is learned, and 0 once its
	// end was measured. Answered and Release may come at once.
	began atomic.Int64
	// outcome is where whoever runs the task says how it ended, nil if nobody learns from it.
	outcome *Outcome
	// held says that the discipline of queue holds the task.
	held atomic.Bool
}

// Began returns when t, which has its places, got them, for Answered. It is 0 if their
// number is not learned, or the end of t was measured.
func (t *Task) Began() int64 { return t.began.Load() }

// Ended says how t ended, for a learned number of workers. Whoever runs t calls it before
// done, and before Run returns, unless t was Good. Of several writes that are run at once
// one that was Dropped counts for all.
func (t *Task) Ended(how Outcome) {
	if t.outcome != nil && *t.outcome != Dropped {
		*t.outcome = how
	}
}

// reset prepares t for another submission.
func (t *Task) reset() {
	t.Shed, t.WouldShed, t.Spared = strategies.ReasonNone, strategies.ReasonNone, strategies.ReasonNone
	t.Started, t.learner = 0, nil
	if t.outcome != nil {
		t.outcome = nil
	}
	if t.began.Load() != 0 { // which costs less than to store it
		t.began.Store(0)
	}
}
