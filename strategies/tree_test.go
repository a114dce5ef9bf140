package strategies

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// depth returns the longest way down.
func (r *tree) depth() int {
	var below func(t *Task) int
	below = func(t *Task) int {
		if t == nil {
			return 0
		}
		return 1 + max(below(t.State.Prev), below(t.State.Next))
	}
	return below(r.root)
}

// Clients who know how ranks are made, and count the tasks, cannot make the tree a
// list: they do not know the seed.
func TestTree_DeadlinesDoNotShapeIt(t *testing.T) {
	t.Parallel()
	const n = 1 << 12
	tasks := make([]*Task, n)
	for i := range tasks {
		tasks[i] = &Task{State: State{Number: uint64(i + 1)}}
	}
	known := new(tree) // what they know: a seed of 0
	order := slices.Clone(tasks)
	slices.SortFunc(order, func(a, b *Task) int {
		if known.rank(a) < known.rank(b) {
			return -1
		}
		return 1
	})
	for i, task := range order {
		task.Deadline = int64(i + 1)
	}
	q := EDF(EDFOptions{}).New(Config{Capacity: n, Workers: 1}).(*edf)
	for _, task := range tasks {
		require.Equal(t, Verdict{}, q.Push(task, 0))
	}
	// A random tree of so many is 30 deep or so; one that is a list, 4,096.
	require.Less(t, q.mu.depth(), 100)
}
