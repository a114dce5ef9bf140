//go:build !race

package dispatch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line does what a slice does.
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
				require.Same(t, gone, l.remove(gone), "seed %d", seed)
				require.Nil(t, gone.line, "seed %d", seed)
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
			for at, want := l.first, model; at != nil; at, want = at.after, want[1:] {
				require.Same(t, want[0], at, "seed %d", seed)
			}
		}
	}
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
