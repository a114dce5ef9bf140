// Package health says how many requests each of several resources behind one queue may be given, by what
// became of those that it was given. It is a circuit breaker for each (Nygard 2007) that knows the others.
//
// It is passive, as a queue discipline is: it starts no goroutine, blocks nobody, reads no clock and counts
// no requests. Times are arguments: nanoseconds of any clock that only goes forward, not negative.
//
//	state     may run  it moves on
//	well      all      to resting, if nothing can be sent to it, or by errors in a row
//	resting   none     to probing, when the pause is over: 1 s, and twice as long each time in a row, at
//	                   most 30 s; the next pause follows if nothing can be sent to it even then
//	probing   1        to returning, if the request ends well; to resting, if it fails
//	returning 2, 4, …  to twice as many, each time that so many in a row ended well; to well, if that is
//	                   more than ever ran before it rested, or after 30 s; to resting, as from well
//
// A member rests for errors in a row if the others make these unlikely: if there are at least three, and p
// to the power of their number is at most one in a million, where p is how often requests of the others
// fail. So it takes three where the others do well, and a dozen where 30% of all answers are errors. There
// is no end to it where everybody fails, as what they all need is broken. If the others come to fail only
// later, a pause for errors is over at once. If the last that is well comes to fail too, in a row or as nothing
// can be sent to it, no pause of the others is over later than 1 s from then: another may be back first. Their
// order is that in which they began: what breaks may answer with errors at once, while earlier requests still
// end well.
//
// At least one member is well at any time: requests fail at the last as they would with one resource. It may
// rest as soon as another is well. If the last has failed as the others did, and does well again, their pauses
// are over. Requests that began before a rest say nothing once it has begun.
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
	shortest  = 1e9               // nanoseconds of a pause
	longest   = 30e9              // nanoseconds of a pause, and of a return
	all       = math.MaxInt       // may run, as the member is well
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
	// Good answers of a member that is well change these without the lock. To lose one there does no harm.
	allowed atomic.Int64
	row     atomic.Int32  // errors since the last good answer, by when they began, or refused
	first   atomic.Int64  // when the first of them began
	rate    atomic.Uint32 // of errors of late, in parts of always
	most    atomic.Int64  // requests that ran while it was well

	// set.mu guards these.
	from   int64 // the end of the pause, and then when probe and return began: requests before it say nothing
	pause  int64 // nanoseconds of the last, or 0 if it was well since
	streak int64 // good answers in a row with the number that is allowed now
}

// Add returns a new member, which is well.
func (s *Set) Add() *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &Member{set: s}
	m.allowed.Store(all)
	s.members = append(s.members, m)
	return m
}

// Remove removes a member. If none of the others is well, all are from then on, and it reports that.
func (s *Set) Remove(m *Member) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = slices.DeleteFunc(s.members, func(o *Member) bool { return o == m })
	if slices.ContainsFunc(s.members, (*Member).well) {
		return false
	}
	for _, o := range s.members {
		o.row.Store(0)
		o.from, o.pause = 0, 0
		o.allowed.Store(all)
	}
	return len(s.members) > 0
}

// Allowed returns how many requests may run at once: math.MaxInt if the member is well, 0 while it rests,
// 1 while it is probed, and 2, 4, 8 and so on as it returns.
func (m *Member) Allowed() int { return int(m.allowed.Load()) }

// ProbeAt returns when the pause of a member that rests is over. It is 0 if it does not rest.
func (m *Member) ProbeAt() int64 {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	if m.allowed.Load() != 0 {
		return 0
	}
	return m.from
}

// Probe lets one request begin if the pause is over, and reports whether it does. Where a connection can be
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

// Ended tells that a request which had reached the resource has ended: when it began there, how many ran
// there, itself included, and whether it failed. It reports whether Allowed or ProbeAt of any member changed.
func (m *Member) Ended(began, now int64, running int, failed bool) (changed bool) {
	if m.well() {
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

// Unreached tells that nothing of a request that began then could be sent. It reports what Ended does.
func (m *Member) Unreached(began, now int64) (changed bool) {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	return began >= m.from && m.failed(refused, began, now)
}

func (m *Member) well() bool { return m.allowed.Load() == all }

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
		m.rest(now)
		return true
	}
	if row >= rowLeast && !another {
		for _, o := range m.set.members {
			if soon := now + shortest; o.allowed.Load() == 0 && o.from > soon {
				o.from, o.pause = soon, shortest
				changed = true
			}
		}
	}
	return m.set.over(now, func(o *Member) bool {
		unlikely, _ := o.judge()
		return o.row.Load() >= rowLeast && !unlikely
	}) || changed
}

// over ends the pauses of some, and reports whether there were any.
func (s *Set) over(now int64, of func(*Member) bool) (changed bool) {
	for _, m := range s.members {
		if m.allowed.Load() == 0 && m.from > now && of(m) {
			m.from, m.pause = now, 0
			changed = true
		}
	}
	return changed
}

// returned notes a good answer of a member that was not well, or failed, before.
func (m *Member) returned(began, now int64) (changed bool) {
	m.good(began)
	if _, another := m.judge(); !another && m.well() && m.row.Load() == 0 {
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
		m.pause = 0
		m.allowed.Store(all)
		for _, o := range m.set.members {
			if unlikely, another := o.judge(); unlikely && another && o.well() {
				o.rest(now)
			}
		}
	default:
		m.streak = 0
		m.allowed.Store(2 * allowed)
	}
	return true
}

func (m *Member) rest(now int64) {
	m.pause = min(max(shortest, 2*m.pause), longest)
	m.from = now + m.pause
	m.allowed.Store(0)
}

// judge reports whether the others make the errors of a member unlikely, and whether one of them is well.
// The errors since the last good answer of another say sooner than its rate how often requests fail there.
func (m *Member) judge() (unlikely, another bool) {
	sum, n := 0., 0.
	for _, o := range m.set.members {
		if o != m && o.allowed.Load() > 1 {
			row := float64(o.row.Load())
			sum, n = sum+max(float64(o.rate.Load())/always, row/(row+1)), n+1
			another = another || o.well()
		}
	}
	row, p := m.row.Load(), max(rateLeast, sum/max(1, n))
	return row == refused || row >= rowLeast && math.Pow(p, float64(row)) <= chance, another
}

// Choose returns which of n resources to give the next request: that with the largest share of its places
// free, so that large and small are equally full; of equals the first after the last that was chosen, so
// that they take turns; -1 if no place is free. Places returns how many are free of how many a resource has.
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
