package main

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/executor"
	servicemetrics "github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// waitsForLocks is the metric of how long goroutines have waited for mutexes.
const waitsForLocks = "/sync/mutex/wait/total:seconds"

// BenchmarkContention tells what each part of a request's way costs that requests share,
// as more of them use it at once: processor time a call on one CPU and on all, by 8 and
// by 32 goroutines, and how long the latter wait for mutexes; medians. What takes more
// time on more CPUs is what bounds how many CPUs are of use. See docs/performance.md.
func BenchmarkContention(b *testing.B) {
	for _, part := range sharedParts(b) {
		b.Run(part.name, func(b *testing.B) {
			all := runtime.GOMAXPROCS(0)
			defer runtime.GOMAXPROCS(all)
			names := []string{"alone-ns", "by-8-ns", "by-32-ns", "waited-ns"}
			figures := make([][]float64, len(names))
			for b.Loop() {
				for i, at := range []struct{ cpus, goroutines int }{{1, 32}, {all, 8}, {all, 32}} {
					runtime.GOMAXPROCS(at.cpus)
					cpu, wait := usage(b, part.caller, at.goroutines)
					figures[i] = append(figures[i], cpu)
					if i == 2 {
						figures[3] = append(figures[3], wait)
					}
				}
			}
			b.ReportMetric(0, "ns/op") // of everything together, which says nothing
			for i, name := range names {
				slices.Sort(figures[i])
				b.ReportMetric(figures[i][len(figures[i])/2], name)
			}
		})
	}
}

// part is something that requests share. What caller returns is called by one goroutine.
type part struct {
	name   string
	caller func(n int) (call func())
}

// usage calls a part by so many goroutines, and returns the processor time and the wait
// for mutexes of a call, in nanoseconds.
func usage(b *testing.B, caller func(n int) func(), goroutines int) (cpu, wait float64) {
	b.Helper()
	const (
		first = 1 << 10
		lasts = 60 * time.Millisecond // so that all CPUs take part
	)
	trial, began := caller(0), time.Now()
	for range first {
		trial()
	}
	calls := max(first, int(lasts*first/max(1, time.Since(began))))
	begin := make(chan struct{})
	var callers sync.WaitGroup
	for n := range goroutines {
		call := caller(n)
		callers.Go(func() {
			<-begin
			for range calls / goroutines {
				call()
			}
		})
	}
	cpuBefore, waitBefore := used(b)
	close(begin)
	callers.Wait()
	cpuAfter, waitAfter := used(b)
	return (cpuAfter - cpuBefore) / float64(calls), (waitAfter - waitBefore) / float64(calls)
}

// used returns the processor time of the process, and how long its goroutines have waited
// for mutexes.
func used(b *testing.B) (cpu, wait float64) {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	sample := []metrics.Sample{{Name: waitsForLocks}}
	metrics.Read(sample)
	return float64(u.Utime.Nano() + u.Stime.Nano()), sample[0].Value.Float64() * 1e9
}

// sharedParts are the parts, first what nobody should do: one counter and one mutex for
// all.
func sharedParts(b *testing.B) []part {
	b.Helper()
	var counter atomic.Int64
	var mutex sync.Mutex
	m := servicemetrics.New(servicemetrics.Options{Store: "pebble"})
	queue := m.Queue(strategies.Spec{Name: "fifo"})
	slow := new(slowest.Recorder)
	s, err := pebble.Open(pebble.Options{Dir: b.TempDir(), Sync: pebble.Never, CacheBytes: 256 << 20, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	key := func(n int) []byte { return fmt.Appendf(nil, "key%012d", n) }
	for n := range 32 {
		_, err := s.Apply([]store.Write{{Key: key(n), Value: make([]byte, 100)}})
		require.NoError(b, err)
	}
	parts := []part{
		{"one-counter", func(int) func() { return func() { counter.Add(1) } }},
		{"one-mutex", func(int) func() { return func() { mutex.Lock(); mutex.Unlock() } }}, //nolint:staticcheck // it is measured
		{"slowest", func(int) func() {
			return func() {
				if slow.Wants(time.Microsecond, int64(time.Second)) {
					slow.Add(slowest.Request{Took: time.Microsecond, Answered: int64(time.Second)})
				}
			}
		}},
		{"metrics", func(int) func() {
			return func() {
				queue.Submitted()
				queue.Started(20 * time.Microsecond)
				m.Answered("fifo", "GET", 200, served.OK, 50*time.Microsecond)
			}
		}},
		{"store-get", func(n int) func() {
			k, buf := key(n), make([]byte, 0, 128)
			return func() { _, _, _ = s.Get(buf, k) }
		}},
	}
	nothing := func(tasks []*dispatch.Task, done func(*dispatch.Task)) {
		for _, t := range tasks {
			done(t)
		}
	}
	exec := executor.Open(executor.Options{Store: s, MaxCommits: 16})
	b.Cleanup(exec.Close)
	for _, way := range []struct {
		name    string
		inPlace bool
		run     func([]*dispatch.Task, func(*dispatch.Task))
		kind    executor.Kind
	}{
		{"queue-in-place", true, nothing, executor.Get},
		{"queue-worker", false, nothing, executor.Get},
		{"get-but-sockets", true, exec.Run, executor.Get},
		{"put-but-sockets", true, exec.Run, executor.Put},
	} { // puts last: a memtable that has many versions of a key makes gets dearer
		d, err := dispatch.Open(dispatch.Options{
			Strategy: "auto", Capacity: 1024, Workers: 2 * runtime.GOMAXPROCS(0), MaxBatch: 64, Run: way.run, Events: m.Queue,
		})
		require.NoError(b, err)
		b.Cleanup(d.Close)
		parts = append(parts, part{way.name, func(n int) func() {
			done := make(chan struct{}, 1)
			op := &executor.Op{Kind: way.kind, Key: key(n), Buf: make([]byte, 0, 128)}
			if way.kind == executor.Put {
				op.Value = make([]byte, 100)
			}
			t := &dispatch.Task{Payload: op, InPlace: way.inPlace, Write: way.kind == executor.Put, Size: 100, Done: func(*dispatch.Task) { done <- struct{}{} }}
			return func() {
				op.Buf = op.Buf[:0]
				t.Arrival = d.Now()
				d.Submit(t)
				<-done
			}
		}})
	}
	return append(parts, part{"store-put", func(n int) func() {
		writes := []store.Write{{Key: key(n), Value: make([]byte, 100)}}
		return func() { _, _ = s.Apply(writes) }
	}})
}
