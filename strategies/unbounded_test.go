package strategies

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// nodes counts what an unbounded queue keeps, without the dummy.
func (q *unbounded) nodes() int {
	count := 0
	for n := q.head.Load().next.Load(); n != nil; n = n.next.Load() {
		count++
	}
	return count
}

// Tasks that come and are given up leave nothing behind, even while the oldest
// waits on, and the order of those that stay is kept.
func TestUnbounded_RemovedTasksLeaveNoNodes(t *testing.T) {
	t.Parallel()
	q := newUnbounded(Config{}).(*unbounded)
	const kept = 10
	patient, hasty := make([]Task, kept), new(Task)
	for i := range patient {
		q.Push(&patient[i], 0)
		for range 10_000 {
			q.Push(hasty, 0)
			require.True(t, q.Remove(hasty))
		}
		require.LessOrEqual(t, q.nodes(), kept+fewHoles+2)
	}
	require.Equal(t, kept, q.Len())
	for i := range patient {
		got, what, _ := q.Pop(0)
		require.Equal(t, Run, what)
		require.Same(t, &patient[i], got)
	}
	_, what, _ := q.Pop(0)
	require.Equal(t, Empty, what)
	q.Push(hasty, 0)
	got, _, _ := q.Pop(0)
	require.Same(t, hasty, got)
}

// A sweep gets along with pushes, pops and removals.
func TestUnbounded_SweepsUnderContention(t *testing.T) {
	t.Parallel()
	const submitters, each = 4, 20_000
	q := newUnbounded(Config{}).(*unbounded)
	var submitting, popping sync.WaitGroup
	popped := make(chan int, 2)
	stop := make(chan struct{})
	for range cap(popped) {
		popping.Go(func() {
			n := 0
			defer func() { popped <- n }()
			for {
				if _, what, _ := q.Pop(0); what == Run {
					n++
					continue
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	removed := make(chan int, submitters)
	for range submitters {
		submitting.Go(func() {
			n := 0
			for range each {
				task := new(Task)
				q.Push(task, 0)
				q.sweep()
				if q.Remove(task) {
					n++
				}
			}
			removed <- n
		})
	}
	submitting.Wait()
	close(stop)
	popping.Wait()
	total := q.Len()
	for range cap(removed) {
		total += <-removed
	}
	for range cap(popped) {
		total += <-popped
	}
	require.Equal(t, submitters*each, total)
	for left := q.Len(); left > 0; left-- {
		_, what, _ := q.Pop(0)
		require.Equal(t, Run, what)
	}
}
