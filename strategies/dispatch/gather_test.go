package dispatch

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Writes that are submitted while a worker gathers wait for it, and become one
// turn of it, though other workers are idle.
func TestGather_OneTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 4, MaxBatch: 3})
		defer s.close()
		// Nobody else runs until this goroutine waits.
		s.pools[0].lingering.Add(1)
		for _, name := range []string{"b", "c", "d"} {
			require.True(t, s.Submit(s.task(name, isWrite)))
		}
		synctest.Wait()
		s.requireStarted()
		s.pools[0].lingering.Add(-1)
		s.submit("a", isWrite)
		s.mu.Lock()
		turns := slices.Clone(s.turns)
		s.mu.Unlock()
		require.ElementsMatch(t, [][]string{{"b", "c", "d"}, {"a"}}, turns)
	})
}

// Reads do not wait for a worker that gathers.
func TestGather_ReadsGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 2, MaxBatch: 3})
		defer s.close()
		s.pools[0].lingering.Add(1)
		s.submit("read")
		s.requireStarted("read")
		s.pools[0].lingering.Add(-1)
	})
}

// A worker that has been handed a write gathers for a moment only.
func TestGather_Ends(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 3, MaxBatch: 3})
		defer s.close()
		s.submit("slow", isWrite)
		require.Zero(t, s.pools[0].lingering.Load())
		s.submit("b", isWrite)
		s.requireStarted("slow", "b")
	})
}

// While a write is not joined by others, the next ones are run by their submitters,
// and a worker gathers now and then to see whether that still holds.
func TestGather_InPlaceWhenAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var w *worker
		var places []bool // of turns: whether the submitter ran it, while the worker slept
		d, err := Open(Options{
			Strategy: "fifo", Capacity: 16, Workers: 1, MaxBatch: 3,
			Run: func(tasks []*Task, done func(*Task)) {
				places = append(places, w.asleep.Load())
				done(tasks[0])
			},
		})
		require.NoError(t, err)
		defer d.Close()
		synctest.Wait()
		w = d.pools[0].idle.top()
		put := func(willing bool) {
			d.Submit(&Task{Write: true, InPlace: willing, Done: func(*Task) {}})
			synctest.Wait()
		}
		round := append([]bool{false}, slices.Repeat([]bool{true}, ungroupedFor)...)

		for range 2 * len(round) {
			put(true)
		}
		require.Equal(t, slices.Repeat(round, 2), places)

		places = nil
		put(true) // gathers
		put(false)
		put(true)
		d.pools[0].noteGroup(true)
		put(true) // gathers
		put(true)
		require.Equal(t, []bool{false, false, true, false, true}, places)
	})
}

// top returns the worker that parked last, nil if none is parked.
func (s *idleStack) top() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.workers) == 0 {
		return nil
	}
	return s.workers[len(s.workers)-1]
}
