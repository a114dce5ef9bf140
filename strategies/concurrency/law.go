package concurrency

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Options are the bounds of a Law.
type Options struct {
	// Min is the least that may run at once: 1 if it is 0.
	Min int
	// Max is the most: DefaultMax if it is 0, or Min if that is more.
	Max int
}

// DefaultMax is how many may run at once at most, if nothing else is said.
const DefaultMax = 10_000

// Sample is one request that has ended.
type Sample struct {
	// Now is when it ended, and Began when its service began, both in nanoseconds on
	// one monotonic clock. Concurrent callers may pass slightly disordered times.
	Now, Began int64
	// Waiting says that work waited for a place when it ended, so that its place was
	// taken again at once.
	Waiting bool
	// Dropped says that it was no good: its time was up, or the resource refused it.
	// An answer that merely says no, as a 404 does, is not dropped.
	Dropped bool
}

// Law learns how many requests to run at once. Its methods may be called by any number
// of goroutines at once.
type Law struct {
	limit atomic.Int64

	mu struct {
		sync.Mutex
		min, max float64
		center   float64 // between the limits that are compared
		high     bool
		began    int64 // when the present block did
		good     [2]int
		time     [2]int64
		waited   int
		ended    int
		service  float64 // mean service time
		why      string
	}
}

const first = 16

// New returns a law that begins at that time, or an error that says which bounds are
// wrong.
func New(now int64, o Options) (*Law, error) {
	if o.Min < 0 || o.Max < 0 {
		return nil, fmt.Errorf("concurrency: at least %d, at most %d: neither may be less than 0", o.Min, o.Max)
	}
	least := max(o.Min, 1)
	most := o.Max
	if most == 0 {
		most = max(DefaultMax, least)
	}
	if least > most {
		return nil, fmt.Errorf("concurrency: at least %d is more than at most %d", least, most)
	}
	l := &Law{}
	l.mu.min, l.mu.max = float64(least), float64(most)
	l.mu.center = min(max(first, l.mu.min), l.mu.max)
	l.mu.began = now
	l.mu.why = "nothing is known yet"
	l.applyLocked()
	return l, nil
}

// Limit returns how many may run at once now.
func (l *Law) Limit() int { return int(l.limit.Load()) }

// Why tells, in words for people, why the limit is what it is.
func (l *Law) Why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.why
}

// Completed is told of each request that has ended. It returns the limit, and whether
// that is another than before.
func (l *Law) Completed(s Sample) (limit int, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.limit.Load()
	l.learnLocked(s)
	after := l.limit.Load()
	return int(after), after != before
}

func (l *Law) learnLocked(s Sample) {
	m := &l.mu
	took := float64(max(0, s.Now-s.Began))
	if m.service == 0 {
		m.service = took
	}
	m.service += (took - m.service) / 32
	m.ended++
	if s.Waiting {
		m.waited++
	}
	arm := 0
	if m.high {
		arm = 1
	}
	if !s.Dropped {
		m.good[arm]++
	}
	if s.Now < m.began {
		m.began = s.Now
	}
	if m.ended < 32 || float64(s.Now-m.began) < 4*m.service {
		return
	}
	m.time[arm] += s.Now - m.began
	m.began = s.Now
	free := 2*m.waited < m.ended
	m.ended, m.waited = 0, 0
	switch {
	case free:
		m.center = min(m.center*1.25, m.max)
		m.why = "nothing waits for long: more may run at once"
		m.good, m.time, m.high = [2]int{}, [2]int64{}, false
	case m.high && m.time[0] > 0 && m.time[1] > 0:
		gain := float64(m.good[1]) / float64(m.time[1]) * float64(m.time[0]) / max(1, float64(m.good[0]))
		if gain > 1.05 {
			m.center = min(m.center*1.2, m.max)
		} else {
			m.center = max(m.center/1.1, m.min)
		}
		m.why = fmt.Sprintf("a quarter more at once brought %.2f times as much", gain)
		m.good, m.time, m.high = [2]int{}, [2]int64{}, false
	default:
		m.high = !m.high
	}
	l.applyLocked()
}

func (l *Law) applyLocked() {
	m := &l.mu
	limit := math.Round(m.center)
	if m.high {
		limit = math.Ceil(m.center * 1.25)
	}
	l.limit.Store(int64(min(max(limit, m.min), m.max)))
}
