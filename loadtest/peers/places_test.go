package peers

import (
	"context"
	"syscall"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/spillway-go/spillway/admission"
)

// contestants are what lets so many through at once: acquire takes a place and returns
// what gives it back.
var contestants = []struct {
	name string
	open func(places int) (pair func(context.Context) error)
}{
	{"admission", func(places int) func(context.Context) error {
		c, err := admission.New(admission.Options{Strategy: "fifo", Concurrency: places})
		return func(ctx context.Context) error {
			if err != nil {
				return err
			}
			p, err := c.Acquire(ctx, admission.Request{})
			p.Release()
			return err
		}
	}},
	{"semaphore", func(places int) func(context.Context) error {
		s := semaphore.NewWeighted(int64(places))
		return func(ctx context.Context) error {
			if err := s.Acquire(ctx, 1); err != nil {
				return err
			}
			s.Release(1)
			return nil
		}
	}},
	{"channel", func(places int) func(context.Context) error {
		s := make(chan struct{}, places)
		return func(ctx context.Context) error {
			select {
			case s <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
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
				if err := pair(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, c := range contestants {
		b.Run("place=contended/with="+c.name, func(b *testing.B) {
			pair := c.open(1)
			b.ReportAllocs()
			b.SetParallelism(32)
			defer reportCPU(b)()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := pair(ctx); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
