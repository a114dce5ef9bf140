package executor_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// BenchmarkExecutor runs 64 clients, each with one task in flight, against a few
// workers that take what waits: up to 32 neighbouring writes at once.
func BenchmarkExecutor(b *testing.B) {
	const keys = 100_000
	for _, mode := range []pebble.SyncMode{pebble.Always, pebble.Interval, pebble.Never} {
		s, err := pebble.Open(pebble.Options{Dir: b.TempDir(), Sync: mode, CacheBytes: 256 << 20, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(b, err)
		for i := uint64(0); i < keys; i += 1000 {
			var writes []store.Write
			for j := range uint64(1000) {
				writes = append(writes, store.Write{Key: binary.BigEndian.AppendUint64(nil, i+j), Value: make([]byte, 100)})
			}
			c, err := s.Apply(writes)
			require.NoError(b, err)
			if c != nil {
				require.NoError(b, c.Wait())
			}
		}
		for _, kind := range []executor.Kind{executor.Put, executor.Get} {
			op := map[executor.Kind]string{executor.Put: "put", executor.Get: "get"}[kind]
			b.Run(fmt.Sprintf("op=%s/sync=%s", op, mode), func(b *testing.B) { bench(b, s, kind, keys) })
		}
		require.NoError(b, s.Close())
	}
}

func bench(b *testing.B, s store.Store, kind executor.Kind, keys int) {
	const clients, workers = 64, 4
	e := executor.Open(executor.Options{Store: s, MaxCommits: 4 * workers})
	queue := make(chan *dispatch.Task, clients)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			batch := make([]*dispatch.Task, 0, 32)
			for t := range queue {
				batch = append(batch[:0], t)
				for more := kind == executor.Put; more && len(batch) < cap(batch); {
					select {
					case t, open := <-queue:
						if more = open; open {
							batch = append(batch, t)
						}
					default:
						more = false
					}
				}
				e.Run(batch, func(t *dispatch.Task) { t.Done(t) })
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	var callers sync.WaitGroup
	for c := range clients {
		callers.Go(func() {
			done := make(chan struct{}, 1)
			op := &executor.Op{Kind: kind, Key: make([]byte, 8), Value: make([]byte, 100), Buf: make([]byte, 0, 128)}
			task := &dispatch.Task{Payload: op, Done: func(*dispatch.Task) { done <- struct{}{} }}
			r := rand.New(rand.NewPCG(1, uint64(c)))
			for i := c; i < b.N; i += clients {
				binary.BigEndian.PutUint64(op.Key, r.Uint64N(uint64(keys)))
				op.Buf = op.Buf[:0]
				queue <- task
				<-done
				if op.Err != nil {
					b.Error(op.Err)
				}
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	close(queue)
	group.Wait()
	e.Close()
}
