package peers

import (
	"context"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/spillway-go/spillway/admission"
)

// contestants are what lets so many through at once: a pair takes a place, does the work and
// gives the place back.
var contestants = []struct {
	name string
	open func(places int) (pair func(context.Context, func()) error)
}{
	{"admission", func(places int) func(context.Context, func()) error {
		c, err := admission.New(admission.Options{Strategy: "fifo", Concurrency: places})
		return func(ctx context.Context, work func()) error {
			if err != nil {
				return err
			}
			p, err := c.Acquire(ctx, admission.Request{})
			work()
			p.Release()
			return err
		}
	}},
	{"semaphore", func(places int) func(context.Context, func()) error {
		s := semaphore.NewWeighted(int64(places))
		return func(ctx context.Context, work func()) error {
			if err := s.Acquire(ctx, 1); err != nil {
				return err
			}
			work()
			s.Release(1)
			return nil
		}
	}},
	{"channel", func(places int) func(context.Context, func()) error {
		s := make(chan struct{}, places)
		return func(ctx context.Context, work func()) error {
			select {
			case s <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			work()
			<-s
			return nil
		}
	}},
}

// reportCPU reports the processor time of an operation, which holds on a machine that does
// other things as well.
func reportCPU(b *testing.B) (end func()) {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	began := used()
	return func() { b.ReportMetric(float64(used()-began)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkPlaces compares what a place costs that is free, and one that others wait for
// as well, with the semaphores that people use. The context can be cancelled, as that of
// a request.
func BenchmarkPlaces(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range contestants {
		b.Run("place=free/with="+c.name, func(b *testing.B) {
			pair := c.open(4)
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				if err := pair(ctx, func() {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// Who has the place lets others run, so that each has to wait, or keeps it for no time
	// at all, so that nearly nobody has to wait for a channel.
	for _, hold := range []struct {
		name string
		work func()
	}{{"waited-for", runtime.Gosched}, {"contended", func() {}}} {
		for _, c := range contestants {
			b.Run("place="+hold.name+"/with="+c.name, func(b *testing.B) {
				pair := c.open(1)
				b.ReportAllocs()
				b.SetParallelism(32)
				defer reportCPU(b)()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := pair(ctx, hold.work); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
