package strategies_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// autoModel is what auto does, on a slice of the tasks in the order of their
// arrival.
type autoModel struct {
	waiting                   []autoTask
	capacity, workers         int
	most, stock, least, limit float64
	turns, turned             int64
	idle                      bool
	pace                      float64
	state                     string // "", "trial", "steady" or "overload"
	looked, since             int64
	peak, longest, left       int
	grown, others, same       int
}

type autoTask struct {
	*strategies.Task
	turn int64
	out  bool // of the newest
}

func newAutoModel(c strategies.Config) strategies.Discipline {
	most := float64(min(max(16*c.Workers, 64), c.Capacity))
	return &autoModel{capacity: c.Capacity, workers: c.Workers, most: most, stock: min(24, most/2), least: max(1, min(4, most/2)), limit: most}
}

func (m *autoModel) Len() int { return len(m.waiting) }
func (m *autoModel) Cap() int { return m.capacity }

// best returns the index of the task that comes before all others, -1 if there
// is none.
func (m *autoModel) best(among func(autoTask) bool, before func(a, b autoTask) bool) int {
	best := -1
	for i, t := range m.waiting {
		if among(t) && (best < 0 || before(t, m.waiting[best])) {
			best = i
		}
	}
	return best
}

func (t autoTask) class() int { return t.Priority.Class() }

func anyTask(autoTask) bool            { return true }
func moreImportant(a, b autoTask) bool { return a.class() < b.class() }
func lessImportant(a, b autoTask) bool { return a.class() > b.class() }

func (m *autoModel) Push(t *strategies.Task, now int64) strategies.Verdict {
	var v strategies.Verdict
	if n := len(m.waiting); n > 0 && t.Deadline != 0 {
		before := n
		if m.limit < m.most && m.state != "steady" {
			before = 0
			for class := range t.Priority.Class() + 1 {
				before += m.newestOf(class)
			}
		}
		if float64(t.Deadline-now) < float64(before+1+m.workers)*m.pace {
			m.left++
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonExpired}
		}
	}
	if len(m.waiting) == 0 {
		m.quiet(now)
		m.idle = false
	}
	full := len(m.waiting) == m.capacity
	if full {
		m.left++
		i := m.best(anyTask, lessImportant) // the oldest of them
		if m.waiting[i].class() < t.Priority.Class() {
			m.look(now)
			return turnedAway
		}
		v.Displaced = m.take(i)
	}
	m.waiting = append(m.waiting, autoTask{t, m.turns, false})
	if full || float64(m.newest()) > m.limit {
		m.limit = max(m.limit*(1-1./128), m.least)
	}
	for float64(m.newest()) > m.limit {
		m.waiting[m.best(func(a autoTask) bool { return !a.out }, lessImportant)].out = true
	}
	m.look(now)
	return v
}

func (m *autoModel) look(now int64) {
	n := len(m.waiting)
	if m.state == "overload" {
		return
	}
	if m.state == "" {
		if float64(n) > m.most/2 {
			m.state, m.looked, m.since, m.peak, m.longest, m.grown, m.left = "trial", m.turns, now, n, 0, 0, 0
			m.others, m.same = 0, 0
		}
		return
	}
	came := n + m.left
	m.peak = max(m.peak, came)
	if m.turns < m.looked+int64(8*m.workers) || now < m.since+30e6 {
		return
	}
	growth := min(m.longest, n) / 32
	least := m.longest - growth
	if m.state == "steady" {
		least = m.longest - m.longest/8
	}
	switch {
	case m.longest == 0:
		m.longest = m.peak
	case came > m.longest+growth:
		m.longest, m.grown, m.others, m.same = m.peak, m.grown+1, 0, 0
		m.state = "trial"
	case m.peak >= least && m.peak <= m.longest+growth:
		m.others, m.same = m.others+1, m.same+1
		if m.same == 3 {
			m.state = "steady"
		}
	default:
		m.others, m.same = m.others+1, 0
		m.state = "trial"
	}
	if m.grown == 3 {
		m.state = "overload"
	}
	if m.others == 8 {
		m.longest, m.grown, m.others = m.peak, 0, 0
	}
	m.peak, m.looked, m.since = came, m.turns, now
}

func (m *autoModel) calm() { m.state, m.limit = "", m.most }

func (m *autoModel) quiet(now int64) {
	if m.idle && float64(now-m.turned) > float64(8+3*m.workers)*m.pace {
		m.calm()
	}
	m.turned = now
}

// newest counts those that were not pushed out.
func (m *autoModel) newest() (n int) {
	for class := range 8 {
		n += m.newestOf(class)
	}
	return n
}

func (m *autoModel) newestOf(class int) (n int) {
	for _, t := range m.waiting {
		if !t.out && t.class() == class {
			n++
		}
	}
	return n
}

func (m *autoModel) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	stands := m.limit < m.most
	switch {
	case len(m.waiting) == 0:
		if m.limit += 1. / 8; m.state != "overload" || m.limit >= m.most {
			m.calm()
		}
		m.quiet(now)
		m.idle = true
		return nil, strategies.Empty, strategies.ReasonNone
	case m.state == "overload":
		least := m.waiting[m.best(anyTask, lessImportant)].class()
		tooOld := func(t autoTask) bool {
			patience := 1.5 * m.limit
			if t.class() != least {
				patience = 1.5 * m.most
			}
			return t.out && m.turns-t.turn > int64(patience) && now-t.Submitted >= 10e6
		}
		if i := m.best(tooOld, lessImportant); i >= 0 {
			return m.take(i), strategies.Shed, strategies.ReasonCoDel
		}
	}
	next := 0
	if stands {
		next = m.best(anyTask, moreImportant)
	}
	if class := m.waiting[next].class(); m.state != "steady" && float64(len(m.waiting)) > m.limit {
		next = m.best(func(t autoTask) bool { return t.class() == class && !t.out }, moreImportant)
		for i, t := range m.waiting {
			if t.class() == class && t.out && m.newestOf(class) == 0 {
				next = i // until the last
			}
		}
	}
	t := m.take(next)
	if m.state != "overload" && float64(len(m.waiting)) <= min(m.limit, m.most/2) {
		m.calm()
	}
	return t, strategies.Run, strategies.ReasonNone
}

func (m *autoModel) TurnBegan(now int64) {
	took := float64(max(now-m.turned, 1))
	if m.pace == 0 {
		m.pace = took
	}
	m.pace += (min(took, 16*m.pace) - m.pace) * (1. / 32)
	m.turned = now
	m.turns++
	if m.limit < m.stock {
		m.limit += 0.5 / m.limit
	}
}

func (m *autoModel) Remove(t *strategies.Task) bool {
	i := slices.IndexFunc(m.waiting, func(a autoTask) bool { return a.Task == t })
	if i >= 0 {
		m.left++
		m.take(i)
	}
	return i >= 0
}

func (m *autoModel) take(i int) *strategies.Task {
	t := m.waiting[i].Task
	m.waiting = slices.Delete(m.waiting, i, i+1)
	return t
}

// line is a queue whose workers take a task each millisecond, or each tick.
type line struct {
	t    *testing.T
	q    strategies.Discipline
	now  int64 // nanoseconds
	tick int64 // from a turn to the next
}

func newLine(t *testing.T, workers, capacity int) *line {
	return &line{t, lookup(t, "auto").New(strategies.Config{Capacity: capacity, Workers: workers}), 1, 1e6}
}

// push pushes n tasks, which have to be queued without another being displaced,
// and returns them.
func (l *line) push(n, class int) []*strategies.Task {
	tasks := make([]*strategies.Task, n)
	for i := range tasks {
		tasks[i] = &strategies.Task{Arrival: l.now, Submitted: l.now, Priority: strategies.Urgency(class)}
		require.Equal(l.t, strategies.Verdict{}, l.q.Push(tasks[i], l.now))
	}
	return tasks
}

// turn is a worker's who is free a millisecond later: it returns what it runs, nil
// if it found nothing, and what was given up.
func (l *line) turn() (run *strategies.Task, givenUp []*strategies.Task) {
	l.now += l.tick
	for {
		t, what, reason := l.q.Pop(l.now)
		if what == strategies.Run {
			l.q.(strategies.TurnObserver).TurnBegan(l.now)
		}
		if what != strategies.Shed {
			return t, givenUp
		}
		require.Equal(l.t, strategies.ReasonCoDel, reason)
		givenUp = append(givenUp, t)
	}
}

// stand has two tasks come for each turn until the queue is as short as it gets
// at that load.
func (l *line) stand() {
	for range 2000 {
		l.push(2, 3)
		l.turn()
	}
}

// empty has workers take all that waits.
func (l *line) empty() {
	for l.q.Len() > 0 {
		l.turn()
	}
}

// A queue that comes and goes is first-in first-out, and nobody is given up.
func TestAuto_FirstInFirstOutUpToTheLimit(t *testing.T) {
	t.Parallel()
	l := newLine(t, 8, 4096)
	for range 20 {
		tasks := l.push(128, 3)
		for _, want := range tasks {
			got, givenUp := l.turn()
			require.Same(t, want, got)
			require.Empty(t, givenUp)
		}
		l.turn()
	}
}

// A single burst, beyond the limit, is worked off: those who came last first.
func TestAuto_WorksOffABurst(t *testing.T) {
	t.Parallel()
	l := newLine(t, 8, 4096)
	tasks := l.push(150, 3)
	first, _ := l.turn()
	require.NotSame(t, tasks[0], first)
	ran := 1
	for l.q.Len() > 0 {
		_, givenUp := l.turn()
		require.Empty(t, givenUp)
		ran++
	}
	require.Equal(t, 150, ran)
}

// A load that grows the queue for four looks is an overload, and none before: until
// then nobody is given up.
func TestAuto_Overload(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4, 8} {
		l := newLine(t, workers, 100_000)
		turns := 0
		for given := 0; given == 0; turns++ {
			l.push(3, 3)
			_, givenUp := l.turn()
			given = len(givenUp)
		}
		require.Greater(t, turns, max(4*8*workers, 120))
		require.Less(t, turns, max(4*8*workers, 120)+64)
	}
}

// Nobody is given up before having waited for 10 ms, however fast the workers are.
func TestAuto_GivesUpNobodySoon(t *testing.T) {
	t.Parallel()
	l := newLine(t, 8, 100_000)
	l.tick = 10e3
	given := 0
	for range 50_000 {
		l.push(2, 3)
		_, givenUp := l.turn()
		for _, g := range givenUp {
			require.GreaterOrEqual(t, l.now-g.Submitted, int64(10e6))
		}
		given += len(givenUp)
	}
	require.Greater(t, given, 10_000)
}

// Clients that all wait are a closed loop: nobody is given up, and soon all are served
// in order of arrival.
func TestAuto_ClosedLoop(t *testing.T) {
	t.Parallel()
	for _, clients := range []int{40, 100, 500, 4000} {
		l := newLine(t, 8, 4096)
		l.push(clients, 3)
		last := int64(0)
		for i := range 16 * clients {
			run, givenUp := l.turn()
			require.Empty(t, givenUp)
			if i > 4*clients+200 {
				require.GreaterOrEqual(t, run.Submitted, last)
			}
			last = run.Submitted
			l.push(1, 3)
		}
	}
}

// When more comes than goes for long, tasks wait a few turns or are given up, and
// Nothing is served for long, and whoever has waited for a second leaves. When turns begin again,
// that is seen to be an overload, however many have left.
func TestAuto_OverloadAfterAStandstill(t *testing.T) {
	t.Parallel()
	l := newLine(t, 1, 4096)
	l.tick = 0
	var waiting []*strategies.Task
	come := func() { // one each three milliseconds
		l.now += 3e6
		waiting = append(waiting, l.push(1, 3)...)
		for len(waiting) > 0 && l.now-waiting[0].Arrival > 1e9 {
			l.q.(strategies.Remover).Remove(waiting[0])
			waiting = waiting[1:]
		}
	}
	for range 10_000 {
		come()
	}
	var age int64
	for i := range 1000 {
		if come(); i%4 != 0 {
			run, _ := l.turn()
			age = l.now - run.Arrival
		}
	}
	require.Less(t, age, int64(100e6))
}

// that soon; and whoever comes when it is over is served as ever.
func TestAuto_StandingQueue(t *testing.T) {
	t.Parallel()
	l := newLine(t, 8, 4096)
	l.stand()
	require.Less(t, l.q.Len(), 32)
	for range 100 {
		l.push(2, 3)
		run, givenUp := l.turn()
		require.Less(t, l.now-run.Arrival, int64(12e6), "eight over the root of one task too many a turn, and some")
		for _, g := range givenUp {
			require.Less(t, l.now-g.Arrival, int64(24e6))
		}
	}
	l.empty()
	l.turn()
	l.now += (8 + 3*8 + 1) * 2e6 // nothing happens
	tasks := l.push(100, 3)
	for _, want := range tasks {
		got, _ := l.turn()
		require.Same(t, want, got)
	}
}

// Under observe it tells of as many as it gives up otherwise, and gives up none: also
// when what it spares fills the queue, and with deadlines, which those that are
// spared would have others miss.
func TestAuto_ObservesWhatItWouldGiveUp(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		load     float64 // tasks for each turn
		deadline int64   // after the arrival; 0 for none
		least    int     // of a hundred tasks, are given up
	}{
		{"enough workers", 0.8, 0, 0},
		{"enough workers, deadlines", 0.8, 100e6, 0},
		{"overload", 1.5, 0, 30},
		{"large overload", 4, 0, 70},
		{"overload, deadlines", 1.5, 50e6, 30},
		{"large overload, deadlines", 4, 50e6, 70},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			const turns = 40_000
			count := func(observe bool) (noted int) {
				l := newLine(t, 8, 4096)
				l.q = lookup(t, "auto").New(strategies.Config{Capacity: 4096, Workers: 8, Observe: observe})
				note := func(task *strategies.Task, reason strategies.Reason) {
					if task != nil && (reason != strategies.ReasonNone || task.WouldShed != strategies.ReasonNone) {
						noted++
					}
				}
				random, due := rand.New(rand.NewPCG(1, 1)), 0.0
				for range turns {
					for due += 2 * row.load * random.Float64(); due >= 1; due-- {
						task := &strategies.Task{Arrival: l.now, Submitted: l.now}
						if row.deadline != 0 {
							task.Deadline = l.now + row.deadline
						}
						v := l.q.Push(task, l.now)
						if note(v.Displaced, strategies.ReasonNone); v.Outcome == strategies.TurnedAway {
							note(task, v.Reason)
						}
						require.True(t, !observe || v.Displaced == nil || v.Displaced.WouldShed != strategies.ReasonNone, "what would be served is not displaced by what would not")
					}
					l.now += l.tick
					for {
						task, what, reason := l.q.Pop(l.now)
						if what == strategies.Run {
							l.q.(strategies.TurnObserver).TurnBegan(l.now)
						}
						require.False(t, observe && what == strategies.Shed)
						if note(task, reason); what != strategies.Shed {
							break
						}
					}
				}
				return noted
			}
			enforced, observed := count(false), count(true)
			require.GreaterOrEqual(t, enforced, int(float64(row.least)/100*row.load*turns))
			require.InDelta(t, enforced, observed, 0.05*float64(enforced)+4096, "as much as still waits")
			if row.least == 0 {
				require.Zero(t, observed)
			}
		})
	}
}

// Of a queue that stands the important is served first, and the least important
// given up; while none stands, all are in order.
func TestAuto_Priorities(t *testing.T) {
	t.Parallel()
	l := newLine(t, 8, 4096)
	low := l.push(1, 7)
	high := l.push(1, 0)
	got, _ := l.turn()
	require.Same(t, low[0], got)
	got, _ = l.turn()
	require.Same(t, high[0], got)

	ran, givenUp := [8]int{}, [8]int{}
	for i := range 3000 {
		l.push(2, 6)
		l.push(i%2, 1)
		run, shed := l.turn()
		ran[run.Priority.Class()]++
		for _, s := range shed {
			givenUp[s.Priority.Class()]++
		}
	}
	require.Zero(t, givenUp[1])
	require.Greater(t, ran[1], 1480)
	require.Greater(t, givenUp[6], 4000)
}

// With no room left, the least important makes room, or is turned away.
func TestAuto_PrioritiesAtTheCapacity(t *testing.T) {
	t.Parallel()
	l := newLine(t, 8, 4)
	tasks := l.push(4, 5)
	require.Equal(t, turnedAway, l.q.Push(&strategies.Task{Priority: 6}, l.now))
	require.Equal(t, strategies.Verdict{Displaced: tasks[0]}, l.q.Push(&strategies.Task{Priority: 5}, l.now))
	require.Equal(t, strategies.Verdict{Displaced: tasks[1]}, l.q.Push(&strategies.Task{Priority: 4}, l.now))
}

// What cannot be done in time, at the pace of the workers, is refused at once, but
// never while nothing waits, so that the pace is learnt anew.
func TestAuto_RefusesWhatCannotBeInTime(t *testing.T) {
	t.Parallel()
	due := func(l *line, in int64) strategies.Verdict {
		return l.q.Push(&strategies.Task{Deadline: l.now + in}, l.now)
	}
	l := newLine(t, 8, 4096)
	l.push(100, 3)
	require.Equal(t, strategies.Verdict{}, due(l, 1), "nothing is known of the pace")
	l.turn()
	l.push(1, 3)
	// 101 turns until it is taken, one for itself, and 8 are what it takes.
	expired := strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonExpired}
	require.Equal(t, expired, due(l, 109e6))
	require.Equal(t, strategies.Verdict{}, due(l, 110e6))
	l.empty()
	require.Equal(t, strategies.Verdict{}, due(l, 1), "nothing waits")
}
