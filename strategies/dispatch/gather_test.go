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
		s.pools[0].gathering.Add(1)
		for _, name := range []string{"b", "c", "d"} {
			require.True(t, s.Submit(s.task(name, isWrite)))
		}
		synctest.Wait()
		s.requireStarted()
		s.pools[0].gathering.Add(-1)
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
		s.pools[0].gathering.Add(1)
		s.submit("read")
		s.requireStarted("read")
		s.pools[0].gathering.Add(-1)
	})
}

// A worker that has been handed a write gathers for a moment only.
func TestGather_Ends(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 2, MaxBatch: 3})
		defer s.close()
		s.submit("slow", isWrite)
		require.Zero(t, s.pools[0].gathering.Load())
		s.submit("b", isWrite)
		s.requireStarted("slow", "b")
	})
}
