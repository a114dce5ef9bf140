package strategies_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/spillway-go/spillway/strategies"
)

// autoModel is what auto does, on a slice of the tasks in the order of their arrival. It
// notes in seen what it came by.
type autoModel struct {
	waiting   []*strategies.Task
	spared    []*strategies.Task // in the order in which they would have been refused
	capacity  int
	workers   int
	observe   bool
	objective *strategies.Objective

	state                  string
	began                  int64 // the time at which it was congested
	entered                int64 // the dispatch of the last change
	exceeded               int64 // the last dispatch with more than fit
	idle                   int   // found nothing, less refused
	dispatches, dispatched int64
	probeAfter             int64 // how long an overload lasts until the next probing
	empty                  int64 // when nothing was found
	popped                 int
	interval, recent       float64
	samples                float64
	refusals               int
	sparedAt               int64
	takes                  float64 // how long a task takes, where that is known
	shares                 float64 // of how many this is one, there
	seen                   map[string]int
}

func newAutoModel(c strategies.Config) strategies.Discipline {
	m := &autoModel{
		capacity: max(1, c.Capacity), workers: max(1, c.Workers), observe: c.Observe, objective: c.Objective,
		state: "normal", seen: map[string]int{},
	}
	if m.objective == nil {
		m.objective = new(strategies.Objective)
	}
	return m
}

func (m *autoModel) Len() int           { return len(m.waiting) + len(m.spared) }
func (m *autoModel) Cap() int           { return m.capacity }
func (m *autoModel) Resize(workers int) { m.workers = max(1, workers) }

// oldest returns the index of the oldest of the least important.
func (m *autoModel) oldest() int {
	worst := 0
	for i, t := range m.waiting {
		if t.Priority.Class() > m.waiting[worst].Priority.Class() {
			worst = i
		}
	}
	return worst
}

func (m *autoModel) service() float64 {
	if m.takes != 0 {
		return m.takes
	}
	return m.interval * float64(m.workers)
}

func (m *autoModel) limits(now int64) (limit, most, age float64) {
	objective, workers := float64(m.objective.InForce()), float64(m.workers)
	left := objective - m.service()
	switch {
	case m.interval == 0: // nothing is known
		return float64(m.capacity), float64(m.capacity), objective
	case float64(now-m.dispatched) > max(objective, 16*workers*m.interval):
		m.seen["no dispatch for long"]++
		return workers, workers, objective
	case m.samples < 64+4*workers: // not much is known
		limit = max(left/m.interval, workers)
		return limit, max(3*limit, 40), objective
	case left <= 0:
		m.seen["work longer than the objective"]++
		return workers, workers, math.Inf(1)
	case left < m.service():
		m.seen["work longer than half of the objective"]++
		return workers, workers, left
	}
	limit = max(left/m.interval, workers)
	return limit, max(1.25*limit, 40), min(left, 36*m.interval)
}

func (m *autoModel) enter(state, why string) {
	m.seen[m.state+" to "+state+why]++
	m.state, m.entered = state, m.dispatches
}

// late moves on to the present state, and returns the index of a task that is late, or -1.
// Tight says that the task just pushed misses its own deadline in order of arrival.
func (m *autoModel) late(tight bool, now int64) int {
	if len(m.waiting) == 0 {
		return -1
	}
	objective := int64(m.objective.InForce())
	if objective == 0 {
		if m.state != "normal" {
			m.enter("normal", ", no objective")
		}
		return -1
	}
	limit, most, age := m.limits(now)
	fits := float64(len(m.waiting)) <= limit && !tight
	if !fits {
		m.exceeded = m.dispatches
	}
	lasted := m.dispatches - m.entered
	switch {
	case m.state == "normal" && !fits:
		m.enter("congested", "")
		m.began = now
	case m.state == "congested" && fits && m.dispatches-m.exceeded >= int64(min(64, limit)):
		m.enter("normal", "")
	case m.state == "congested" && float64(lasted)*max(1, m.shares) >= 512 && now-m.began >= objective:
		m.enter("overload", "")
		m.idle, m.probeAfter = 0, 2048
	case m.state == "overload" && lasted >= m.probeAfter:
		m.enter("probing", "")
	case m.state == "probing" && !fits:
		m.enter("overload", "")
		m.probeAfter = min(max(16*lasted, 2048), 8192)
	case m.state == "probing" && float64(lasted) >= 16*limit:
		m.enter("normal", "")
	}
	i := m.oldest()
	switch {
	case m.state == "normal":
		return -1
	case float64(len(m.waiting)) > most:
		m.seen["late, too many, "+m.state]++
		return i
	case m.state == "overload" && float64(now-m.waiting[i].Arrival) > age:
		m.seen["late, too old"]++
		return i
	}
	return -1
}

// refuse takes the task at i out, and reports whether it is refused: it may be spared.
func (m *autoModel) refuse(i int) (t *strategies.Task, refused bool) {
	t = m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	m.refusals++
	m.idle = max(0, m.idle-1)
	if !m.observe && (m.refusals < 100 || m.dispatches-m.sparedAt < 500) {
		return t, true
	}
	m.seen[fmt.Sprintf("spared, observe %t", m.observe)]++
	m.refusals, m.sparedAt = 0, m.dispatches
	m.spared = append(m.spared, t)
	return t, false
}

// misses reports whether t would miss its own deadline if so many went before it.
func (m *autoModel) misses(t *strategies.Task, before int, now int64) bool {
	return t.Deadline != 0 && len(m.waiting) > 0 && m.objective.InForce() != 0 && float64(t.Deadline-now) < float64(before+1)*m.interval+m.service()
}

func (m *autoModel) Push(t *strategies.Task, now int64) strategies.Verdict {
	if m.Len() == 0 {
		if m.empty != 0 && float64(now-m.empty) > float64(8+3*m.workers)*m.interval {
			m.seen[m.state+" to normal, quiet"]++
			m.state = "normal"
		}
		m.dispatched, m.empty = now, 0
	}
	important := 0
	for _, w := range m.waiting {
		if w.Priority.Class() < t.Priority.Class() {
			important++
		}
	}
	tight := m.misses(t, len(m.waiting), now)
	if !m.observe && m.misses(t, important, now) {
		m.seen["late by its own deadline, "+m.state]++
		return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonLate}
	}
	var v strategies.Verdict
	if m.Len() == m.capacity {
		if len(m.spared) > 0 {
			m.seen["full, of the spared"]++
			v.Displaced = m.spared[0]
			m.spared = slices.Delete(m.spared, 0, 1)
		} else {
			i := m.oldest()
			if m.waiting[i].Priority.Class() < t.Priority.Class() {
				m.seen["full, turned away"]++
				return turnedAway
			}
			m.seen["full, displaced"]++
			v.Displaced = m.waiting[i]
			m.waiting = slices.Delete(m.waiting, i, i+1)
		}
	}
	m.waiting = append(m.waiting, t)
	i := m.late(tight, now)
	if v.Displaced != nil || i < 0 {
		return v
	}
	switch late, refused := m.refuse(i); {
	case !refused:
	case late == t:
		m.seen["late, itself"]++
		return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonLate}
	default:
		return strategies.Verdict{Displaced: late, Reason: strategies.ReasonLate}
	}
	return v
}

func (m *autoModel) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	for i := m.late(false, now); i >= 0; i = m.late(false, now) {
		if t, refused := m.refuse(i); refused {
			return t, strategies.Shed, strategies.ReasonLate
		}
	}
	if len(m.waiting)+len(m.spared) == 0 {
		m.dispatched, m.empty = now, now
		m.idle++
		if m.idle >= 256 {
			if m.state != "normal" {
				m.seen[m.state+" to normal, idle"]++
			}
			m.state = "normal"
		}
		return nil, strategies.Empty, strategies.ReasonNone
	}
	m.popped++
	spared := len(m.spared) > 0 && !m.observe && now-m.spared[0].Arrival >= int64(m.objective.InForce())
	if spared || len(m.waiting) == 0 {
		t := m.spared[0]
		m.spared = slices.Delete(m.spared, 0, 1)
		return t, strategies.Run, strategies.ReasonNone
	}
	i := m.next(now)
	t := m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	return t, strategies.Run, strategies.ReasonNone
}

// next returns the index of the task to be served next.
func (m *autoModel) next(now int64) int {
	if m.state == "normal" {
		return 0
	}
	limit, _, age := m.limits(now)
	newest := float64(len(m.waiting)) > min(24, limit/4) && !math.IsInf(age, 1)
	best := 0
	for i, t := range m.waiting {
		class := m.waiting[best].Priority.Class()
		if t.Priority.Class() < class || t.Priority.Class() == class && newest {
			best = i
		}
	}
	return best
}

func (m *autoModel) TurnBegan(now int64) {
	if m.popped == 0 {
		return
	}
	took, n, workers := float64(max(now-m.dispatched, 1)), float64(m.popped), float64(m.workers)
	m.dispatched, m.popped = now, 0
	m.dispatches++
	last := 64 + 4*workers
	if m.samples >= last && took > 16*workers*m.interval {
		m.seen["a stall"]++
		took = 16 * workers * m.interval
	}
	m.samples = min(m.samples+n, 512+16*workers)
	m.interval += (took - n*m.interval) / max(m.samples, workers)
	m.recent += (took - n*m.recent) / max(min(m.samples, last), workers, n)
	if m.samples >= 2*last && (m.recent > 3*m.interval || m.recent*3 < m.interval) {
		m.seen["interval begun anew"]++
		m.interval, m.samples = m.recent, last
	}
}

func (m *autoModel) Remove(t *strategies.Task) bool {
	before := m.Len()
	is := func(a *strategies.Task) bool { return a == t }
	m.waiting, m.spared = slices.DeleteFunc(m.waiting, is), slices.DeleteFunc(m.spared, is)
	if m.Len() < before && t.Deadline != 0 {
		m.exceeded, m.idle = m.dispatches, max(0, m.idle-1)
	}
	return m.Len() < before
}

func (m *autoModel) Measured() strategies.Measured {
	out := strategies.Measured{Pace: int64(m.interval)}
	if m.interval != 0 && m.objective.InForce() != 0 {
		_, most, _ := m.limits(m.dispatched)
		out.Limit = int(min(most, float64(m.capacity)))
	}
	return out
}
