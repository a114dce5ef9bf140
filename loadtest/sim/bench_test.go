//go:build !race

package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRun tells how many requests are simulated in a second of real time.
func BenchmarkRun(b *testing.B) {
	for _, strategy := range []string{"fifo", "lifo"} {
		for _, multiple := range []float64{0.8, 2} {
			b.Run(fmt.Sprintf("strategy=%s/load=%gx", strategy, multiple), func(b *testing.B) {
				c := standard(strategy, 256, multiple)
				c.Warmup = 0
				c.Duration = max(time.Millisecond, time.Duration(float64(b.N)/(multiple*c.ServiceRate())*float64(time.Second)))
				requests := 0
				c.Observe = func(Record) { requests++ }
				b.ReportAllocs()
				b.ResetTimer()
				require.NoError(b, Run(b.Context(), c))
				b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
			})
		}
	}
}
