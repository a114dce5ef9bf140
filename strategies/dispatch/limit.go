package dispatch

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

// limit owns how many tasks may run at once, and is the only one to change it:
//
//	state     | number                                          | begins                       | ends
//	given     | as given                                        | Resize                       | Learn
//	learned   | the law's                                       | Learn, or any state below ends | Resize
//	paused    | the floor or, if that is 0, none                | the law demands a pause      | a sample after which it does not
//	probing   | 1                                               | nothing ended for the pause  | an end
//	stuck     | the law's × a factor, not counting stuck tasks  | see below                    | the stuck tasks ended, one by one
//	observing | what holds nobody back                          | SetObserve                   | SetObserve
//	bounded   | any of these, or the bound if that is less      | Resource.Bound               | a bound that is not less
//
// No number but that of observing exceeds the law's maximum. While a bound is less than the law says, it learns nothing.
//
// Without completions the law changes nothing, so tasks that never end would stop all others. So a timer runs while
// something waits. If it fires while all workers, or places, are in use, and no task that counts has ended since it was
// set, then all that run are stuck: they do not count until they end. Each time in a row that this is found, with no end in
// between, the timer runs half as long again, up to some seconds, and a fifth more tasks may begin than the last time. That
// is slow on purpose: what does the work may have come to a halt, or what waits may be behind other tasks that hang. If
// meanwhile tasks end at other resources, it is this one that hangs, probably: then one task more may begin each time, and
// as many as the law says once one has ended.
//
// In a pause the same timer runs, even if nothing waits, for as long as the pause. Its first firing begins the probe.
//
// All but ended and watched changes under backlog.mu.
type limit struct {
	backlog  *backlog
	of       limited
	unheld   int                      // the number under Observe, if the law's maximum is less
	width    atomic.Int64             // the number
	learning atomic.Pointer[learning] // nil if the number is given
	given    atomic.Int64             // the number if it is given
	closing  bool                     // no pause keeps what waits any more
	most     atomic.Int64             // the bound: not more, whatever it is

	stuck atomic.Int64 // how many stuck tasks have not ended
	row   atomic.Int32 // how often any were found since a task has ended
	// found is raised before and after stuck tasks are counted. A task that notes it when it begins, and finds another
	// number when it ends, was counted as stuck.
	found atomic.Uint32
	lone  atomic.Bool // other resources get on while this one does not; means something while row is not 0
	got   int64       // when the limit was last found to get on itself, 0 before

	ended   atomic.Bool // a task that counts has ended since the timer was set
	watched atomic.Bool // the timer runs, or is about to
	timer   *time.Timer
	closed  bool // the timer is not set again
}

const (
	stuckAfter = 100 * time.Millisecond // and
	stuckTimes = 16                     // service times without an end, and what runs is stuck
	stuckFirst = 5 * time.Second        // the same before the first end
	stuckMost  = 5 * time.Second        // what that grows to, if it is not more
	stuckGrows = 1.5                    // by so much each time in a row
	stuckMore  = 7.                     // times what the law says may begin at most, by the root of that
)

// limited is what a limit is of: workers, or the places of a resource.
type limited interface {
	// InUse returns how many are in use. While their number changes it may be off by as much, unless backlog.mu is held.
	InUse() int
	// running is InUse without what is kept for a task that has not begun. backlog.mu is held.
	running() int
	// allow is called when the number changes. backlog.mu is held.
	allow(from, to int)
}

func (m *limit) init(b *backlog, of limited, n int) *limit {
	m.backlog, m.of = b, of
	m.most.Store(math.MaxInt)
	m.given.Store(int64(n))
	m.width.Store(int64(n))
	m.timer = stopped(m.fire)
	return m
}

// stopped returns a timer that calls f once it is set.
func stopped(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

func (m *limit) now() int { return int(m.width.Load()) }

// change changes the state, and then the number to what follows from it.
func (m *limit) change(state func()) {
	b := m.backlog
	b.mu.Lock()
	state()
	former, n := m.now(), m.number(true)
	m.width.Store(int64(n))
	m.assertLocked(n)
	q := b.active.Load() // nil before the first
	if n != former {
		m.of.allow(former, n)
		if q != nil {
			q.resize(b.width())
		}
	}
	b.mu.Unlock()
	if n != former && q != nil {
		b.served.wake()
		b.opts.Resized()
	}
}

// changeIf is change, if the number is still learned by l.
func (m *limit) changeIf(l *learning, state func()) {
	if l == nil {
		return
	}
	m.change(func() {
		if m.learning.Load() == l {
			state()
		}
	})
}

// assertLocked checks the table of states for the number n.
func (m *limit) assertLocked(n int) {
	l, stuck, row := m.learning.Load(), m.stuck.Load(), m.row.Load()
	assert(l != nil || int64(n) >= min(1, m.most.Load()) && stuck == 0 && row == 0, "given: %d, %d stuck, %d in a row", n, stuck, row)
	assert(l == nil || n >= 0 && n <= max(l.bounds.Max, m.unheld), "learned: %d", n)
	assert(stuck >= 0 && row >= 0, "%d stuck, %d in a row", stuck, row)
}

// set has the number learned by l from now on or, if that is nil, gives it.
func (m *limit) set(n int, l *learning) {
	m.change(func() {
		if l == nil { // first: who finds that none is learned reads it without the lock
			m.given.Store(int64(n))
		}
		m.learning.Store(l)
		m.stuck.Store(0)
		m.row.Store(0)
		if l != nil && m.watched.Load() {
			m.setTimerLocked(l)
		}
	})
	if m.backlog.active.Load() != nil && m.backlog.toDo() > 0 {
		m.waits()
	}
}

// release ends a pause for good, so that what waits can run before the end.
func (m *limit) release() { m.change(func() { m.closing = true }) }

func (m *limit) close() {
	m.backlog.mu.Lock()
	defer m.backlog.mu.Unlock()
	m.closed = true
	m.timer.Stop()
}

// number returns how many tasks may run at once or, if it is not held, as people are shown it, how many might but for a
// pause or a bound.
func (m *limit) number(held bool) (n int) {
	switch l := m.learning.Load(); {
	case l == nil:
		n = int(m.given.Load())
	case !m.backlog.observe.Load():
		n = m.learnt(l, held)
	case held:
		n = max(l.bounds.Max, m.unheld)
	default:
		n = l.bounds.Max
	}
	if held {
		n = int(min(m.most.Load(), int64(n)))
	}
	return n
}

// learnt is number where l says how many tasks may run.
func (m *limit) learnt(l *learning, held bool) int {
	n, stuck, more := l.Limit(), float64(m.stuck.Load()), 1.
	if held && l.Pause() > 0 && !m.closing {
		n = max(l.floor, min(1, int(m.row.Load())))
	}
	switch {
	case stuck > 0 && m.lone.Load() && m.row.Load() > 0:
		n = 1
	case stuck > 0:
		_, more = m.patience(l)
	}
	return int(min(float64(n)*more+stuck, float64(l.bounds.Max)))
}

// sample gives l the end of a task that began at that time, or 0 if it was sampled, or nobody measures the task.
func (m *limit) sample(l *learning, began, now int64, how Outcome) {
	if began == 0 || how == Ignored {
		return
	}
	if how == Dropped {
		l.dropped.Add(1)
	} else {
		l.good(now - began)
	}
	if m.backlog.observe.Load() || m.most.Load() < int64(l.Limit()) {
		return // see observed; and what is bounded does not run as many as the law tries
	}
	counts := max(1, m.of.InUse()-int(m.stuck.Load())) // beside what is stuck, and with what ends now
	_, changed := l.Completed(concurrency.Sample{
		Now: now, Began: began, Running: counts, Waiting: m.backlog.served.ready(), Dropped: how == Dropped,
	})
	if !changed && l.Pause() == 0 {
		return
	}
	m.changeIf(l, func() {
		paused := l.halt() > 0
		if paused {
			m.row.Store(0)
		}
		if paused || m.watched.Load() {
			m.setTimerLocked(l)
		}
	})
}

// end is called when a task of n places, or a worker's turn, has ended: it began at that time, when found was as given. A
// learned number samples it. It returns what found is by now.
func (m *limit) end(found uint32, n, began, now int64, how Outcome) uint32 {
	l := m.learning.Load()
	if l == nil {
		return found
	}
	// First, as the timer may be set anew below. A stuck task makes room for nobody, so its end says nothing.
	if found == m.found.Load() && !m.ended.Load() { // which costs less than to store it
		m.ended.Store(true)
	}
	m.sample(l, began, now, how)
	return m.recount(found, n)
}

// recount counts n places, or a worker, again that were found stuck since found was as given. It returns what that is by now.
func (m *limit) recount(found uint32, n int64) uint32 {
	times := m.found.Load()
	if times != found || m.row.Load() != 0 {
		l := m.learning.Load()
		m.changeIf(l, func() {
			if times = m.found.Load(); times != found {
				m.stuck.Store(max(0, m.stuck.Load()-n))
			}
			if l.halt() == 0 && m.row.Swap(0) != 0 && m.watched.Load() {
				m.setTimerLocked(l) // not for as long
			}
		})
	}
	return times
}

// waits is called when something has begun to wait: the timer has to run.
func (m *limit) waits() {
	if l := m.learning.Load(); l != nil && !m.backlog.observe.Load() && !m.watched.Load() && !m.watched.Swap(true) {
		m.backlog.mu.Lock()
		m.setTimerLocked(l)
		m.backlog.mu.Unlock()
	}
}

// patience returns for how long the timer runs, and by what factor more than the law's number may run beside what is stuck.
func (m *limit) patience(l *learning) (while time.Duration, more float64) {
	row, pause := m.row.Load(), time.Duration(l.halt())
	if pause > 0 && row == 0 {
		return pause, 1
	}
	while = stuckFirst
	if service := l.Service(); service > 0 {
		while = stuckAfter + stuckTimes*time.Duration(min(service, math.MaxInt64/stuckTimes/2))
	}
	while = max(while, pause) // as long as one takes that times out, at least
	grown := math.Pow(stuckGrows, float64(row))
	longer := min(grown, max(1, float64(stuckMost)/float64(while)))
	return time.Duration(longer * float64(while)), min(math.Sqrt(grown), stuckMore)
}

func (m *limit) setTimerLocked(l *learning) {
	if m.closed {
		return
	}
	m.watched.Store(true)
	if m.ended.Swap(false) {
		m.got = m.backlog.Now()
	}
	while, _ := m.patience(l)
	m.timer.Reset(while)
}

// fire is called when the timer fires. It takes all that runs for stuck, unless something has ended meanwhile.
func (m *limit) fire() {
	b := m.backlog
	m.change(func() { // under the lock under which a task that waits is moved
		l := m.learning.Load()
		probes := l != nil && l.halt() > 0 && m.row.Load() == 0 // the timer is that of a pause, at whose end one may begin
		if l == nil || b.toDo() == 0 && !probes {
			m.watched.Store(false)
			return
		}
		if m.most.Load() > 0 && m.of.InUse() >= m.now() && (probes || !m.ended.Load()) { // in a pause an end has set the timer anew
			while, _ := m.patience(l)
			m.lone.Store(m.othersGetOnLocked(while))
			m.findStuckLocked()
		}
		m.setTimerLocked(l)
	})
	if !m.watched.Load() && b.toDo() > 0 { // it has come meanwhile
		m.waits()
	}
}

// othersGetOnLocked reports whether a task has ended at another resource within that time.
func (m *limit) othersGetOnLocked(within time.Duration) bool {
	now := m.backlog.Now()
	for _, o := range *m.backlog.limits.Load() {
		if o != m && (o.ended.Load() || o.got != 0 && now-o.got <= int64(within)) {
			return true
		}
	}
	return false
}

// findStuckLocked takes all that runs for stuck. Of those that begin or end while they are counted, each that may be
// counted finds another number in found.
func (m *limit) findStuckLocked() {
	m.found.Add(1)
	m.stuck.Store(int64(m.of.running()))
	m.found.Add(1)
	m.row.Add(1)
}
