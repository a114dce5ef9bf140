package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// As many tasks run at once as there are workers, however their number changes, and those
// that are at work when it falls finish what they do.
func TestResize_Workers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 1})
		defer s.close()
		for i := range 9 {
			s.submit(fmt.Sprint("slow", i))
		}
		s.requireBegun(1)
		resize := func(n int) {
			s.Resize(n)
			synctest.Wait()
		}
		resize(4)
		s.requireBegun(4, "more may run")
		require.Equal(t, 4, s.Gauge().Workers)
		require.Equal(t, 4, s.Gauge().Busy)
		resize(2)
		require.Equal(t, 2, s.Gauge().Workers)
		require.Equal(t, 4, s.Gauge().Busy, "nobody is stopped")
		s.endAny()
		s.endAny()
		s.requireBegun(4, "two are still at work")
		require.Equal(t, 2, s.Gauge().Busy)
		s.endAny()
		s.requireBegun(5)
		resize(3)
		s.requireBegun(6)
		for len(s.endedNow()) < 9 {
			s.endAny()
		}
		s.requireStarted("slow0", "slow1", "slow2", "slow3", "slow4", "slow5", "slow6", "slow7", "slow8")
		require.Zero(t, s.Gauge().Busy)
	})
}

// Workers that have nothing to do leave at once where there are fewer, and are hired when
// they are needed.
func TestResize_IdleWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 5})
		defer s.close()
		p := s.pools[0]
		resize := func(n int) {
			s.Resize(n)
			synctest.Wait()
		}
		require.EqualValues(t, 5, p.count.Load())
		resize(2)
		require.EqualValues(t, 2, p.count.Load())
		require.EqualValues(t, 2, p.idle.n.Load())
		resize(8)
		require.EqualValues(t, 2, p.count.Load(), "nobody needs them yet")
		for i := range 6 {
			s.submit(fmt.Sprint("slow", i))
		}
		require.EqualValues(t, 6, p.count.Load())
		s.requireBegun(6)
		s.end("slow0")
		resize(1)
		require.EqualValues(t, 5, p.count.Load(), "those at work, and not the idle one")
	})
}

// A worker in whose place a submitter has run a task leaves if it has become one too many
// meanwhile.
func TestResize_InPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 2})
		defer s.close()
		for _, name := range []string{"slow1", "slow2"} {
			s.submit(name, func(t *Task) { t.InPlace = true })
		}
		s.Resize(1)
		s.end("slow1")
		s.end("slow2")
		p := s.pools[0]
		require.EqualValues(t, 1, p.count.Load())
		require.EqualValues(t, 1, p.idle.n.Load())
		s.submit("last")
		s.requireEnded("slow1", "slow2", "last")
	})
}

// Word to look that comes to a worker which leaves is passed on.
func TestResize_WhoLeavesPassesTheWordOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{Workers: 2})
		defer s.close()
		s.submit("slow-1")
		s.submit("slow-2")
		p := s.pools[0]
		q.script(func(n int) {
			if n != 1 {
				return
			}
			// The worker of slow-1 is on the stack, and about to look. It is taken off,
			// told to look, and one too many before it can.
			s.Resize(1)
		}, ignore)
		s.end("slow-1")
		require.EqualValues(t, 1, p.count.Load())
		s.submit("a")
		s.submit("b")
		s.requireStarted("slow-1", "slow-2")
		s.end("slow-2")
		s.requireEnded("slow-1", "slow-2", "a", "b")
	})
}

// Of the workers one is kept for reads, however many there are; one alone does both.
func TestResize_OneIsKeptForReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 1, MaxBatch: 2})
		defer s.close()
		s.submit("slow-w1", isWrite)
		s.submit("slow-w2", isWrite)
		s.submit("slow-w3", isWrite)
		s.submit("slow-w4", isWrite)
		s.submit("slow-w5", isWrite)
		s.submit("r")
		s.Resize(3)
		synctest.Wait()
		require.Equal(t, [][]string{{"slow-w1"}, {"slow-w2", "slow-w3"}}, s.turnsNow(), "two may write, and the third goes no further in the queue")
		s.Resize(4)
		synctest.Wait()
		require.Equal(t, []string{"slow-w4", "slow-w5"}, s.turnsNow()[2])
		time.Sleep(time.Second) // for that long no write should run
		synctest.Wait()
		require.Contains(t, s.endedNow(), "r")
	})
}

// A discipline that is switched to while the number changes goes by the new one.
func TestResize_DuringASwitch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 2})
		defer s.close()
		var told []int
		s.use(strategies.Spec{Name: "resized", New: func(c strategies.Config) strategies.Discipline {
			s.Resize(7) // after the number was asked for
			fifo, err := strategies.Lookup("fifo")
			require.NoError(t, err)
			return &resized{Discipline: fifo.New(c), told: &told}
		}})
		require.Equal(t, []int{7}, told)
		s.Resize(3)
		require.Equal(t, []int{7, 3}, told)
	})
}

// resized notes what it is told of the number of workers.
type resized struct {
	strategies.Discipline
	told *[]int
}

func (q *resized) Resize(workers int) { *q.told = append(*q.told, workers) }

// Split pools keep their numbers.
func TestResize_Split(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 4, Split: true})
		defer s.close()
		s.Resize(9)
		require.Equal(t, 4, s.Gauge().Workers)
	})
}

func (s *stage) requireBegun(n int, why ...any) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(s.t, s.started, n, why...)
}

func (s *stage) turnsNow() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.turns)
}

func (s *stage) endedNow() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ended)
}

// The capacity changes while tasks wait, in any pool: what has no room is shed by the strategy's
// rules, and nothing else.
func TestSetCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 1, Capacity: 2})
		defer s.close()
		for i := range 4 {
			s.submit(fmt.Sprint("slow", i))
		}
		s.requireBegun(1)
		require.Equal(t, 2, s.Gauge().Depth, "one was turned away")
		require.NoError(t, s.SetCapacity(3))
		require.Equal(t, 3, s.Gauge().Capacity)
		s.submit("slow4")
		require.Equal(t, 3, s.Gauge().Depth)
		require.NoError(t, s.SetCapacity(1))
		require.Equal(t, 1, s.Gauge().Depth)
		require.NoError(t, s.Switch("lifo"))
		require.Equal(t, 1, s.Gauge().Capacity, "it holds for other strategies too")
		require.NoError(t, s.SetCapacity(0))
		require.Equal(t, 256, s.Gauge().Capacity, "the strategy's own")
		for _, n := range []int{-1, maxCapacity + 1} {
			require.ErrorContains(t, s.SetCapacity(n), fmt.Sprint(n))
		}
		s.endAny()
		s.requireBegun(2)
		s.endAny()
		require.Zero(t, s.Gauge().Busy)
	})
}
