package strategies

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// ring is the strategy mpmc: a bounded first-in first-out queue for many producers
// and many consumers, after Dmitry Vyukov's "Bounded MPMC queue" (1024cores.net).
// Push and Pop wait for no mutex, but it is not lock-free in Herlihy's sense: a
// producer or consumer that stalls may hold up others.
//
// Positions count up for ever; position p is in cell p modulo the size. A cell's
// sequence number says who may use it:
//
//	seq == p          free: the push that reserves position p may fill it
//	seq == p+1        filled: the pop that reserves position p may empty it
//	seq == p+size     emptied, and free for position p+size, one lap later
//
// A task is handed over in four steps:
//
//  1. Push reserves position p by moving tail from p to p+1. The cell is this
//     push's alone, since its seq stays p until step 2.
//  2. Push stores the task in the cell and then p+1 in its seq. This publishes
//     the task, with all that its submitter wrote to it, to whoever loads that
//     seq. Push does not touch the task any more.
//  3. Pop reserves position p by moving head from p to p+1, having seen p+1 in
//     the seq. No other Pop looks at the cell again in this lap.
//  4. Pop swaps the task for nil and then stores p+size in the seq, which
//     publishes the empty cell to the push of the next lap.
//
// No task is lost or seen twice although tasks are pooled and come back at
// another position: Pop does not compare tasks, it takes what is in the cell
// that it alone reserved. Remove does compare, and so claims the task it means
// only at the position where that task was pushed. Between steps 3 and 4 it may
// be faster than Pop, whose swap then returns nil: exactly one of them gets the
// task, and until Pop has stored the seq no other task can be in the cell.
//
// Two things are different from Vyukov's. The capacity is exact although the
// size is a power of two: waiting counts the tasks, and a push first raises it,
// unless it has reached the capacity. A Pop lowers it last, so a task counts
// until the Pop that takes it is about to return. And a removed task leaves a
// hole that takes up a cell until head has passed it. The ring is at least
// twice as large as the capacity, and when holes have used that up as well, a
// push closes them: see compact.
//
// A producer that stalls between steps 1 and 2 hides the tasks behind it. Pop
// then answers Contended, not Empty. A worker may park on either: the stalled
// producer, when it goes on, returns from Push and then looks for a parked
// worker, as every producer does.
type ring struct {
	_ [64]byte
	// head and tail are the next positions to empty and to fill. Both have the
	// bit closed set while compact moves tasks.
	head    atomic.Uint64
	_       [56]byte
	tail    atomic.Uint64
	_       [56]byte
	waiting atomic.Int64
	_       [56]byte

	capacity int64
	size     uint64 // a power of two, at least 8
	shift    int    // see cell
	cells    []cell

	// moving guards the positions of tasks (State.Number) between Remove, which
	// reads one, and compact, which changes them.
	moving sync.Mutex
}

// cell is one of the ring.
type cell struct {
	seq  atomic.Uint64
	task atomic.Pointer[Task]
}

// closed marks a head or tail from which nothing may be reserved.
const closed = 1 << 63

var _ Remover = (*ring)(nil)

func newMPMC(c Config) Discipline {
	capacity := max(1, c.Capacity)
	size := max(8, uint64(1)<<bits.Len64(uint64(2*capacity-1)))
	q := &ring{
		capacity: int64(capacity),
		size:     size,
		shift:    bits.TrailingZeros64(size) - 2,
		cells:    make([]cell, size),
	}
	for p := range size {
		q.cell(p).seq.Store(p)
	}
	return q
}

// cell returns the cell of a position. Consecutive positions are in different
// cache lines, of which each holds four cells, so that neighbours do not
// disturb each other.
func (q *ring) cell(p uint64) *cell {
	i := p & (q.size - 1)
	return &q.cells[(i<<2|i>>q.shift)&(q.size-1)]
}

// Push adds t unless the queue is full.
func (q *ring) Push(t *Task, _ int64) Verdict {
	for {
		n := q.waiting.Load()
		if n >= q.capacity {
			return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
		}
		if q.waiting.CompareAndSwap(n, n+1) {
			break
		}
	}
	// There is a cell for t, and it is only a matter of finding it.
	for {
		p := q.tail.Load()
		if p&closed != 0 {
			runtime.Gosched() // compact is at work, and nearly done
			continue
		}
		s := q.cell(p)
		switch lap := int64(s.seq.Load() - p); {
		case lap == 0:
			if q.tail.CompareAndSwap(p, p+1) {
				t.State.Number = p
				s.task.Store(t)
				s.seq.Store(p + 1)
				return Verdict{Outcome: Queued}
			}
		case lap < 0:
			// The cell is in use since the lap before.
			if q.head.Load()&^closed > p-q.size {
				// A Pop between its steps 3 and 4 has it, and is nearly done.
				runtime.Gosched()
			} else {
				// A task has it or a hole. There are holes, since fewer tasks wait
				// than there are cells.
				q.compact()
			}
		}
		// Otherwise another push has taken the position.
	}
}

// Pop takes the oldest task.
func (q *ring) Pop(int64) (*Task, PopResult, Reason) {
	for {
		p := q.head.Load()
		if p&closed != 0 {
			return nil, Contended, ReasonNone
		}
		s := q.cell(p)
		switch lap := int64(s.seq.Load() - (p + 1)); {
		case lap == 0:
			if !q.head.CompareAndSwap(p, p+1) {
				continue
			}
			t := s.task.Swap(nil)
			s.seq.Store(p + q.size)
			if t != nil {
				q.waiting.Add(-1)
				return t, Run, ReasonNone
			}
			// Remove was here before.
		case lap < 0:
			// The cell is not filled. If a push has reserved it, there is
			// something, only not yet visible.
			if tail := q.tail.Load(); tail&^closed != p {
				return nil, Contended, ReasonNone
			}
			return nil, Empty, ReasonNone
		}
		// Otherwise another Pop has taken the position.
	}
}

// Remove takes t out of the queue. It leaves a hole.
func (q *ring) Remove(t *Task) bool {
	q.moving.Lock()
	defer q.moving.Unlock()
	if !q.cell(t.State.Number).task.CompareAndSwap(t, nil) {
		return false
	}
	q.waiting.Add(-1)
	return true
}

// compact closes the holes that Remove has left, by moving the tasks in front
// of a hole back, in their order, so that head can advance. It keeps the ring
// to itself meanwhile: with the closed bit set in head and tail no position can
// be reserved, and the cells between them belong to nobody else. If a position
// was reserved but is not yet filled, compact gives up: its caller tries again.
//
// It is needed only after many waiting tasks were removed while the oldest was
// neither removed nor popped, so what it costs does not matter.
func (q *ring) compact() {
	if !q.moving.TryLock() {
		runtime.Gosched()
		return
	}
	defer q.moving.Unlock()

	head, tail := q.head.Or(closed), q.tail.Or(closed)
	defer func() {
		q.head.Store(head)
		q.tail.Store(tail)
	}()
	for p := head; p != tail; p++ {
		if q.cell(p).seq.Load() != p+1 {
			runtime.Gosched()
			return
		}
	}
	dst := tail
	for p := tail; p != head; {
		p--
		s := q.cell(p)
		t := s.task.Load()
		if t == nil {
			continue
		}
		dst--
		if dst != p {
			s.task.Store(nil)
			t.State.Number = dst
			q.cell(dst).task.Store(t)
		}
	}
	for ; head != dst; head++ {
		q.cell(head).seq.Store(head + q.size)
	}
}

// Len returns how many tasks wait.
func (q *ring) Len() int { return int(q.waiting.Load()) }

// Cap returns how many tasks may wait.
func (q *ring) Cap() int { return int(q.capacity) }
