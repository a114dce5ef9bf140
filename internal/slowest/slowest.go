// Package slowest remembers the slowest requests of the last minutes, for people who
// want to know where their time went.
//
// Every request asks whether it is slow enough to be remembered, at the cost of
// reading two words that hardly ever change. Only those that are take a lock.
//
// Each minute has its own list, so that a burst does not push out what was slow before
// and after it. Nothing is missed: a request among the slowest of several minutes is
// among the slowest of its own.
package slowest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Size is how many requests are listed, and remembered of each minute.
	Size = 16
	// Minutes is how many minutes are remembered: the present one, and those
	// before it.
	Minutes = 5
)

// Request is a request that was answered. It holds nothing of the key and the
// value but their lengths.
type Request struct {
	// Answered is when that was, in nanoseconds on the clock of the requests.
	Answered int64
	Strategy string
	Method   string
	// Route is the name of the path, in the proxy.
	Route string
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
// methods are safe for concurrent use. The clock that their times are on must
// not be negative.
type Recorder struct {
	// threshold is what a request must exceed to be remembered, until the time
	// expiry, at which the present minute ends. It is 0 as long as there is room.
	threshold, expiry atomic.Int64

	mu struct {
		sync.Mutex
		present int64           // the number of the newest minute
		minutes [Minutes]minute // each at its number modulo Minutes
	}
}

// minute holds the slowest requests that were answered within one minute.
type minute struct {
	number   int64
	requests [Size]Request // in no order
	n        int           // how many of them are there
}

// numberOf returns the number of the minute that a time is in.
func numberOf(now int64) int64 { return now / int64(time.Minute) }

// Wants reports whether a request that took that long, and is answered now,
// should be added.
func (r *Recorder) Wants(took time.Duration, now int64) bool {
	return int64(took) > r.threshold.Load() || now >= r.expiry.Load()
}

// Add remembers a request if it is one of the slowest of its minute.
func (r *Recorder) Add(q Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := numberOf(q.Answered)
	if number <= r.mu.present-Minutes {
		return // its place is another's by now
	}
	m := &r.mu.minutes[number%Minutes]
	if m.number != number {
		*m = minute{number: number}
	}
	m.add(q)
	if number < r.mu.present {
		return
	}
	r.mu.present = number
	// The threshold first: one of the minute before would keep requests of this
	// one out.
	if m.n == Size {
		r.threshold.Store(int64(m.requests[m.fastest()].Took))
	} else {
		r.threshold.Store(0)
	}
	r.expiry.Store((number + 1) * int64(time.Minute))
}

// List returns the slowest of the minutes that are remembered, the slowest
// first, at most Size.
func (r *Recorder) List(now int64) []Request {
	var list []Request
	r.mu.Lock()
	for i := range r.mu.minutes {
		if m := &r.mu.minutes[i]; m.number > numberOf(now)-Minutes {
			list = append(list, m.requests[:m.n]...)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b Request) int { return int(b.Took - a.Took) })
	return list[:min(len(list), Size)]
}

// add puts q in a free place, or in that of the fastest if q is slower.
func (m *minute) add(q Request) {
	if m.n < Size {
		m.requests[m.n] = q
		m.n++
	} else if i := m.fastest(); q.Took > m.requests[i].Took {
		m.requests[i] = q
	}
}

// fastest returns the place of the one to be replaced next. There must be one.
func (m *minute) fastest() int {
	least := 0
	for i := range m.n {
		if m.requests[i].Took < m.requests[least].Took {
			least = i
		}
	}
	return least
}
