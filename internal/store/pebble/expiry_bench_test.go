package pebble

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

// BenchmarkExpiry measures what reads and writes of others wait for while nothing
// expires, and while a million values that expire in the same second are removed.
func BenchmarkExpiry(b *testing.B) {
	const expiring = 1_000_000
	w := newWall()
	s := openOnly(b, Options{Dir: b.TempDir(), Sync: Never, CacheBytes: 512 << 20, now: w.now, SweepInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	fill(b, s)
	for i := 0; i < expiring; i += 1000 {
		var writes []store.Write
		for j := range 1000 {
			writes = append(writes, putFor(fmt.Sprintf("expiring%08d", i+j), "v", 10))
		}
		require.NoError(b, apply(s, writes...))
	}
	w.move(10 * time.Second)
	for _, sweeping := range []bool{false, true} {
		b.Run(fmt.Sprintf("sweeping=%t", sweeping), func(b *testing.B) {
			done := make(chan struct{})
			removed, began := 0, time.Now()
			var took time.Duration
			go func() {
				defer close(done)
				if sweeping {
					removed, _ = s.sweep()
					took = time.Since(began)
				}
			}()
			r := rand.New(rand.NewPCG(1, 2))
			var gets, puts []time.Duration
			value := make([]byte, 0, 128)
			for over := false; !over; {
				k := benchKey(nil, r.Uint64N(benchKeys))
				start := time.Now()
				value, _, _ = s.Get(value[:0], k)
				gets = append(gets, time.Since(start))
				start = time.Now()
				require.NoError(b, apply(s, store.Write{Key: k, Value: value}))
				puts = append(puts, time.Since(start))
				select {
				case <-done:
					over = len(gets) >= 200_000
				default:
				}
			}
			slices.Sort(gets)
			slices.Sort(puts)
			p99 := func(d []time.Duration) float64 { return float64(d[len(d)*99/100].Microseconds()) }
			b.ReportMetric(p99(gets), "µs-get-p99")
			b.ReportMetric(p99(puts), "µs-put-p99")
			b.ReportMetric(float64(removed), "removed")
			b.ReportMetric(took.Seconds(), "s-pass")
			b.ReportMetric(0, "ns/op")
		})
	}
	require.NoError(b, s.Close())
}
