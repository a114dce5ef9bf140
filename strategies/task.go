package strategies

import "sync/atomic"

// Task is one request on its way from the goroutine that received it to the
// worker that runs it.
//
// Ownership. A task belongs to exactly one side at any moment: to the
// submitter until Submit, then to the discipline and the dispatcher, then to
// the worker that runs it, and to the submitter again from the moment Done is
// called. Tasks are pooled by their submitter, so whoever has passed a task on
// must not look at it again.
//
// The exported fields up to Payload are set by the submitter before it submits
// the task and are constant until Done is called: a discipline may read them
// at any time between the Push that accepted the task and the Pop, Remove or
// displacement that gave it back.
type Task struct {
	// Arrival is when the request arrived, in nanoseconds on the monotonic
	// clock whose readings are passed to Push and Pop.
	Arrival int64
	// Deadline is when the client stops waiting, on the same clock. Zero means
	// that the client did not say.
	Deadline int64
	// Priority is the class of the request, 0 (most important) to 7.
	Priority uint8
	// Write says that the task may be taken together with other writes, because
	// what it does can be committed with them at once.
	Write bool
	// Size is how many bytes the task writes. It bounds what is taken together.
	Size int64
	// InPlace says that the submitter would rather run the task itself, in the
	// place of a worker that is idle, than have the worker woken: it has nothing
	// else to do meanwhile. A write that may be taken together with others goes to
	// the worker all the same, unless none has come of late.
	InPlace bool
	// Client names whoever sent the request, for fairness. It may be empty.
	Client string
	// Payload is what the task does. Only the submitter and whoever runs the
	// task know its type.
	Payload any
	// Done is called exactly once for every submitted task, from any goroutine,
	// after the task has run or was shed; Shed then tells which. It must neither
	// block nor submit a task. The task is the submitter's again from the beginning
	// of the call.
	Done func(*Task)

	// Strategy is the name of the strategy that the task was submitted to. The
	// dispatcher sets it; the submitter may read it once Done is called.
	Strategy string
	// Shed is ReasonNone if the task was run, otherwise the reason why it was
	// not. The dispatcher sets it; the submitter may read it once Done is
	// called.
	Shed Reason
	// Submitted is when the task was submitted, on the clock of Arrival. The
	// dispatcher sets it before Push.
	Submitted int64
	// Started is when the task was first run, on the clock of Arrival, and zero
	// if it was shed before. The dispatcher sets it; the submitter may read it
	// once Done is called.
	Started int64
	// Owner is the dispatcher's own note on where the task is. Disciplines leave it
	// alone.
	Owner any

	// The fields below belong to the built-in discipline that holds the task,
	// and are meaningless otherwise.

	next, prev *Task                // neighbours in a list, or children in a tree
	list       *list                // the list that holds the task, nil outside of one
	up         *Task                // parent in a tree
	size       int                  // of the part of a tree below and with the task, 0 outside of one
	ticket     uint64               // position in a ring, or number of the push
	node       atomic.Pointer[node] // place in a linked queue
}

// Reason tells why a task was not run.
type Reason uint8

// The reasons why a task may be shed.
const (
	// ReasonNone means that the task was not shed.
	ReasonNone Reason = iota
	// ReasonFull means that the queue had no room.
	ReasonFull
	// ReasonDisplaced means that a newer task took its place.
	ReasonDisplaced
	// ReasonCoDel means that the task waited too long while a queue stood.
	ReasonCoDel
	// ReasonLimit means that an adaptive limit was reached.
	ReasonLimit
	// ReasonFair means that the task's client was over its share.
	ReasonFair
	// ReasonAbandoned means that the client went away.
	ReasonAbandoned
	// ReasonDraining means that the service is stopping.
	ReasonDraining
	// ReasonExpired means that the task's deadline passed while it waited.
	ReasonExpired

	numReasons
)

var reasonNames = [numReasons]string{
	"none", "full", "displaced", "codel", "limit", "fair", "abandoned", "draining", "expired",
}

// String returns the reason's name as clients and metrics see it.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Valid reports whether r is a reason to shed a task.
func (r Reason) Valid() bool { return r != ReasonNone && r < numReasons }

// Reasons returns every reason for which a task may be shed.
func Reasons() []Reason {
	all := make([]Reason, 0, numReasons-1)
	for r := ReasonNone + 1; r < numReasons; r++ {
		all = append(all, r)
	}
	return all
}
