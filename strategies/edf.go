package strategies

import (
	"cmp"
	"sync/atomic"
	"time"
)

// edf serves the task with the earliest deadline first: the rule of J. R.
// Jackson, "Scheduling a Production Line to Minimize Maximum Tardiness", 1955,
// which C. L. Liu and James W. Layland, "Scheduling Algorithms for Multiprogramming
// in a Hard-Real-Time Environment", Journal of the ACM 20, 1973, showed to keep
// every deadline, on one processor that may interrupt periodic tasks, if any order
// can. With several workers, which finish what they began, it is a good rule and
// not the best (Dhall and Liu, Operations Research 26, 1978).
//
// A task without a deadline cannot miss it, so it goes after nearly all that have
// one, as if it had the longest that there is: an hour after its arrival. Tasks
// that are due at the same time are served in the order of their arrival.
//
// When more comes than can be done, the rule alone fails: each task is served
// just when it is nearly too late, and so too late, while others could have been
// in time. So a task is refused as late at once, while its client can still
// try elsewhere, if it would not be done in time. With k - 1 tasks due before it, w
// workers and a service time of s, that is if
//
//	deadline - now < s (1 + 2 k / w)
//
// Twice, because what comes later and is due earlier goes before it as well. With
// deadlines of 5 to 125 service times, 10% are missed or refused at a load of 1.1,
// and 52% at 2, where 9% and 50% have to be. Without refusals it is 23% and 90%.
//
// The service time is the mean of the last 32 or so tasks that had waited: health
// checks of a quiet service do not count. None counts for more than 16 times the
// mean, so that one that hung does not have everybody refused. The mean cannot
// get stuck: whatever it is, a task is let in while none waits, and then measured.
//
// When the queue is full, the task with the latest deadline is displaced or, if
// that is the pushed one, turned away.
type edf struct {
	workers atomic.Int64
	observe bool

	sorted
	// service is the mean service time in nanoseconds, 0 as long as none is known.
	service atomic.Int64
}

var (
	_ Remover            = (*edf)(nil)
	_ CompletionObserver = (*edf)(nil)
	_ Resizer            = (*edf)(nil)
)

// EDFOptions are the options of the strategy edf.
type EDFOptions struct {
	// RelativeDeadline is the time from the arrival of a task without a deadline until it is
	// due. 1µs to 1h, 0 means 1h, the longest deadline that the service accepts.
	RelativeDeadline time.Duration
}

// EDF returns the strategy edf with options.
func EDF(o EDFOptions) Spec {
	relative := cmp.Or(o.RelativeDeadline, time.Hour)
	return Spec{
		Name:    "edf",
		Summary: "earliest deadline first, refusing what cannot be done in time; when full, the latest deadline is displaced",
		New: func(c Config) Discipline {
			q := &edf{observe: c.Observe}
			q.Resize(c.Workers)
			q.init(c, func(t *Task) int64 {
				if t.Deadline == 0 {
					return t.Arrival + int64(relative)
				}
				return t.Deadline
			})
			return q
		},
		invalid: checkDuration("edf", "RelativeDeadline", relative),
	}
}

// Resize sets the number of workers.
func (q *edf) Resize(workers int) { q.workers.Store(int64(max(1, workers))) }

// Push adds t, unless it could not be done in time. If the queue is full, the
// task with the latest deadline is displaced, or t turned away if it is that.
func (q *edf) Push(t *Task, now int64) Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.numberLocked(t)
	if q.lateLocked(t, now) {
		if !q.observe {
			return Verdict{Outcome: TurnedAway, Reason: ReasonLate}
		}
		t.WouldShed = ReasonLate
	}
	return q.pushLocked(t)
}

// lateLocked reports whether t, which has its number, would hardly be done in time.
func (q *edf) lateLocked(t *Task, now int64) bool {
	service := q.service.Load()
	if t.Deadline == 0 || service == 0 || q.mu.root == nil {
		return false
	}
	// With t itself, so many have to be taken until t has been.
	taken := q.mu.before(t) + 1
	needed := float64(service) * (2*float64(taken)/float64(q.workers.Load()) + 1)
	return float64(t.Deadline-now) < needed
}

// Pop takes the task with the earliest deadline.
func (q *edf) Pop(int64) (*Task, PopResult, Reason) { return q.popFirst() }

// The mean of the service times.
const (
	serviceGain     = 32     // each counts for one part in so many
	serviceOutlier  = 16     // and as so many times the mean at most
	serviceShortest = 32     // nanoseconds at least: of less, that part would be rounded to nothing
	serviceLongest  = 3600e9 // and as an hour at most
)

// Completed learns the service time. Of two calls at the same moment one may
// get lost.
func (q *edf) Completed(_, service, _ int64) {
	service = min(max(service, serviceShortest), serviceLongest)
	if mean := q.service.Load(); mean != 0 {
		service = mean + (min(service, serviceOutlier*mean)-mean)/serviceGain
	}
	q.service.Store(service)
}

// Measured returns the interval between tasks, by the mean of the service times.
func (q *edf) Measured() Measured {
	return Measured{Pace: q.service.Load() / q.workers.Load()}
}
