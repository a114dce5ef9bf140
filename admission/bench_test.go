package admission_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
)

// BenchmarkFree is a place that is taken at once and given back, beside what people use
// for that. golang.org/x/sync/semaphore is beside it in loadtest/peers.
func BenchmarkFree(b *testing.B) {
	ctx := context.Background()
	b.Run("with=admission", func(b *testing.B) {
		c, err := admission.New(admission.Options{Strategy: "fifo", Concurrency: 4})
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			p, _ := c.Acquire(ctx, admission.Request{})
			p.Release()
		}
	})
	b.Run("with=learned", func(b *testing.B) {
		c, err := admission.New(admission.Options{Strategy: "fifo"})
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			p, _ := c.Acquire(ctx, admission.Request{})
			p.Release()
		}
	})
	b.Run("with=channel", func(b *testing.B) {
		places := make(chan struct{}, 4)
		b.ReportAllocs()
		for b.Loop() {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
			}
			<-places
		}
	})
}

// BenchmarkQueued is a place for which 64 goroutines wait in turn.
func BenchmarkQueued(b *testing.B) {
	ctx := context.Background()
	b.Run("with=admission", func(b *testing.B) {
		c, err := admission.New(admission.Options{Strategy: "fifo", Concurrency: 1})
		require.NoError(b, err)
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p, _ := c.Acquire(ctx, admission.Request{})
				p.Release()
			}
		})
	})
	b.Run("with=channel", func(b *testing.B) {
		places := make(chan struct{}, 1)
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
				}
				<-places
			}
		})
	})
}
