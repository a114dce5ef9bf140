package strategies

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests bring the ring into states in which somebody has stopped in the
// middle of an operation, which no test from outside can.

func newRing(capacity int) *ring { return newMPMC(Config{Capacity: capacity, Workers: 1}).(*ring) }

// reserve is step 1 of a push, and all that a stalled producer has done.
func (q *ring) reserve() uint64 {
	q.waiting.Add(1)
	return q.tail.Add(1) - 1
}

// fill is step 2 of a push.
func (q *ring) fill(p uint64, t *Task) {
	t.State.Number = p
	q.cell(p).task.Store(t)
	q.cell(p).seq.Store(p + 1)
}

// popReserve is step 3, and popTake step 4 of a pop.
func (q *ring) popReserve() uint64 { return q.head.Add(1) - 1 }

func (q *ring) popTake(p uint64) *Task {
	t := q.cell(p).task.Swap(nil)
	q.cell(p).seq.Store(p + q.size)
	if t != nil {
		q.waiting.Add(-1)
	}
	return t
}

// check finds what does not fit together in a ring that nobody is using.
func (q *ring) check(t *testing.T) {
	t.Helper()
	head, tail := q.head.Load(), q.tail.Load()
	require.LessOrEqual(t, head, tail)
	require.LessOrEqual(t, tail-head, q.size)
	n := 0
	for p := head; p != head+q.size; p++ {
		s := q.cell(p)
		task := s.task.Load()
		if p < tail {
			require.Equal(t, p+1, s.seq.Load(), "position %d of %d to %d is filled", p, head, tail)
		} else {
			require.Equal(t, p, s.seq.Load(), "position %d is free, as %d to %d are not", p, head, tail)
			require.Nil(t, task, "position %d is free", p)
		}
		if task != nil {
			n++
			require.Equal(t, p, task.State.Number)
		}
	}
	require.Equal(t, q.Len(), n)
	require.LessOrEqual(t, n, q.Cap())
}

func requirePop(t *testing.T, q *ring, want *Task) {
	t.Helper()
	got, what, _ := q.Pop(0)
	require.Equal(t, Run, what)
	require.Same(t, want, got)
}

func requirePush(t *testing.T, q *ring, task *Task) {
	t.Helper()
	require.Equal(t, Verdict{Outcome: Queued}, q.Push(task, 0))
}

func TestRing_EachPositionHasItsSlot(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{1, 2, 3, 4, 5, 8, 9, 100, 1000} {
		q := newRing(capacity)
		require.GreaterOrEqual(t, q.size, uint64(2*capacity))
		require.Zero(t, q.size&(q.size-1), "a power of two")
		seen := make(map[*cell]bool)
		for p := range q.size {
			require.False(t, seen[q.cell(p)], "capacity %d: two positions share a cell", capacity)
			seen[q.cell(p)] = true
			require.Same(t, q.cell(p), q.cell(p+3*q.size), "the lap does not matter")
		}
	}
}

func TestRing_StalledProducer(t *testing.T) {
	t.Parallel()
	q := newRing(4)
	stalled, second, third := new(Task), new(Task), new(Task)
	p := q.reserve()
	for range 3 {
		_, what, _ := q.Pop(0)
		require.Equal(t, Contended, what, "a task is on its way")
	}
	requirePush(t, q, second)
	requirePush(t, q, third)
	require.Equal(t, 3, q.Len())
	for range 3 {
		task, what, _ := q.Pop(0)
		require.Nil(t, task)
		require.Equal(t, Contended, what, "never Empty while tasks wait, nor one before its turn")
	}
	// What waits behind the stalled producer can be given up.
	require.True(t, q.Remove(third))
	require.False(t, q.Remove(third))
	requirePush(t, q, third)

	q.fill(p, stalled)
	requirePop(t, q, stalled)
	requirePop(t, q, second)
	requirePop(t, q, third)
	_, what, _ := q.Pop(0)
	require.Equal(t, Empty, what)
	q.check(t)
}

// fillWithHoles pushes and removes until the ring has no cell left behind the
// position p.
func fillWithHoles(t *testing.T, q *ring, p uint64) {
	t.Helper()
	for q.tail.Load() < p+q.size {
		task := new(Task)
		requirePush(t, q, task)
		require.True(t, q.Remove(task))
	}
}

func TestRing_CompactGivesUpOnStalledProducer(t *testing.T) {
	t.Parallel()
	q := newRing(4)
	stalled, next := new(Task), new(Task)
	p := q.reserve()
	fillWithHoles(t, q, p)
	head, tail := q.head.Load(), q.tail.Load()
	q.compact()
	require.Equal(t, head, q.head.Load())
	require.Equal(t, tail, q.tail.Load())
	_, what, _ := q.Pop(0)
	require.Equal(t, Contended, what)

	// A push that needs a cell goes on once the producer has.
	done := make(chan Verdict)
	go func() { done <- q.Push(next, 0) }()
	for q.Len() < 2 {
		runtime.Gosched()
	}
	q.fill(p, stalled)
	require.Equal(t, Verdict{Outcome: Queued}, <-done)
	requirePop(t, q, stalled)
	requirePop(t, q, next)
	q.check(t)
}

func TestRing_StalledPopHoldsNobodyElseUp(t *testing.T) {
	t.Parallel()
	q := newRing(4)
	first, next := new(Task), new(Task)
	requirePush(t, q, first)
	p := q.popReserve()
	for q.tail.Load() < p+q.size {
		task := new(Task)
		requirePush(t, q, task)
		requirePop(t, q, task)
	}
	// The cell that is next is still in the hands of the Pop.
	done := make(chan Verdict)
	go func() { done <- q.Push(next, 0) }()
	for q.Len() < 2 {
		runtime.Gosched()
	}
	for range 2000 {
		_, what, _ := q.Pop(0)
		require.Equal(t, Empty, what, "the ring is not closed again and again while the push waits for its cell")
		runtime.Gosched()
	}
	require.Same(t, first, q.popTake(p))
	require.Equal(t, Verdict{Outcome: Queued}, <-done)
	requirePop(t, q, next)
	q.check(t)
}

func TestRing_RemoveIsFasterThanPop(t *testing.T) {
	t.Parallel()
	q := newRing(2)
	first, second := new(Task), new(Task)
	requirePush(t, q, first)
	p := q.popReserve()
	require.True(t, q.Remove(first))
	// It is pushed again at once, and does not end up in the hands of that Pop.
	requirePush(t, q, first)
	requirePush(t, q, second)
	require.Equal(t, TurnedAway, q.Push(new(Task), 0).Outcome)
	require.Nil(t, q.popTake(p))
	requirePop(t, q, first)
	requirePop(t, q, second)
	q.check(t)
}

// TestRing_RemoveOfAnother asks for tasks that are not there, with notes that
// point at cells in which others are.
func TestRing_RemoveOfAnother(t *testing.T) {
	t.Parallel()
	q, other := newRing(4), newRing(4)
	stranger := new(Task)
	requirePush(t, other, stranger)
	mine, popped := new(Task), new(Task)
	requirePush(t, q, mine)
	require.False(t, q.Remove(new(Task)), "never pushed, and its position is 0")
	require.False(t, q.Remove(stranger), "at the same position of another ring")
	requirePush(t, q, popped)
	requirePop(t, q, mine)
	requirePop(t, q, popped)
	fillWithHoles(t, q, q.head.Load())
	require.False(t, q.Remove(popped), "a lap ago")
	require.True(t, other.Remove(stranger))
}

func TestRing_Compact(t *testing.T) {
	t.Parallel()
	for range 300 {
		capacity := 1 + rand.IntN(6)
		q := newRing(capacity)
		// Somewhere in the laps, not at the beginning.
		for range rand.IntN(40) {
			task := new(Task)
			requirePush(t, q, task)
			requirePop(t, q, task)
		}
		var waiting []*Task
		for range 60 {
			if len(waiting) < capacity {
				waiting = append(waiting, new(Task))
				requirePush(t, q, waiting[len(waiting)-1])
			} else {
				i := rand.IntN(len(waiting))
				require.True(t, q.Remove(waiting[i]))
				waiting = append(waiting[:i:i], waiting[i+1:]...)
			}
			if rand.IntN(8) == 0 {
				q.compact()
				q.check(t)
				require.Equal(t, uint64(len(waiting)), q.tail.Load()-q.head.Load(), "no holes are left")
			}
		}
		q.check(t)
		for _, task := range waiting {
			requirePop(t, q, task)
		}
		q.check(t)
	}
}

// TestRing_CompactUnderContention lets one task stay the oldest, so that every
// cell that pushes use has to be won back by compact.
func TestRing_CompactUnderContention(t *testing.T) {
	for _, procs := range []int{1, 2, 4} {
		for capacity := 2; capacity <= 4; capacity++ {
			before := runtime.GOMAXPROCS(procs)
			compactUnderContention(t, capacity)
			runtime.GOMAXPROCS(before)
		}
	}
}

func compactUnderContention(t *testing.T, capacity int) {
	const goroutines, pushes = 3, 3000
	q := newRing(capacity)
	oldest := new(Task)
	requirePush(t, q, oldest)
	var wg sync.WaitGroup
	lost := make([]int, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			// Two at a time, removed in either order, so that compact finds tasks
			// between holes.
			var own [2]Task
			for range pushes {
				var queued [2]bool
				for i := range own {
					queued[i] = q.Push(&own[i], 0).Outcome == Queued
				}
				for i := range own {
					if i ^= g & 1; queued[i] && !q.Remove(&own[i]) {
						lost[g]++
					}
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, make([]int, goroutines), lost, "tasks that Remove did not find")
	require.Equal(t, 1, q.Len())
	q.compact()
	q.check(t)
	requirePop(t, q, oldest)
	q.check(t)
}
