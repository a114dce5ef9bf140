// Package health says how many requests each of several resources behind one queue may be given, by what
// became of those that it was given: a circuit breaker for each (Nygard 2007), with outlier ejection.
//
// It is passive, as a queue discipline is: it starts no goroutine, blocks nobody, reads no clock and counts
// no requests. Times are arguments: nanoseconds of any clock that only goes forward, not negative.
//
//	state      may run  it moves on
//	healthy    all      to ejected, if nothing can be sent to it, or by errors in a row
//	ejected    none     to probing, after 1 s, doubled each time in a row up to 30 s; another ejection follows if
//	                    nothing can be sent to it even then
//	probing    1        half-open: to returning, if the request ends well; to ejected, if it fails
//	returning  2, 4, …  slow start: doubled each time that so many in a row ended well; to healthy, if that is more
//	                    than ever ran before the ejection, or after 30 s; to ejected, as from healthy
//
// Errors eject a member if the others make these unlikely: n in a row, if n >= 3 and p^n <= 1e-6, where p is
// the mean error rate of the others that are healthy or returning. The rate of each is that of its last 64 or
// so answers, or r / (r + 1) if that is more, where r is its own errors in a row. So it takes three where the
// others do well, and a dozen where 30% of all answers are errors. Where all fail, no row is long enough: what
// they all need is broken. If the others begin to fail only later, an ejection for errors ends at once.
// When the last healthy member fails as well, by three errors in a row or as nothing can be sent to it, all
// ejections end within 1 s: another may be back first.
//
// A row of errors is over with a good answer whose request began after the first of them: what breaks may
// answer with errors at once, while earlier requests still end well. Requests that began before an ejection
// count no more once it has begun.
//
// At least one member is healthy at any time: requests fail at the last as they would with one resource. It may
// be ejected as soon as another is healthy. If it has failed as the others did, and
// does well again, all ejections end.
package health

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	rowLeast  = 3                 // errors in a row: fewer may have any cause
	chance    = 1e-6 * (1 + 1e-9) // that so many fail in a row where they fail as often as with the others
	rateLeast = 0.01              // of errors of the others: a rarer one is not known from a few answers
	answers   = 64                // of which the rate is a mean
	always    = 1 << 30           // a rate of 1
	shortest  = 1e9               // nanoseconds of an ejection
	longest   = 30e9              // nanoseconds of an ejection, and of a return
	all       = math.MaxInt       // may run, as the member is healthy
	refused   = math.MaxInt32     // the row of a member to which nothing could be sent
)

// Set is the resources that one queue serves. The zero Set has none. It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex // a leaf, held for a few nanoseconds a member
	members []*Member
}

// Member is one of the resources. It is safe for concurrent use.
type Member struct {
	set *Set
	// Good answers of a member that is healthy change these without the lock. To lose one there does no harm.
	allowed atomic.Int64
	row     atomic.Int32  // errors since the last good answer, by when they began, or refused
	first   atomic.Int64  // when the first of them began
	rate    atomic.Uint32 // of errors of late, in parts of always
	most    atomic.Int64  // requests that ran while it was healthy

	// set.mu guards these.
	from     int64 // the end of the ejection, and then when probe and return began: requests before it do not count
	ejection int64 // nanoseconds of the last, or 0 if it was healthy since
	streak   int64 // good answers in a row with the number that is allowed now
}

// Add returns a new member, which is healthy.
func (s *Set) Add() *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &Member{set: s}
	m.allowed.Store(all)
	s.members = append(s.members, m)
	return m
}

// Remove removes a member. If none of the others is healthy, all are from then on, and it reports that.
func (s *Set) Remove(m *Member) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = slices.DeleteFunc(s.members, func(o *Member) bool { return o == m })
	if slices.ContainsFunc(s.members, (*Member).healthy) {
		return false
	}
	for _, o := range s.members {
		o.row.Store(0)
		o.from, o.ejection = 0, 0
		o.allowed.Store(all)
	}
	return len(s.members) > 0
}

// Allowed returns how many requests may run at once: math.MaxInt if the member is healthy, 0 while it is
// ejected, 1 while it is probed, and 2, 4, 8 and so on as it returns.
func (m *Member) Allowed() int { return int(m.allowed.Load()) }

// ProbeAt returns when the ejection of a member ends, 0 if it is not ejected.
func (m *Member) ProbeAt() int64 {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	if m.allowed.Load() != 0 {
		return 0
	}
	return m.from
}

// Probe lets one request begin if the time of the ejection is over, and reports whether it does. Where a connection can be
// opened first, Probe is called once it is open, and Unreached, with when that began, if it cannot be.
func (m *Member) Probe(now int64) bool {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	if m.allowed.Load() != 0 || now < m.from {
		return false
	}
	m.from, m.streak = now, 0
	m.allowed.Store(1)
	return true
}

// Ended notes that a request which had reached the resource has ended: when it began there, how many ran
// there, itself included, and whether it failed. It reports whether Allowed or ProbeAt of any member changed.
func (m *Member) Ended(began, now int64, running int, failed bool) (changed bool) {
	if m.healthy() {
		if r := int64(running); r > m.most.Load() {
			m.most.Store(r)
		}
		if !failed && m.row.Load() < rowLeast {
			m.good(began)
			return false
		}
	}
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	switch {
	case began < m.from:
		return false
	case !failed:
		return m.returned(began, now)
	default:
		return m.failed(m.row.Load()%refused+1, began, now)
	}
}

// Unreached notes that nothing of a request that began then could be sent. It reports what Ended does.
func (m *Member) Unreached(began, now int64) (changed bool) {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	return began >= m.from && m.failed(refused, began, now)
}

func (m *Member) healthy() bool { return m.allowed.Load() == all }

func (m *Member) good(began int64) {
	if m.row.Load() != 0 && began >= m.first.Load() {
		m.row.Store(0)
	}
	if r := m.rate.Load(); r != 0 {
		m.rate.CompareAndSwap(r, r-(r+answers-1)/answers)
	}
}

// failed notes an error, with which the row is so long. Who calls it holds set.mu, as with all below.
func (m *Member) failed(row int32, began, now int64) (changed bool) {
	if m.row.Swap(row) == 0 || began < m.first.Load() {
		m.first.Store(began)
	}
	m.rate.Store(m.rate.Load() + (always-m.rate.Load())/answers)
	m.streak = 0
	unlikely, another := m.judge()
	if m.allowed.Load() <= 1 || unlikely && another {
		m.eject(now)
		return true
	}
	if row >= rowLeast && !another {
		for _, o := range m.set.members {
			if soon := now + shortest; o.allowed.Load() == 0 && o.from > soon {
				o.from, o.ejection = soon, shortest
				changed = true
			}
		}
	}
	return m.set.over(now, func(o *Member) bool {
		unlikely, _ := o.judge()
		return o.row.Load() >= rowLeast && !unlikely
	}) || changed
}

// over ends the ejections of some, and reports whether there were any.
func (s *Set) over(now int64, of func(*Member) bool) (changed bool) {
	for _, m := range s.members {
		if m.allowed.Load() == 0 && m.from > now && of(m) {
			m.from, m.ejection = now, 0
			changed = true
		}
	}
	return changed
}

// returned notes a good answer of a member that was not healthy, or failed, before.
func (m *Member) returned(began, now int64) (changed bool) {
	m.good(began)
	if _, another := m.judge(); !another && m.healthy() && m.row.Load() == 0 {
		return m.set.over(now, func(*Member) bool { return true })
	}
	m.streak++
	allowed := m.allowed.Load()
	if allowed == 1 {
		m.from = now
	}
	switch over := now-m.from >= longest; {
	case allowed == 0 || allowed == all || m.streak < allowed && !over:
		return false
	case over || 2*allowed > m.most.Load():
		m.ejection = 0
		m.allowed.Store(all)
		for _, o := range m.set.members {
			if unlikely, another := o.judge(); unlikely && another && o.healthy() {
				o.eject(now)
			}
		}
	default:
		m.streak = 0
		m.allowed.Store(2 * allowed)
	}
	return true
}

func (m *Member) eject(now int64) {
	m.ejection = min(max(shortest, 2*m.ejection), longest)
	m.from = now + m.ejection
	m.allowed.Store(0)
}

// judge reports whether the others make the errors of a member unlikely, and whether one of them is healthy.
// The errors since the last good answer of another say sooner than its rate how often requests fail there.
func (m *Member) judge() (unlikely, another bool) {
	sum, n := 0., 0.
	for _, o := range m.set.members {
		if o != m && o.allowed.Load() > 1 {
			row := float64(o.row.Load())
			sum, n = sum+max(float64(o.rate.Load())/always, row/(row+1)), n+1
			another = another || o.healthy()
		}
	}
	row, p := m.row.Load(), max(rateLeast, sum/max(1, n))
	return row == refused || row >= rowLeast && math.Pow(p, float64(row)) <= chance, another
}

// Choose returns which of n resources to give the next request: that with the lowest utilisation, so that
// large and small are equally full; of equals the first after the last that was chosen, round robin; -1 if no
// place is free. Places returns how many are free of how many a resource has.
func Choose(last, n int, places func(i int) (free, limit int)) int {
	best, most := -1, 0.
	for k := range n {
		i := (last + 1 + k) % n
		free, limit := places(i)
		if share := float64(free) / float64(limit); free > 0 && share > most {
			best, most = i, share
		}
	}
	return best
}
