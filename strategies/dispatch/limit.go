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
//	stuck     | the law's, times a factor, beside what is stuck | see below                    | the stuck tasks ended, one by one
//	observing | unheld or, if that is 0, the law's maximum      | SetObserve                   | SetObserve
//
// No number but unheld exceeds the law's maximum.
//
// A law that is told of no ends changes nothing, so tasks that never end would stop all others. So a timer runs
// while something waits. If it fires while all workers, or places, are in use, and no task that counts has ended
// since it was set, then all that run are stuck: they do not count until they end. Each time in a row that this
// is found, with no end in between, the timer runs half as long again, up to some seconds, and a fifth more tasks
// may begin than the last time. That is slow on purpose: what does the work may have come to a halt, or what waits
// may be behind other tasks that hang.
//
// In a pause the same timer runs, even if nothing waits, for as long as the pause, and its first firing begins
// the probe.
type limit struct {
	backlog  *backlog
	width    atomic.Int64             // the number; changes under backlog.mu
	learning atomic.Pointer[learning] // nil if the number is given; changes under backlog.mu
	unheld   int                      // constant
	closing  atomic.Bool              // no pause keeps what waits any more

	// stuck is how many stuck tasks have not ended, and row how often any were found since a task has ended. Both
	// change under backlog.mu.
	stuck atomic.Int64
	row   atomic.Int32
	// found is raised before and after stuck tasks are counted. A task that notes it when it begins, and finds
	// another number when it ends, was counted as stuck.
	found atomic.Uint32

	ended   atomic.Bool // a task that counts has ended since the timer was set
	watched atomic.Bool // the timer runs, or is about to
	timer   *time.Timer // changes under backlog.mu
	closed  bool        // the timer is not set again; under backlog.mu
}

const (
	stuckAfter = 100 * time.Millisecond // and
	stuckTimes = 16                     // service times without an end, and what runs is stuck
	stuckFirst = 5 * time.Second        // the same before the first end
	stuckMost  = 5 * time.Second        // what that grows to, if it is not more
	stuckGrows = 1.5                    // by so much each time in a row
	stuckMore  = 7.                     // times what the law says may begin at most, by the root of that
)

// now returns how many tasks may run at once.
func (m *limit) now() int { return int(m.width.Load()) }

// apply makes what number returns, which is asked under backlog.mu, the number in force: of several who change it
// at once the last to ask decides.
func (m *limit) apply(number func() int) {
	b := m.backlog
	b.mu.Lock()
	n, former := number(), m.now()
	if n == former {
		b.mu.Unlock()
		return
	}
	m.width.Store(int64(n))
	m.assertLocked(n)
	b.served.allow(former, n)
	q := b.active.Load() // nil before the first
	if q != nil {
		q.resize(n)
	}
	b.mu.Unlock()
	if q != nil {
		b.served.allowed(former, n)
		b.opts.Resized()
	}
}

// assertLocked checks the table of states for the number n.
func (m *limit) assertLocked(n int) {
	l, stuck, row := m.learning.Load(), m.stuck.Load(), m.row.Load()
	assert(l != nil || n >= 1 && stuck == 0 && row == 0, "given: %d, %d stuck, %d in a row", n, stuck, row)
	assert(l == nil || n >= 0 && (n <= l.bounds.Max || n == m.unheld), "learned: %d", n)
	assert(stuck >= 0 && row >= 0, "%d stuck, %d in a row", stuck, row)
}

// set gives the number.
func (m *limit) set(n int) {
	m.apply(func() int {
		m.learning.Store(nil)
		m.forgetLocked()
		return max(1, n)
	})
}

// learn has the number learned by l from now on.
func (m *limit) learn(l *learning) {
	m.apply(func() int {
		m.learning.Store(l)
		m.forgetLocked()
		if m.watched.Load() {
			m.setTimerLocked(l)
		}
		return m.enforced(l)
	})
	if m.backlog.active.Load() != nil && m.backlog.toDo() > 0 {
		m.waits()
	}
}

// reapply applies what is learned anew, since the dispatcher began or ended to only observe, or is closing.
func (m *limit) reapply() { m.applyIf(m.learning.Load(), func(*learning) {}) }

// applyIf has change called and then applies what l says, if the number is still learned by l.
func (m *limit) applyIf(l *learning, change func(*learning)) {
	if l == nil {
		return
	}
	m.apply(func() int {
		if m.learning.Load() != l {
			return m.now()
		}
		change(l)
		return m.enforced(l)
	})
}

// fit tells the discipline of q, which is active now, of the number if it has changed since q was made.
func (m *limit) fit(q *queue) {
	m.backlog.mu.Lock()
	defer m.backlog.mu.Unlock()
	if n := m.now(); n != q.madeFor {
		q.resize(n)
	}
}

// release ends a pause for good, so that what waits can run before the end.
func (m *limit) release() {
	m.closing.Store(true)
	m.reapply()
}

// close stops the timer for good.
func (m *limit) close() {
	m.backlog.mu.Lock()
	defer m.backlog.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}

// enforced returns the number while it is learned by l.
func (m *limit) enforced(l *learning) int {
	if m.unheld > 0 && m.backlog.observe.Load() {
		return m.unheld
	}
	n := l.Limit()
	switch {
	case l.halt() > 0 && !m.closing.Load():
		n = min(1, int(m.row.Load()))
	case l.Pause() > 0 && l.floor > 0:
		n = l.floor
	}
	return m.beside(l, n)
}

// beside returns the number if n of the tasks that count may run, beside those that are stuck.
func (m *limit) beside(l *learning, n int) int {
	stuck, more := float64(m.stuck.Load()), 1.
	switch {
	case m.backlog.observe.Load():
		return l.bounds.Max
	case stuck > 0:
		_, more = m.patience(l)
	}
	return int(min(float64(n)*more+stuck, float64(l.bounds.Max)))
}

// told returns the number as people are told of it: what it would be without a pause.
func (m *limit) told() int {
	if l := m.learning.Load(); l != nil {
		return m.beside(l, l.Limit())
	}
	return m.now()
}

// calm reports whether nothing waits and at most half of the workers, or places, would be in use: what is
// measured then is what the work takes by itself. What runs without a place, as under a strategy without a
// queue, counts too. Where a learned number holds nobody back, it takes one alone.
func (m *limit) calm() bool {
	half := m.width.Load() / 2
	if m.learning.Load() != nil && m.backlog.observe.Load() {
		half = 0
	}
	return m.backlog.inFlight.Load() <= max(1, half)
}

// counted returns how many tasks run that are not stuck, but for one that ends now.
func (m *limit) counted() int { return max(1, m.backlog.served.inUse()-int(m.stuck.Load())) }

// sample tells l of the end of a task that began at that time. It does nothing if began is 0: l was told then, or
// nobody measures the task.
func (m *limit) sample(l *learning, began, now int64, how Outcome) {
	if began == 0 || how == Ignored {
		return
	}
	if how == Dropped {
		l.dropped.Add(1)
	} else {
		l.good(now - began)
	}
	if m.backlog.observe.Load() {
		return // see observed
	}
	_, changed := l.Completed(concurrency.Sample{
		Now: now, Began: began, Running: m.counted(), Waiting: m.backlog.served.ready(), Dropped: how == Dropped,
	})
	if !changed && l.Pause() == 0 {
		return
	}
	m.applyIf(l, func(l *learning) {
		paused := l.halt() > 0
		if paused {
			m.row.Store(0)
		}
		if paused || m.watched.Load() {
			m.setTimerLocked(l)
		}
	})
}

// end is called when a task of n places, or a worker's turn, has ended: it began at that time, when found was as
// given. If the number is learned, the law is told. It returns what found is by now.
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

// recount counts n places, or a worker, again that were found stuck since found was as given. It returns what found
// is by now.
func (m *limit) recount(found uint32, n int64) uint32 {
	times := m.found.Load()
	if times != found || m.row.Load() != 0 {
		m.applyIf(m.learning.Load(), func(l *learning) {
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

// forgetLocked forgets what is stuck.
func (m *limit) forgetLocked() {
	m.stuck.Store(0)
	m.row.Store(0)
}

// waits is called when something has begun to wait: the timer has to run.
func (m *limit) waits() {
	if l := m.learning.Load(); l != nil && !m.backlog.observe.Load() && !m.watched.Load() && !m.watched.Swap(true) {
		m.setTimer(l)
	}
}

// patience returns for how long the timer runs, and by what factor more than the law's number may run beside what
// is stuck.
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

func (m *limit) setTimer(l *learning) {
	m.backlog.mu.Lock()
	m.setTimerLocked(l)
	m.backlog.mu.Unlock()
}

func (m *limit) setTimerLocked(l *learning) {
	if m.closed {
		return
	}
	m.watched.Store(true)
	m.ended.Store(false)
	while, _ := m.patience(l)
	if m.timer == nil {
		m.timer = time.AfterFunc(while, m.fire)
	} else {
		m.timer.Reset(while)
	}
}

// fire is called when the timer fires.
func (m *limit) fire() {
	l := m.learning.Load()
	m.backlog.mu.Lock() // which is held while a task that waits is moved
	wanted := l != nil && (m.backlog.toDo() > 0 || m.probes(l))
	m.backlog.mu.Unlock()
	if !wanted {
		m.watched.Store(false)
		if m.backlog.toDo() > 0 { // it has come meanwhile
			m.waits()
		}
		return
	}
	if m.backlog.served.inUse() >= m.now() {
		m.pass(l)
	}
	m.setTimer(l)
}

// probes reports whether the timer is that of a pause, at whose end one task may begin.
func (m *limit) probes(l *learning) bool { return l.halt() > 0 && m.row.Load() == 0 }

// pass takes all that runs for stuck, unless something has ended meanwhile.
func (m *limit) pass(l *learning) {
	m.applyIf(l, func(l *learning) {
		if m.ended.Load() && !m.probes(l) { // in a pause the end of a task has set the timer anew
			return
		}
		// Of those that begin or end while they are counted, each that may be counted finds another number.
		m.found.Add(1)
		n := m.backlog.served.running()
		m.found.Add(1)
		m.stuck.Store(int64(n))
		m.row.Add(1)
	})
}
