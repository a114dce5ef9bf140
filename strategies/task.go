package strategies

import "sync/atomic"

// Task is one request, as far as a queue discipline sees it. Whoever drives a
// discipline, as package dispatch does, makes it a part of a type of its own.
//
// The zero value is an ordinary request: of ordinary importance, without a deadline,
// at the cost of one.
//
// Ownership. A task that Push has queued is the discipline's until it gives the task
// up: by Pop, by Remove or as displaced. The fields up to Owner are constant meanwhile.
// Tasks are pooled by whoever submits them, so a discipline that has given one up must
// not look at it again, nor keep anything that leads to it.
type Task struct {
	// Arrival is when the request arrived, in nanoseconds on the monotonic
	// clock whose readings are passed to Push and Pop.
	Arrival int64
	// Submitted is when the task was first offered to a discipline, on the same
	// clock. A task that moves to another discipline keeps it.
	Submitted int64
	// Deadline is when the client stops waiting, on the same clock. Zero means
	// that the client did not say.
	Deadline int64
	// Priority is how important the request is.
	Priority Priority
	// Cost is how many of the places, or workers, the task takes at once, where one
	// can take several. Less than 1 means 1: see Places.
	Cost int
	// Client names whoever sent the request, for fairness. It may be empty.
	Client string
	// Route says what kind of request it is, for estimates of how long it takes. It may be empty.
	Route string

	// Run is where a Meter notes the number by which it knows the task while it runs. It is 0 when the task is
	// pushed, or begins without waiting.
	Run uint64

	// WouldShed is where a discipline notes, under Config.Observe, why it would have shed
	// the task: the first reason, if there are several. It is ReasonNone when the task is
	// pushed.
	WouldShed Reason

	// Owner leads back to what the task is a part of. It is for whoever drives the
	// discipline; disciplines leave it alone.
	Owner any

	// State belongs to the discipline that holds the task.
	State State
}

// Places returns how many places the task takes: its cost, but 1 at the least.
func (t *Task) Places() int { return max(1, t.Cost) }

// State is what a discipline notes in a task that it holds, so that holding
// one allocates nothing. Which field means what is up to the discipline. It must not
// rely on what it finds there in a task that is pushed, but for Holder and Shared, which
// are nil then: whoever gives a task up leaves them so, and clears the links, since a
// pooled task must not keep alive what it waited with.
//
// Remove is called with tasks that another goroutine may be popping at this moment, so
// only what the discipline's lock guards, or Shared, may be looked at there.
type State struct {
	// Next, Prev and Up are neighbours in a list, or children and parent in a tree.
	Next, Prev, Up *Task
	// Holder is that part of the discipline that holds the task, as a list: a pointer,
	// so that noting it allocates nothing.
	Holder any
	// Number may be a position, or the number of the push.
	Number uint64
	// Count may be the size of what is below the task in a tree.
	Count int
	// Shared is for disciplines without a lock. It may point to a field of the node
	// that holds the task, in which that node refers to itself.
	Shared atomic.Pointer[any]
}

// Priority is how important a request is. Urgencies are those of RFC 9218, from 0, the
// most important, to 7: 1 to 7 stand for themselves, MostImportant for 0, and 0, the
// zero value, for the ordinary urgency, which is 3.
type Priority int8

const (
	// Ordinary is the priority of requests that say nothing about it.
	Ordinary Priority = 0
	// MostImportant is urgency 0.
	MostImportant Priority = -1
	// LeastImportant is urgency 7.
	LeastImportant Priority = classes - 1
)

const (
	// classes is how many urgencies there are.
	classes = 8
	// ordinaryClass is the urgency of who says nothing.
	ordinaryClass = 3
)

// Urgency returns the priority that stands for an urgency, 0 to 7. Beyond these it is
// the nearest.
func Urgency(u int) Priority {
	if u <= 0 {
		return MostImportant
	}
	return Priority(min(u, classes-1))
}

// Class returns the urgency that p stands for, 0 (most important) to 7.
func (p Priority) Class() int {
	switch {
	case p < 0:
		return 0
	case p == Ordinary:
		return ordinaryClass
	default:
		return int(min(p, LeastImportant))
	}
}
