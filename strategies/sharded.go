package strategies

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// sharded spreads tasks over one first-in first-out queue for each worker, so
// that goroutines hardly ever meet at a lock. When all are full, the newest is
// turned away.
//
// Push looks at two queues drawn at random and adds to the shorter: the power of
// two choices, after which the longest of n queues is expected to hold only
// about log log n tasks more than the average (Azar, Broder, Karlin and Upfal,
// "Balanced Allocations", STOC 1994). Pop looks at two and takes the older of
// their oldest tasks, as in the MultiQueue of Rihani, Sanders and Dementiev
// (SPAA 2015). If its two choices are full or empty, or somebody is at them, an
// operation goes through all queues. So there are as many queues as workers, but
// every worker takes from all: none idles while a task waits anywhere.
//
// The order is that of arrival within a queue. Between n queues, a task popped has
// a rank error of O(n) in expectation, and the largest is expected to be
// O(n log n) (Alistarh, Kopinsky, Li and Nadiradze, "The Power of Choice in
// Priority Scheduling", PODC 2017). With one queue it is 0. There is no bound that
// always holds: chance may pass a queue over. With 8 workers and 128 tasks that
// wait the mean is 4.
//
// Each queue has its part of the capacity, so that together they have all of it.
// If there is less capacity than there are workers, there are as many queues as
// there is capacity.
//
// "Full" and "empty" are about all queues at once, but an operation looks at one
// after the other, while others push and pop behind its back. It has seen all of
// them full, or empty, at one moment if none has changed since it looked there.
// So each queue counts its changes, and an operation that has gone through all
// does so again, only to add up the counts: if the sum is the same as the first
// time, at the moment between the two all queues were as it saw them. If not, it
// begins anew, while somebody else has got on.
type sharded struct {
	capacity int
	shards   []shard
}

// shard is one of the queues.
type shard struct {
	shardFields
	// What others do with the next shard disturbs nobody here. Two cache lines,
	// since CPUs fetch them in pairs.
	_ [128 - unsafe.Sizeof(shardFields{})%128]byte
}

type shardFields struct {
	state shardState
	// oldest is when the task at the front was submitted, and math.MaxInt64 if
	// there is none. Whoever has the lock changes it, anybody may read it.
	oldest   atomic.Int64
	tasks    list // of whoever has the lock
	capacity uint64
	number   uint64
}

var _ Remover = (*sharded)(nil)

func newSharded(c Config) Discipline {
	capacity := max(1, c.Capacity)
	n := min(max(1, c.Workers), capacity)
	q := &sharded{capacity: capacity, shards: make([]shard, n)}
	for i := range q.shards {
		s := &q.shards[i]
		s.number = uint64(i)
		s.capacity = uint64(capacity / n)
		if i < capacity%n {
			s.capacity++
		}
		s.oldest.Store(math.MaxInt64)
	}
	return q
}

// Push adds t unless all queues are full.
func (q *sharded) Push(t *Task, _ int64) Verdict {
	s, other := q.draw()
	if other.state.len() < s.state.len() {
		s = other
	}
	for !s.push(t) {
		// Go through all, which brings s last.
		var before uint64
		full := true
		for range q.shards {
			s = q.after(s)
			n, change := s.state.load()
			before += change
			if n == s.capacity {
				continue
			}
			full = false
			if s.push(t) {
				return Verdict{Outcome: Queued}
			}
		}
		if full && q.changes() == before {
			return Verdict{Outcome: TurnedAway, Reason: ReasonFull}
		}
		runtime.Gosched() // somebody is at the queue that is not full
	}
	return Verdict{Outcome: Queued}
}

// Pop takes the older of the oldest tasks of two queues, or the oldest of another
// queue if there is none.
func (q *sharded) Pop(int64) (*Task, PopResult, Reason) {
	s, other := q.draw()
	if other.oldest.Load() < s.oldest.Load() {
		s = other
	}
	t := s.pop()
	for t == nil {
		var before uint64
		empty := true
		for range q.shards {
			s = q.after(s)
			n, change := s.state.load()
			before += change
			if n == 0 {
				continue
			}
			empty = false
			if t = s.pop(); t != nil {
				return t, Run, ReasonNone
			}
		}
		if empty && q.changes() == before {
			return nil, Empty, ReasonNone
		}
		runtime.Gosched() // somebody is at the queue in which there is a task
	}
	return t, Run, ReasonNone
}

// Remove takes t out of its queue, in constant time.
func (q *sharded) Remove(t *Task) bool {
	// Only Push sets the number. One from elsewhere leads to some queue, in which
	// t is not.
	s := &q.shards[t.State.Number%uint64(len(q.shards))]
	for !s.state.tryLock() {
		runtime.Gosched()
	}
	if !s.tasks.holds(t) {
		s.state.unlock(0)
		return false
	}
	s.takeLocked(t)
	return true
}

// Len returns how many tasks wait. It looks at one queue after the other. A task
// that waits all the while is counted, as none moves from one to another.
func (q *sharded) Len() int {
	n := uint64(0)
	for i := range q.shards {
		n += q.shards[i].state.len()
	}
	return int(n)
}

// Cap returns how many tasks may wait.
func (q *sharded) Cap() int { return q.capacity }

// draw returns two queues at random, different ones if there are two.
func (q *sharded) draw() (a, b *shard) {
	n := uint64(len(q.shards))
	if n == 1 {
		return &q.shards[0], &q.shards[0]
	}
	r := rand.Uint64()
	i, j := r>>32*n>>32, r&math.MaxUint32*(n-1)>>32
	if j >= i {
		j++
	}
	return &q.shards[i], &q.shards[j]
}

// after returns the queue after s, going round.
func (q *sharded) after(s *shard) *shard {
	next := int(s.number) + 1
	if next == len(q.shards) {
		next = 0
	}
	return &q.shards[next]
}

// changes returns a sum that stays the same only if all queues do.
func (q *sharded) changes() uint64 {
	var sum uint64
	for i := range q.shards {
		_, change := q.shards[i].state.load()
		sum += change
	}
	return sum
}

// push adds t, unless s is full or somebody is at it.
func (s *shard) push(t *Task) bool {
	if s.state.len() == s.capacity || !s.state.tryLock() {
		return false
	}
	if s.state.len() == s.capacity {
		s.state.unlock(0)
		return false
	}
	t.State.Number = s.number
	if s.tasks.front == nil {
		s.oldest.Store(t.Submitted)
	}
	s.tasks.pushBack(t)
	s.state.unlock(1)
	return true
}

// pop takes the oldest task, unless s is empty or somebody is at it.
func (s *shard) pop() *Task {
	if s.state.len() == 0 || !s.state.tryLock() {
		return nil
	}
	t := s.tasks.front
	if t == nil {
		s.state.unlock(0)
		return nil
	}
	s.takeLocked(t)
	return t
}

// takeLocked takes t, which is in s, and unlocks s.
func (s *shard) takeLocked(t *Task) {
	if t == s.tasks.front {
		oldest := int64(math.MaxInt64)
		if next := t.State.Next; next != nil {
			oldest = next.Submitted
		}
		s.oldest.Store(oldest)
	}
	s.tasks.remove(t)
	s.state.unlock(-1)
}

// shardState is the length of a shard, its lock, and the number of its changes,
// in one word, so that a change costs no more than taking the lock and leaving
// it.
type shardState struct{ word atomic.Uint64 }

// The parts of the word. There are always fewer than 2^31 tasks: see
// dispatch.Options.
const (
	shardLock   = 1
	shardTask   = 1 << 1
	shardChange = 1 << 32
)

// len returns how many tasks there are.
func (s *shardState) len() uint64 { return s.word.Load() % shardChange / shardTask }

// load returns how many tasks there are, and a number that grows with every
// change.
func (s *shardState) load() (n, change uint64) {
	w := s.word.Load()
	return w % shardChange / shardTask, w &^ shardLock
}

// tryLock takes the lock, unless somebody has it. Whoever has it holds it for a
// few instructions. Others go to another queue meanwhile.
func (s *shardState) tryLock() bool {
	w := s.word.Load()
	return w&shardLock == 0 && s.word.CompareAndSwap(w, w|shardLock)
}

// unlock leaves the lock, having added so many tasks.
func (s *shardState) unlock(added int64) {
	w := s.word.Load() - shardLock
	if added != 0 {
		w += shardChange + uint64(added*shardTask)
	}
	s.word.Store(w)
}
