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
	// Displaced returns the index of the task that leaves when there is no
	// room. Nil means that none does, and that Full is the answer.
	Displaced func(waiting []*strategies.Task) int
	// Full is the answer to Push when there is no room and none is made.
	Full strategies.Verdict
	// Unbounded says that there always is room.
	Unbounded bool
}

// Oldest is the index of the task that has waited longest.
func Oldest([]*strategies.Task) int { return 0 }

// Newest is the index of the task that came last.
func Newest(waiting []*strategies.Task) int { return len(waiting) - 1 }

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
}

var _ strategies.Remover = (*plain)(nil)

func (q *plain) Push(t *strategies.Task, _ int64) strategies.Verdict {
	var v strategies.Verdict
	if len(q.waiting) == q.capacity {
		if q.Displaced == nil {
			return q.Full
		}
		v.Displaced = q.take(q.Displaced(q.waiting))
	}
	q.waiting = append(q.waiting, t)
	return v
}

func (q *plain) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if len(q.waiting) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	return q.take(q.Next(q.waiting)), strategies.Run, strategies.ReasonNone
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
