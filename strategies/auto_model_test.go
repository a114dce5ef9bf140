package strategies_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	case left < m.service():
		m.seen["work longer than the objective"]++
		return workers, workers, math.Inf(1)
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

// pair is auto and its model under the same calls.
type pair struct {
	auto    strategies.Discipline
	model   *autoModel
	of      map[*strategies.Task]*strategies.Task // the model's, by auto's
	tasks   []*strategies.Task                    // that wait
	now     int64
	problem string
}

func newPair(c strategies.Config) *pair {
	spec, _ := strategies.Lookup("auto")
	return &pair{auto: spec.New(c), model: newAutoModel(c).(*autoModel), of: map[*strategies.Task]*strategies.Task{}, now: 1}
}

// same notes a problem unless auto's answer is the model's.
func (p *pair) same(call string, got, want any, task, model *strategies.Task) {
	if task != nil {
		p.tasks = slices.DeleteFunc(p.tasks, func(a *strategies.Task) bool { return a == task })
	}
	state := strategies.StateOf(p.auto)
	measured := p.auto.(strategies.Measurer).Measured()
	if p.problem == "" && (got != want || p.of[task] != model || p.auto.Len() != p.model.Len() || state != p.model.state || measured != p.model.Measured()) {
		p.problem = fmt.Sprintf("%s: %v (%s, %d wait, %+v), the model says %v (%s, %d wait, %+v)",
			call, got, state, p.auto.Len(), measured, want, p.model.state, p.model.Len(), p.model.Measured())
	}
	delete(p.of, task)
}

func (p *pair) push(priority strategies.Priority, deadline int64) {
	task := func() *strategies.Task {
		return &strategies.Task{Arrival: p.now, Submitted: p.now, Priority: priority, Deadline: deadline}
	}
	a, b := task(), task()
	p.of[a] = b
	p.tasks = append(p.tasks, a)
	v, w := p.auto.Push(a, p.now), p.model.Push(b, p.now)
	got, want := fmt.Sprint(v.Outcome, v.Reason), fmt.Sprint(w.Outcome, w.Reason)
	p.same("push", got, want, v.Displaced, w.Displaced)
	if v.Outcome != strategies.Queued {
		p.tasks = slices.DeleteFunc(p.tasks, func(t *strategies.Task) bool { return t == a })
		delete(p.of, a)
	}
}

// turn pops up to n tasks, and begins a turn if there were any.
func (p *pair) turn(n int) {
	for range n {
		for {
			t, what, reason := p.auto.Pop(p.now)
			u, what2, reason2 := p.model.Pop(p.now)
			p.same("pop", fmt.Sprint(what, reason), fmt.Sprint(what2, reason2), t, u)
			if what != strategies.Shed {
				break
			}
		}
	}
	p.auto.(strategies.TurnObserver).TurnBegan(p.now)
	p.model.TurnBegan(p.now)
	p.same("turn", "", "", nil, nil)
}

func (p *pair) remove(i int) {
	t := p.tasks[i%len(p.tasks)]
	p.same("remove", p.auto.(strategies.Remover).Remove(t), p.model.Remove(p.of[t]), t, p.of[t])
}

// life is a random one of a queue.
type life struct {
	*pair
	random    *rand.Rand
	objective *strategies.Objective
	within    time.Duration
	interval  int64 // nanoseconds from one dispatch to the next
	limit     int   // about so many fit
	events    bool  // all that may happen now and then
	due       float64
}

func (l *life) one(of ...int) int { return of[l.random.IntN(len(of))] }

// autoRun is times of much and of little load. Without events, every fourth life, it is one in
// which each state lasts.
func autoRun(seed uint64) *pair {
	l := &life{random: rand.New(rand.NewPCG(seed, 0)), objective: new(strategies.Objective)}
	c := strategies.Config{
		Capacity: l.one(3, 50, 500), Workers: l.one(1, 2, 8), Observe: l.random.IntN(4) == 0, Objective: l.objective,
	}
	if l.events = seed%4 != 0; !l.events {
		c.Capacity = 500
	}
	l.pair = newPair(c)
	l.interval = int64(l.one(1_000, 100_000, 1_000_000))
	l.limit = l.one(2, 20, 60, 200)
	l.within = time.Duration(max(100_000, l.interval*int64(l.limit+c.Workers)))
	_ = l.objective.Set(l.within)
	if l.events {
		for range 10 {
			l.load([]float64{0, 0.3, 0.9, 1, 1.1, 2, 5}[l.random.IntN(7)], l.one(10, 100, 500))
		}
		return l.pair
	}
	l.load(1.5, 1500)
	if l.random.IntN(3) == 0 {
		l.load(1, 9_000) // as many come as go
	}
	for l.auto.Len() > 0 {
		l.load(0, 1)
	}
	l.load(0, 1)
	l.now += int64(l.one(1, 100)) * l.interval // nothing happens
	l.load(1.5, 1500)
	l.load(400, 1)
	if l.random.IntN(2) == 0 {
		_ = l.objective.Set(strategies.NoObjective)
		l.load(1.5, 20)
		_ = l.objective.Set(l.within)
	}
	l.load(0.5, 1500)
	return l.pair
}

func (l *life) load(load float64, turns int) {
	for range turns {
		if l.events {
			l.due += load * 2 * l.random.Float64()
		} else {
			l.due += load
		}
		for ; l.due >= 1; l.due-- {
			priority, deadline := strategies.Ordinary, int64(0)
			if l.events {
				priority = strategies.Urgency(l.one(3, 3, 3, 1, 7))
				deadline = []int64{0, 0, l.now + l.interval*int64(1+l.random.IntN(2*l.limit)), l.now + int64(time.Hour)}[l.random.IntN(4)]
			}
			l.push(priority, deadline)
			l.now += l.random.Int64N(l.interval/10 + 1)
		}
		l.now += l.random.Int64N(l.interval)
		l.turn(1)
		if l.events {
			l.happens()
		}
	}
}

// happens is what may happen after a dispatch.
func (l *life) happens() {
	switch l.random.IntN(400) {
	case 0: // several are taken at once
		l.turn(1 + l.random.IntN(5))
	case 1, 2, 3, 4:
		if len(l.tasks) > 0 {
			l.remove(l.random.IntN(len(l.tasks)))
		}
	case 5:
		_ = l.objective.Set(strategies.NoObjective)
	case 6:
		_ = l.objective.Set(0)
		l.objective.Answered(l.interval)
	case 7, 8:
		_ = l.objective.Set(l.within)
	case 9:
		n := l.one(1, 2, 8)
		l.auto.(strategies.Resizer).Resize(n)
		l.model.Resize(n)
	case 10: // no dispatch
		l.now += 100 * l.interval
	case 11: // the clock jumps, and back
		l.now += int64(l.one(-1, 1)) * int64(3*time.Hour)
	case 12: // work takes longer, or less
		l.interval = max(1000, l.interval*int64(l.one(1, 20))/int64(l.one(1, 20)))
	}
}

// In random lives auto answers, measures and judges as the model does, step by step, and comes
// by all that there is.
func TestAuto_DoesAsItsModel(t *testing.T) {
	t.Parallel()
	runs := uint64(80)
	if testing.Short() {
		runs = 60
	}
	seen := map[string]int{}
	for seed := range runs {
		p := autoRun(seed)
		require.Empty(t, p.problem, "autoRun(%d)", seed)
		for what, n := range p.model.seen {
			seen[what] += n
		}
	}
	if testing.Short() {
		return
	}
	for _, what := range []string{
		"normal to congested",
		"congested to normal", "congested to overload", "congested to normal, no objective",
		"overload to probing", "overload to normal, idle", "overload to normal, quiet", "overload to normal, no objective",
		"probing to overload", "probing to normal",
		"late, too many, congested", "late, too many, overload", "late, too old", "late, itself",
		"late by its own deadline, normal", "late by its own deadline, overload",
		"full, turned away", "full, displaced", "full, of the spared",
		"spared, observe true", "spared, observe false",
		"no dispatch for long", "a stall", "work longer than the objective", "interval begun anew",
	} {
		require.Positive(t, seen[what], "%s: never, of %v", what, seen)
	}
}

// FuzzAuto lets any seed be one of autoRun.
func FuzzAuto(f *testing.F) {
	f.Add(uint64(0))
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		require.Empty(t, autoRun(seed).problem)
	})
}
