package dispatch

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// withWorkers are the strategies of which no task runs but in a worker or its place.
func withWorkers() (names []string) {
	for _, spec := range strategies.Specs() {
		if !spec.Inline && spec.Name != "caller-runs" {
			names = append(names, spec.Name)
		}
	}
	return names
}

// TestSubmit_InPlace follows tasks through a single worker: one that need not wait
// is run by its submitter, one that comes meanwhile waits, and the worker runs it
// when its place is free.
func TestSubmit_InPlace(t *testing.T) {
	t.Parallel()
	for _, name := range withWorkers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			type step struct{ running, goOn chan struct{} }
			d, err := Open(Options{
				Strategy: name, Capacity: 16, Workers: 1, MaxBatch: 1,
				Run: func(tasks []*Task, done func(*Task)) {
					if s, ok := tasks[0].Payload.(step); ok {
						close(s.running)
						<-s.goOn
					}
					done(tasks[0])
				},
			})
			require.NoError(t, err)
			defer d.Close()

			// Without a lock or a channel: the race detector sees whose goroutine it is.
			ended := 0
			simple := func() *Task {
				return &Task{InPlace: true, Done: func(*Task) { ended++ }}
			}
			parked(t, d)
			require.False(t, d.Submit(simple()))
			require.Equal(t, 1, ended, "by its submitter")
			require.False(t, d.Submit(simple()), "the place is free again")
			require.Equal(t, 2, ended)
			late := simple()
			late.Deadline = 1
			require.False(t, d.Submit(late))
			require.Equal(t, strategies.ReasonExpired, late.Shed)

			first := step{make(chan struct{}), make(chan struct{})}
			var submitter sync.WaitGroup
			submitter.Go(func() {
				d.Submit(&Task{InPlace: true, Payload: first, Done: func(*Task) {}})
			})
			<-first.running
			second := make(chan struct{})
			require.True(t, d.Submit(&Task{InPlace: true, Done: func(*Task) { close(second) }}))
			require.Equal(t, 1, d.Gauge().Busy)
			require.Equal(t, 1, d.Gauge().Depth)
			close(first.goOn)
			<-second
			submitter.Wait()
		})
	}
}

// parked waits until the worker on top of the stack sleeps.
func parked(t *testing.T, d *Dispatcher) {
	t.Helper()
	require.Eventually(t, func() bool {
		w := d.pools[0].idle.top()
		return w != nil && w.asleep.Load()
	}, time.Minute, 10*time.Microsecond)
}

// A worker that is on the stack but not asleep may find another task: its place is
// not lent.
func TestSubmit_InPlaceOfASleeperAlone(t *testing.T) {
	t.Parallel()
	returned := make(chan struct{})
	d, err := Open(Options{
		Strategy: "fifo", Capacity: 16, Workers: 1, MaxBatch: 1,
		Run: func(tasks []*Task, done func(*Task)) {
			<-returned // which its submitter could not bring about
			done(tasks[0])
		},
	})
	require.NoError(t, err)
	defer d.Close()
	parked(t, d)
	d.pools[0].idle.top().asleep.Store(false)
	ended := make(chan struct{})
	d.Submit(&Task{InPlace: true, Done: func(*Task) { close(ended) }})
	close(returned)
	<-ended
}

// Closing waits for a task that is run in the place of a worker, since the worker
// has not ended.
func TestClose_WhileInPlace(t *testing.T) {
	t.Parallel()
	running, goOn := make(chan struct{}), make(chan struct{})
	d, err := Open(Options{
		Strategy: "fifo", Capacity: 16, Workers: 2, MaxBatch: 1,
		Run: func(tasks []*Task, done func(*Task)) {
			close(running)
			<-goOn
			done(tasks[0])
		},
	})
	require.NoError(t, err)
	parked(t, d)
	var submitter, closer sync.WaitGroup
	ended := false
	submitter.Go(func() {
		d.Submit(&Task{InPlace: true, Done: func(*Task) { ended = true }})
	})
	<-running
	closer.Go(d.Close)
	close(goOn)
	closer.Wait()
	submitter.Wait()
	require.True(t, ended)
}

// No more tasks run at once than there are workers, whoever runs them.
func TestSubmit_InPlaceKeepsToTheWorkers(t *testing.T) {
	t.Parallel()
	for _, name := range withWorkers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const workers, clients = 3, 12
			each := 2000
			if testing.Short() {
				each = 500
			}
			var atOnce, most atomic.Int64
			d, err := Open(Options{
				Strategy: name, Capacity: 8, Workers: workers, MaxBatch: 4,
				Run: func(tasks []*Task, done func(*Task)) {
					n := atOnce.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
						continue
					}
					defer atOnce.Add(-1)
					for _, t := range tasks {
						done(t)
					}
				},
			})
			require.NoError(t, err)
			var all sync.WaitGroup
			for seed := range uint64(clients) {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, 1))
					completed := make(chan struct{}, 1)
					task := &Task{Done: func(*Task) { completed <- struct{}{} }}
					for range each {
						task.InPlace, task.Write = r.IntN(3) > 0, r.IntN(4) == 0
						d.Submit(task)
						<-completed
					}
				})
			}
			all.Wait()
			d.Close()
			require.LessOrEqual(t, most.Load(), int64(workers))
			require.Positive(t, most.Load())
		})
	}
}
