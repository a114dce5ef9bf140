// Package slowest remembers the slowest requests of late, for people who want
// to know where their time went.
//
// Every request asks whether it is slow enough to be remembered, at the cost of
// reading two words that hardly ever change. Only those that are take a lock.
package slowest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Size is how many requests are remembered.
	Size = 16
	// Memory is for how long they are.
	Memory = 5 * time.Minute
)

// Request is a request that was answered. It holds nothing of the key and the
// value but their lengths.
type Request struct {
	// Answered is when that was, in nanoseconds on the clock of the requests.
	Answered int64
	Strategy string
	Method   string
	// Range says that it was a range read.
	Range bool
	Code  int
	// Shed is why the request was turned away, empty if it was not.
	Shed string
	// KeyBytes is the length of the key, or of a range's first key.
	KeyBytes int
	// ValueBytes is the length of the value that was sent.
	ValueBytes int
	// Took is the time from arrival to answer, and the sum of the other three:
	// Received until the request had arrived in full and was submitted, Waited
	// until a worker began to run it, and Ran from there until it was answered.
	Took, Received, Waited, Ran time.Duration
}

// Recorder holds the slowest requests. The zero value is ready for use. All
// methods are safe for concurrent use.
type Recorder struct {
	// threshold is what a request must exceed to be remembered, until the time
	// expiry: then the first of those remembered is forgotten. Both are 0 as long
	// as there is room.
	threshold, expiry atomic.Int64

	mu struct {
		sync.Mutex
		requests [Size]Request // in no order
		n        int           // how many of them are there
	}
}

// Wants reports whether a request that took that long, and is answered now,
// should be added.
func (r *Recorder) Wants(took time.Duration, now int64) bool {
	return int64(took) > r.threshold.Load() || now >= r.expiry.Load()
}

// Add remembers a request if it is one of the slowest.
func (r *Recorder) Add(q Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetLocked(q.Answered)
	if r.mu.n < Size {
		r.mu.requests[r.mu.n] = q
		r.mu.n++
	} else if i := r.fastestLocked(); q.Took > r.mu.requests[i].Took {
		r.mu.requests[i] = q
	}
	if r.mu.n == Size {
		oldest := slices.MinFunc(r.mu.requests[:], func(a, b Request) int { return int(a.Answered - b.Answered) })
		r.threshold.Store(int64(r.mu.requests[r.fastestLocked()].Took))
		r.expiry.Store(oldest.Answered + int64(Memory))
	}
}

// List returns those remembered, the slowest first.
func (r *Recorder) List(now int64) []Request {
	r.mu.Lock()
	r.forgetLocked(now)
	list := slices.Clone(r.mu.requests[:r.mu.n])
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b Request) int { return int(b.Took - a.Took) })
	return list
}

// forgetLocked drops the requests whose time is over.
func (r *Recorder) forgetLocked(now int64) {
	kept := slices.DeleteFunc(r.mu.requests[:r.mu.n], func(q Request) bool { return now-q.Answered >= int64(Memory) })
	if r.mu.n = len(kept); r.mu.n < Size {
		r.threshold.Store(0)
		r.expiry.Store(0)
	}
}

// fastestLocked returns the place of the one to be replaced next. There must be
// one.
func (r *Recorder) fastestLocked() int {
	least := 0
	for i := range r.mu.n {
		if r.mu.requests[i].Took < r.mu.requests[least].Took {
			least = i
		}
	}
	return least
}
