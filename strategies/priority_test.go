package strategies_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// inOrder is the model of a queue that serves tasks in an order of their own,
// and holds the first of them: when there is no room, the last makes it.
type inOrder struct {
	capacity int
	compare  func(a, b *strategies.Task) int
	waiting  []*strategies.Task
}

func (m *inOrder) Push(t *strategies.Task, _ int64) strategies.Verdict {
	m.waiting = append(m.waiting, t)
	slices.SortStableFunc(m.waiting, m.compare)
	if len(m.waiting) <= m.capacity {
		return strategies.Verdict{}
	}
	last := m.waiting[m.capacity]
	m.waiting = m.waiting[:m.capacity]
	if last == t {
		return turnedAway
	}
	return strategies.Verdict{Displaced: last}
}

func (m *inOrder) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if len(m.waiting) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	first := m.waiting[0]
	m.waiting = m.waiting[1:]
	return first, strategies.Run, strategies.ReasonNone
}

func (m *inOrder) Remove(t *strategies.Task) bool {
	i := slices.Index(m.waiting, t)
	if i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
	return i >= 0
}

func (m *inOrder) Len() int { return len(m.waiting) }
func (m *inOrder) Cap() int { return m.capacity }

func newPriorityModel(c strategies.Config) strategies.Discipline {
	return &inOrder{capacity: c.Capacity, compare: func(a, b *strategies.Task) int {
		return a.Priority.Class() - b.Priority.Class()
	}}
}

// verdict makes what became of a push readable: the names are payloads.
func verdict(v strategies.Verdict) string {
	switch {
	case v.Displaced != nil:
		return v.Displaced.Owner.(string) + " " + v.Displacement().String()
	case v.Outcome == strategies.TurnedAway:
		return v.Reason.String()
	}
	return "queued"
}

// popAll returns what is popped until the queue is empty.
func popAll(t *testing.T, q strategies.Discipline, now int64) []string {
	t.Helper()
	var names []string
	for q.Len() > 0 {
		task, what, _ := q.Pop(now)
		require.Equal(t, strategies.Run, what)
		names = append(names, task.Owner.(string))
	}
	return names
}

func TestPriority_WhoMakesRoom(t *testing.T) {
	t.Parallel()
	q := lookup(t, "priority").New(strategies.Config{Capacity: 4})
	for _, push := range []struct {
		name     string
		priority strategies.Priority
		want     string
	}{
		{"a5", 5, "queued"}, {"b5", 5, "queued"}, {"a2", 2, "queued"}, {"a7", 7, "queued"},
		// The newest of the least important class makes room.
		{"b7", 7, "full"},
		{"a3", 3, "a7 displaced"},
		{"c5", 5, "full"},
		{"a0", strategies.MostImportant, "b5 displaced"},
		{"b3", 3, "a5 displaced"},
		// An important one is turned away if all others are as important.
		{"c3", 3, "full"},
		// What is no class counts as the nearest.
		{"a99", 99, "full"},
		// Who says nothing is ordinary.
		{"c", strategies.Ordinary, "full"},
	} {
		task := &strategies.Task{Owner: push.name, Priority: push.priority}
		require.Equal(t, push.want, verdict(q.Push(task, 1)), push.name)
	}
	require.Equal(t, []string{"a0", "a2", "a3", "b3"}, popAll(t, q, 1))
	require.Equal(t, "queued", verdict(q.Push(&strategies.Task{Owner: "a99", Priority: 99}, 1)))
	require.Equal(t, []string{"a99"}, popAll(t, q, 1))
}
