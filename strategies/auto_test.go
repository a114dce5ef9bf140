package strategies_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"spillway/strategies"
)

// autoModel is what auto does, on a slice of the tasks in the order of their
// arrival.
type autoModel struct {
	waiting                   []autoTask
	capacity, workers         int
	most, stock, least, limit float64
	turns, turned             int64
	pace                      float64
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

func anyTask(autoTask) bool            { return true }
func moreImportant(a, b autoTask) bool { return a.Priority < b.Priority }
func lessImportant(a, b autoTask) bool { return a.Priority > b.Priority }

func (m *autoModel) Push(t *strategies.Task, now int64) strategies.Verdict {
	var v strategies.Verdict
	if n := len(m.waiting); n > 0 && t.Deadline != 0 {
		before := n
		if m.limit < m.most {
			before = 0
			for class := range t.Priority + 1 {
				before += m.newestOf(class)
			}
		}
		if float64(t.Deadline-now) < float64(before+1+m.workers)*m.pace {
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonExpired}
		}
	}
	full := len(m.waiting) == m.capacity
	if full {
		i := m.best(anyTask, lessImportant) // the oldest of them
		if m.waiting[i].Priority < t.Priority {
			return turnedAway
		}
		v.Displaced = m.take(i)
	}
	if len(m.waiting) == 0 {
		m.turned = now
	}
	m.waiting = append(m.waiting, autoTask{t, m.turns, false})
	if full || float64(m.newest()) > m.limit {
		m.limit = max(m.limit*(1-1./128), m.least)
	}
	for float64(m.newest()) > m.limit {
		m.waiting[m.best(func(a autoTask) bool { return !a.out }, lessImportant)].out = true
	}
	return v
}

// newest counts those that were not pushed out.
func (m *autoModel) newest() (n int) {
	for class := range uint8(8) {
		n += m.newestOf(class)
	}
	return n
}

func (m *autoModel) newestOf(class uint8) (n int) {
	for _, t := range m.waiting {
		if !t.out && t.Priority == class {
			n++
		}
	}
	return n
}

func (m *autoModel) Pop(now int64) (*strategies.Task, strategies.Popped, strategies.Reason) {
	stands := m.limit < m.most
	switch {
	case len(m.waiting) == 0:
		m.limit = min(m.limit*(1+1./512), m.most)
		return nil, strategies.Empty, strategies.ReasonNone
	case stands:
		tooOld := func(t autoTask) bool { return m.turns-t.turn > int64(1.5*m.limit) }
		if i := m.best(tooOld, moreImportant); i >= 0 {
			return m.take(i), strategies.Shed, strategies.ReasonCoDel
		}
	}
	next := 0
	if stands {
		next = m.best(anyTask, moreImportant)
	}
	if class := m.waiting[next].Priority; float64(len(m.waiting)) > m.limit {
		next = m.best(func(t autoTask) bool { return t.Priority == class && !t.out }, moreImportant)
		for i, t := range m.waiting {
			if t.Priority == class && t.out && m.newestOf(class) == 0 {
				next = i // until the last
			}
		}
	}
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
	return m.take(next), strategies.Run, strategies.ReasonNone
}

func (m *autoModel) Remove(t *strategies.Task) bool {
	i := slices.IndexFunc(m.waiting, func(a autoTask) bool { return a.Task == t })
	if i >= 0 {
		m.take(i)
	}
	return i >= 0
}

func (m *autoModel) take(i int) *strategies.Task {
	t := m.waiting[i].Task
	m.waiting = slices.Delete(m.waiting, i, i+1)
	return t
}

// line is a queue with one worker's clock, to tell stories by.
type line struct {
	t *testing.T
	q strategies.Discipline
	r strategies.Remover
	// now is in nanoseconds; a turn takes a millisecond.
	now int64
}

func newLine(t *testing.T, workers, capacity int) *line {
	q := lookup(t, "auto").New(strategies.Config{Capacity: capacity, Workers: workers})
	return &line{t: t, q: q, r: q.(strategies.Remover), now: 1}
}

// push pushes n tasks and returns them.
func (l *line) push(n int, priority uint8) []*strategies.Task {
	tasks := make([]*strategies.Task, n)
	for i := range tasks {
		tasks[i] = &strategies.Task{Arrival: l.now, Priority: priority}
		require.Equal(l.t, strategies.Verdict{}, l.q.Push(tasks[i], l.now))
	}
	return tasks
}

// turn takes the next task, a millisecond later, and returns what was given up
// on the way.
func (l *line) turn() (run *strategies.Task, shed []*strategies.Task) {
	l.now += 1e6
	for {
		t, what, reason := l.q.Pop(l.now)
		if what != strategies.Shed {
			return t, shed
		}
		require.Equal(l.t, strategies.ReasonCoDel, reason)
		shed = append(shed, t)
	}
}
