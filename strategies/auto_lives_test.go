//go:build !race

package strategies_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

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
	seen := map[string]int{}
	for seed := range uint64(80) {
		p := autoRun(seed)
		require.Empty(t, p.problem, "autoRun(%d)", seed)
		for what, n := range p.model.seen {
			seen[what] += n
		}
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
		"no dispatch for long", "a stall", "work longer than the objective", "work longer than half of the objective", "interval begun anew",
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
