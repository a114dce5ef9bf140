package strategies

import "sync/atomic"

// room is the length of a bounded discipline with a mutex, and its limit.
type room struct {
	capacity int
	// waiting changes under the mutex and may be read without it.
	waiting atomic.Int64
}

func roomOf(c Config) room { return room{capacity: max(1, c.Capacity)} }

func (r *room) fullLocked() bool { return r.waiting.Load() == int64(r.capacity) }

// Len returns how many tasks wait.
func (r *room) Len() int { return int(r.waiting.Load()) }

// Cap returns how many tasks may wait.
func (r *room) Cap() int { return r.capacity }
