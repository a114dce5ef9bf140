package dispatch

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// Gauge is the state of the queue, summed over split pools.
type Gauge struct {
	// Strategy is the name of the active strategy.
	Strategy string
	// Observe is whether the dispatcher only observes.
	Observe bool
	// Depth is how many tasks wait, Capacity how many may: 0 if none ever does, or strategies.Unbounded.
	Depth, Capacity int
	// Workers and Busy are how many workers there are and how many of them are at work, 0 if the strategy uses none.
	Workers, Busy int
	// Limit is how many tasks the strategy lets wait at present, 0 if it has no such limit. Pace is the time from one
	// task begun to the next, as the strategy measures it, 0 if it does not; of split pools it is the longer one.
	Limit int
	Pace  time.Duration
	// Learned says how Workers was learned, nil if it is set.
	Learned *Learned
}

// Gauge returns the state of the queue.
func (e *engine) Gauge() Gauge { return e.gauge(e.backlogs...) }

func (e *engine) gauge(of ...*backlog) Gauge {
	g := Gauge{Observe: e.observe.Load(), Learned: of[0].learned()} // of split pools it is not learned
	for _, b := range of {
		q := b.active.Load()
		m := q.measured()
		g.Strategy, g.Limit, g.Pace = q.spec.Name, g.Limit+m.Limit, max(g.Pace, time.Duration(m.Pace))
		if n := q.cap(); n == strategies.Unbounded {
			g.Capacity = n
		} else {
			g.Capacity += n
		}
		b.mu.Lock()
		for _, m := range *b.limits.Load() {
			if !q.spec.Inline {
				g.Workers, g.Busy = g.Workers+m.number(false), g.Busy+m.of.InUse()
			}
		}
		b.mu.Unlock()
		g.Depth += b.waiting() + b.moving.len()
	}
	return g
}

// DrainTime estimates how long the workers need for all that waits: the mean time that they spend on a task, times the
// tasks over the workers. It is the longer of two pools.
func (e *engine) DrainTime() time.Duration {
	var longest int64
	for _, b := range e.backlogs {
		longest = max(longest, drainTime(b.service.Load(), int64(b.toDo()), max(1, int64(b.width()))))
	}
	return time.Duration(longest)
}

// drainTime returns service*waiting/width, or the longest there is.
func drainTime(service, waiting, width int64) int64 {
	if ns := float64(service) * float64(waiting) / float64(width); ns < math.MaxInt64 {
		return int64(ns)
	}
	return math.MaxInt64
}
