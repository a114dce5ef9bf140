package strategies_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

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
