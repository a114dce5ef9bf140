package pebble

import (
	"sync/atomic"
	"time"
)

// clock is the wall clock, but for that it never runs backwards: what was seen to be
// expired stays so. When the system's is set back, it stands still until that has
// caught up.
type clock struct {
	now  func() time.Time
	last atomic.Int64
}

// read returns the time in milliseconds since 1970.
func (c *clock) read() int64 {
	now := c.now().UnixMilli()
	for {
		last := c.last.Load()
		if now <= last {
			return last
		}
		if c.last.CompareAndSwap(last, now) {
			return now
		}
	}
}
