//go:build unix

package executor_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// waiting is a store on another machine that answers after a while.
type waiting struct {
	store.Store // nil: what is not below is not called
	wait        time.Duration
}

var _ store.Remote = waiting{}

func (w waiting) GetUnder(_ store.Terms, dst, _ []byte) ([]byte, store.Meta, error) {
	return append(dst, w.ask()...), store.Meta{}, nil
}

func (w waiting) ApplyUnder(store.Terms, []store.Write) error {
	w.ask()
	return nil
}

// ask waits with a stack about as deep as that of a driver, which a goroutine has
// to grow first.
//
//go:noinline
func (w waiting) ask() string {
	var frames [4 << 10]byte
	frames[w.wait%4096] = 1
	time.Sleep(w.wait)
	return "value"[:5*frames[w.wait%4096]]
}

func (waiting) Writable() error { return nil }
func (waiting) Stalled() bool   { return false }

// BenchmarkRemote compares what may wait for a store on other machines, with so
// many operations under way: the worker itself, so that there are as many workers;
// or a goroutine of each operation, to which one of four workers hands the task on,
// so that there are as many goroutines as operations. Neither has a queue in front,
// since there are no more clients than operations under way.
func BenchmarkRemote(b *testing.B) {
	for _, wait := range []time.Duration{time.Millisecond, 4 * time.Millisecond} {
		for _, inFlight := range []int{1, 16, 128, 1024} {
			for _, waits := range []string{"worker", "goroutine"} {
				b.Run(fmt.Sprintf("wait=%v/inflight=%d/waits=%s", wait, inFlight, waits), func(b *testing.B) {
					benchRemote(b, waiting{wait: wait}, inFlight, waits == "goroutine")
				})
			}
		}
	}
}

func benchRemote(b *testing.B, s store.Store, inFlight int, handOn bool) {
	e := executor.Open(executor.Options{Store: s})
	o := dispatch.Options{Strategy: "fifo", Capacity: inFlight, Workers: inFlight, MaxBatch: 1, Run: e.Run}
	var handed sync.WaitGroup
	if handOn {
		slots := make(chan struct{}, inFlight)
		o.Workers = 4
		o.Run = func(tasks []*dispatch.Task, done func(*dispatch.Task)) {
			for _, t := range tasks {
				slots <- struct{}{} // past the bound the worker waits
				handed.Go(func() {
					e.Run([]*dispatch.Task{t}, done)
					<-slots
				})
			}
		}
	}
	d, err := dispatch.Open(o)
	require.NoError(b, err)

	took := make([]int64, b.N)
	failed := make([]error, inFlight)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	var callers sync.WaitGroup
	for c := range inFlight {
		callers.Go(func() {
			done := make(chan struct{}, 1)
			op := &executor.Op{Key: make([]byte, 8), Buf: make([]byte, 0, 128)}
			task := &dispatch.Task{Payload: op, Done: func(*dispatch.Task) { done <- struct{}{} }}
			rng := rand.New(rand.NewPCG(1, uint64(c)))
			for i := c; i < b.N; i += inFlight {
				op.Kind, op.Buf = executor.Kind(rng.IntN(2)), op.Buf[:0] // Get or Put
				task.Arrival = d.Now()
				d.Submit(task)
				<-done
				took[i] = d.Now() - task.Arrival
				if op.Err != nil || task.Shed != strategies.ReasonNone {
					failed[c] = fmt.Errorf("%v, %w", task.Shed, op.Err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	spent := cpu(b) - before
	stacks := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(stacks)
	require.NoError(b, errors.Join(failed...))
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(spent.Seconds()*1e6/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(took[b.N/2])/1e3, "p50-µs")
	b.ReportMetric(float64(took[b.N*99/100])/1e3, "p99-µs")
	b.ReportMetric(float64(stacks[0].Value.Uint64())/1024, "stacks-KiB")
	handed.Wait()
	d.Close()
	e.Close()
}

// cpu returns the time that this process has had of all CPUs.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
