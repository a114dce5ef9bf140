package dispatch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line does what a slice does, in constant time and bounded memory.
func TestLine_IsASlice(t *testing.T) {
	t.Parallel()
	for range 200 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		var l line
		var model []*Task
		pushes := 1 + random.IntN(3)
		for range 500 {
			switch n := random.IntN(4 + pushes); {
			case n == 0:
				var want *Task
				if len(model) > 0 {
					want, model = model[0], model[1:]
				}
				require.Same(t, want, l.pop(), "seed %d", seed)
			case n == 1 && len(model) > 0:
				i := random.IntN(len(model))
				gone := model[i]
				model = slices.Delete(slices.Clone(model), i, i+1)
				require.True(t, l.remove(gone), "seed %d", seed)
				require.False(t, l.remove(gone), "seed %d", seed)
			case n == 2:
				task := new(Task)
				model = append([]*Task{task}, model...)
				l.pushFront(task)
			case n >= 3:
				task := new(Task)
				model = append(model, task)
				l.push(task)
			}
			require.Equal(t, len(model), l.len(), "seed %d", seed)
			require.LessOrEqual(t, len(l.ring), max(16, 4*500))
		}
	}
}

// Tasks that leave the middle while the first stays take up no room for good.
func TestLine_ClosesItsHoles(t *testing.T) {
	t.Parallel()
	var l line
	first := new(Task)
	l.push(first)
	for range 10_000 {
		task := new(Task)
		l.push(task)
		require.True(t, l.remove(task))
	}
	require.Len(t, l.ring, 16)
	require.Same(t, first, l.pop())
}

func TestLine_AllocatesNothing(t *testing.T) {
	var l line
	tasks := make([]Task, 10)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for i := range tasks {
			l.push(&tasks[i])
		}
		l.remove(&tasks[5])
		for l.pop() != nil {
		}
	}))
}
