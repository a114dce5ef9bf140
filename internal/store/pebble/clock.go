package pebble

import (
	"log/slog"
	"sync"
	"time"
)

// clock tells the time by which values expire. Where it starts the wall clock says. From
// there on it takes the time that passes from the monotonic clock, which nobody sets, and
// follows the wall clock, if that was set since, by no more than a part of the time that
// passes. So it never runs backwards: what was seen to be gone stays gone. A time to live
// is wrong by no more than that part. And a wall clock that is wrong for a while, by
// however much, leaves the clock wrong by no more than that part of the while.
//
// Whoever starts with a wrong wall clock has the wrong time for long, and is told so.
type clock struct {
	// now returns the wall clock and how much has passed since some moment by the
	// monotonic one. Nil means the system's.
	now func() (wall time.Time, passed time.Duration)

	mu struct {
		sync.Mutex
		started bool
		time    time.Duration // since 1970, at the last look
		passed  time.Duration // by the monotonic clock, at the last look
		apart   time.Duration // of the wall clock from time
		told    bool          // that they are far apart
	}
}

const (
	// clockPart is which part of the time that passes the clock may follow the wall clock by.
	clockPart = 10
	// clockStep bounds the time between two looks that counts for this, as nobody knows
	// what the wall clock was meanwhile. Store.watchLoop looks each second.
	clockStep = 2 * time.Second
	// clockTrust is how far the wall clock may be apart before somebody is told.
	clockTrust = time.Minute
	// farthest is beyond what a time.Duration since 1970 can hold.
	farthest = 290 * 365 * 24 * time.Hour
)

var clockBegan = time.Now()

// system is the system's clocks.
func system() (wall time.Time, passed time.Duration) {
	wall = time.Now()
	return wall, wall.Sub(clockBegan) // by the monotonic clock, which both times have
}

// read returns the time in milliseconds since 1970.
func (c *clock) read() int64 {
	now := c.now
	if now == nil {
		now = system
	}
	wall, passed := now()
	since := min(max(time.Duration(wall.UnixMilli()), -farthest/time.Millisecond), farthest/time.Millisecond) * time.Millisecond
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.started {
		c.mu.started, c.mu.time, c.mu.passed = true, since, passed
	}
	// Who has looked later may have come first.
	if step := passed - c.mu.passed; step > 0 {
		c.mu.passed = passed
		c.mu.time += step
		most := min(step, clockStep) / clockPart
		c.mu.time += min(max(since-c.mu.time, -most), most)
		c.mu.apart = since - c.mu.time
	}
	return c.mu.time.Milliseconds()
}

// watch looks at the clock, and tells when the wall clock has been set far away from it,
// and when it is near again.
func (c *clock) watch(log *slog.Logger) {
	c.read()
	c.mu.Lock()
	apart, told := c.mu.apart, c.mu.told
	c.mu.told = apart.Abs() > clockTrust
	c.mu.Unlock()
	switch far := apart.Abs() > clockTrust; {
	case far && !told:
		log.Warn("the wall clock was set: values expire by the time that passes, and follow it by a tenth of that; if it was wrong at the start, restart the service",
			"by", apart.Round(time.Second).String())
	case told && !far:
		log.Info("values expire by the wall clock again")
	}
}
