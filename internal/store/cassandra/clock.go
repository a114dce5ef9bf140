package cassandra

import (
	"sync/atomic"
	"time"
)

// clock makes timestamps: microseconds since 1970, each greater than all before
// it, also when the machine's clock is set back or asked twice within one. It is
// safe for concurrent use.
type clock struct{ last atomic.Int64 }

// take returns the first of n timestamps that follow each other.
func (c *clock) take(n int) int64 { return c.takeAt(time.Now().UnixMicro(), n) }

func (c *clock) takeAt(now int64, n int) int64 {
	for {
		last := c.last.Load()
		first := max(now, last+1)
		if c.last.CompareAndSwap(last, first+int64(n)-1) {
			return first
		}
	}
}
