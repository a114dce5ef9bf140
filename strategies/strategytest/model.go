package strategytest

import (
	"slices"

	"github.com/spillway-go/spillway/strategies"
)

// Model describes a discipline in the plainest way, a slice of the tasks that
// wait in the order of their arrival. It is to be compared with, not to be
// used: it is slow, and for one goroutine only.
type Model struct {
	// Next returns the index of the task that Pop takes.
	Next func(waiting []*strategies.Task) int
	// Any, in the place of Next, returns the indexes of all tasks that Pop may take, of which the discipline
	// draws one: an order that has chance in it.
	Any func(waiting []*strategies.Task) []int
	// Displaced returns the index of the task that leaves when there is no room. The
	// last of those that wait is the one that is pushed: if that is to leave, it is turned
	// away as full. Nil means that none leaves, and that Full is the answer.
	Displaced func(waiting []*strategies.Task) int
	// Full is the answer to Push when there is no room and none is made.
	Full strategies.Verdict
	// Unbounded says that there always is room.
	Unbounded bool
}

// Oldest is the index of the task that has waited longest.
func Oldest([]*strategies.Task) int { return 0 }

// Everybody returns all indexes, for Model.Any.
func Everybody(waiting []*strategies.Task) (all []int) {
	for i := range waiting {
		all = append(all, i)
	}
	return all
}

// Newest is the index of the task that came last.
func Newest(waiting []*strategies.Task) int { return len(waiting) - 1 }

// First returns the index of the first task in an order, of equal ones the oldest.
func First(compare func(a, b *strategies.Task) int) func([]*strategies.Task) int {
	return func(waiting []*strategies.Task) (first int) {
		for i, t := range waiting {
			if compare(t, waiting[first]) < 0 {
				first = i
			}
		}
		return first
	}
}

// Last returns the index of the last task in an order, of equal ones the newest.
func Last(compare func(a, b *strategies.Task) int) func([]*strategies.Task) int {
	return func(waiting []*strategies.Task) (last int) {
		for i, t := range waiting {
			if compare(t, waiting[last]) >= 0 {
				last = i
			}
		}
		return last
	}
}

// New returns an empty discipline that does what the model says. It is what
// [Run], [Rules] and [Replay] want.
func (m Model) New(c strategies.Config) strategies.Discipline {
	q := &plain{Model: m, capacity: c.Capacity}
	if m.Unbounded {
		q.capacity = strategies.Unbounded
	}
	return q
}

type plain struct {
	Model
	capacity int
	waiting  []*strategies.Task
	drawn    *strategies.Task // what the discipline has popped, for Any
}

var _ strategies.Remover = (*plain)(nil)

func (q *plain) Push(t *strategies.Task, _ int64) strategies.Verdict {
	if len(q.waiting) == q.capacity && q.Displaced == nil {
		return q.Full
	}
	q.waiting = append(q.waiting, t)
	if q.capacity == strategies.Unbounded || len(q.waiting) <= q.capacity {
		return strategies.Verdict{}
	}
	left := q.take(q.Displaced(q.waiting))
	if left == t {
		return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
	}
	return strategies.Verdict{Displaced: left}
}

// draw tells a model with Any what the discipline has popped.
func (q *plain) draw(t *strategies.Task) { q.drawn = t }

func (q *plain) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if len(q.waiting) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	if q.Any == nil {
		return q.take(q.Next(q.waiting)), strategies.Run, strategies.ReasonNone
	}
	may := q.Any(q.waiting)
	if drawn := slices.Index(q.waiting, q.drawn); slices.Contains(may, drawn) {
		return q.take(drawn), strategies.Run, strategies.ReasonNone
	}
	return q.take(may[0]), strategies.Run, strategies.ReasonNone
}

func (q *plain) Remove(t *strategies.Task) bool {
	i := slices.Index(q.waiting, t)
	if i < 0 {
		return false
	}
	q.take(i)
	return true
}

func (q *plain) take(i int) *strategies.Task {
	t := q.waiting[i]
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return t
}

func (q *plain) Len() int { return len(q.waiting) }

func (q *plain) Cap() int { return q.capacity }
