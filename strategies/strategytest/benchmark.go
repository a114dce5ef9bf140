package strategytest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-go/spillway/strategies"
)

// benchmarkCapacity is the capacity of the queues that are benchmarked, and
// how many tasks there are, so that no queue is ever full and all do the same
// work.
const benchmarkCapacity = 256

// Benchmark measures how long a strategy takes to bring a task from a producer
// to a consumer, with 1 and 1, 4 and 4, 8 and 8, and 64 and 4 goroutines. Its
// sub-benchmarks are named by key=value pairs, as benchstat likes them.
//
// Like tasks in the service, those here are pooled: each producer has its share
// and pushes one again when it has come back. A producer that has none, or is
// turned away, and a consumer that finds nothing let others run, rather than
// park: what is measured is the queue.
func Benchmark(b *testing.B, spec strategies.Spec) {
	for _, n := range []struct{ producers, consumers int }{{1, 1}, {4, 4}, {8, 8}, {64, 4}} {
		b.Run(fmt.Sprintf("strategy=%s/producers=%d/consumers=%d", spec.Name, n.producers, n.consumers), func(b *testing.B) {
			transfer(b, spec, n.producers, n.consumers)
		})
	}
}

// cargo is a task that says whether it is on its way. That costs less than
// bringing it back through a queue, which would be measured as well.
type cargo struct {
	task strategies.Task
	busy atomic.Bool
	_    [64]byte
}

func arrive(t *strategies.Task) { t.Owner.(*cargo).busy.Store(false) }

// idle returns one of the tasks that is not on its way, or nil. It looks at
// the one used last, which a stack returns first, and then at the one used
// longest ago, which any other queue returns first.
func idle(tasks []cargo, at *int) *cargo {
	for range len(tasks) + 1 {
		if c := &tasks[*at]; !c.busy.Load() {
			return c
		}
		if *at++; *at == len(tasks) {
			*at = 0
		}
	}
	return nil
}

func transfer(b *testing.B, spec strategies.Spec, producers, consumers int) {
	b.ReportAllocs()
	q := spec.New(strategies.Config{Capacity: benchmarkCapacity, Workers: consumers})
	var (
		pushing, popping sync.WaitGroup
		all              atomic.Bool // is pushed
		delivered        atomic.Int64
	)
	produce := func(tasks []cargo, n int) {
		for at := 0; n > 0; {
			c := idle(tasks, &at)
			if c == nil {
				runtime.Gosched()
				continue
			}
			c.busy.Store(true)
			v := q.Push(&c.task, 1)
			if v.Outcome != strategies.Queued {
				arrive(&c.task)
				runtime.Gosched()
				continue
			}
			if v.Displaced != nil {
				arrive(v.Displaced)
				delivered.Add(1)
			}
			n--
		}
	}
	consume := func() {
		n := 0
		for {
			last := all.Load()
			t, what, _ := q.Pop(1)
			switch {
			case t != nil:
				n++
				arrive(t)
			case last && what == strategies.Empty:
				delivered.Add(int64(n))
				return
			default:
				runtime.Gosched()
			}
		}
	}
	tasks := make([]cargo, benchmarkCapacity)
	for i := range tasks {
		tasks[i].task.Owner = &tasks[i]
	}
	share := len(tasks) / producers
	b.ResetTimer()
	for i := range producers {
		n := b.N / producers
		if i < b.N%producers {
			n++
		}
		pushing.Go(func() { produce(tasks[i*share:(i+1)*share], n) })
	}
	for range consumers {
		popping.Go(consume)
	}
	pushing.Wait()
	all.Store(true)
	popping.Wait()
	b.StopTimer()
	if n := delivered.Load(); n != int64(b.N) {
		b.Fatalf("%d tasks arrived, want %d", n, b.N)
	}
}
