package strategies_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// line is a queue whose workers take a task each tick, a millisecond. After learn, B is
// what the objective leaves over the work of a worker, in milliseconds.
type line struct {
	t          *testing.T
	q          strategies.Discipline
	objective  *strategies.Objective
	now        int64 // nanoseconds
	tick       int64 // from one dispatch to the next
	dispatches int
	refused    []*strategies.Task
	ran        []*strategies.Task
	spared     int // of those that ran
}

func newLine(t *testing.T, workers int, objective time.Duration) *line {
	l := &line{t: t, objective: new(strategies.Objective), now: 1, tick: 1e6}
	require.NoError(t, l.objective.Set(objective))
	l.q = lookup(t, "auto").New(strategies.Config{Capacity: 4096, Workers: workers, Objective: l.objective})
	return l
}

// come pushes n tasks of a class, and returns them.
func (l *line) come(n, class int) []*strategies.Task {
	tasks := make([]*strategies.Task, n)
	for i := range tasks {
		tasks[i] = &strategies.Task{Arrival: l.now, Submitted: l.now, Priority: strategies.Urgency(class)}
		l.push(tasks[i])
	}
	return tasks
}

func (l *line) push(t *strategies.Task) strategies.Verdict {
	v := l.q.Push(t, l.now)
	switch {
	case v.Reason != strategies.ReasonNone && v.Reason != strategies.ReasonLate || v.Displaced != nil && v.Reason != strategies.ReasonLate:
		require.Fail(l.t, "for another reason", v)
	case v.Displaced != nil:
		l.refused = append(l.refused, v.Displaced)
	case v.Outcome == strategies.TurnedAway:
		l.refused = append(l.refused, t)
	}
	return v
}

// dispatch is to a worker who is free a tick later. It returns what it runs, nil if it found nothing.
func (l *line) dispatch() *strategies.Task {
	l.now += l.tick
	l.dispatches++
	for {
		t, what, reason := l.q.Pop(l.now)
		switch what {
		case strategies.Run:
			l.q.(strategies.TurnObserver).TurnBegan(l.now)
			l.ran = append(l.ran, t)
			if t.WouldShed == strategies.ReasonLate {
				l.spared++
			}
			return t
		case strategies.Shed:
			require.Equal(l.t, strategies.ReasonLate, reason)
			l.refused = append(l.refused, t)
		default:
			return nil
		}
	}
}

// learn has some wait, all of whom fit, until the interval is known.
func (l *line) learn() {
	l.come(2, 3)
	for range 3000 {
		l.come(1, 3)
		l.dispatch()
	}
	require.Empty(l.t, l.refused)
	require.Equal(l.t, "normal", l.state())
	l.ran = nil
}

func (l *line) state() string { return strategies.StateOf(l.q) }

// hold has so many wait, and dispatches one.
func (l *line) hold(n int) {
	l.come(max(0, n-l.q.Len()), 3)
	l.dispatch()
}

// until takes steps until the state is that, and returns how many it took.
func (l *line) until(state string, step func(*line)) int {
	for n := 1; n <= 20_000; n++ {
		if step(l); l.state() == state {
			return n
		}
	}
	require.Fail(l.t, "never "+state)
	return 0
}

// What comes before a dispatch.
func nothing(l *line) { l.dispatch() }
func few(l *line)     { l.hold(90) }
func beyond(l *line)  { l.hold(110) }
func twice(l *line)   { l.come(2, 3); l.dispatch() }
func steady(l *line)  { l.come(1, 3); l.dispatch() }

// The ways to the states, from a queue whose interval is known. A hundred fit.
var ways = map[string]func(*line){
	"normal":    func(*line) {},
	"congested": func(l *line) { l.come(105, 3) },
	"overload":  func(l *line) { l.until("congested", twice); l.until("overload", twice) },
	"probing":   func(l *line) { l.until("congested", twice); l.until("overload", twice); l.until("probing", twice) },
	// Its probing has failed.
	"overload for longer": func(l *line) {
		l.until("overload", twice)
		for range 2200 {
			twice(l)
		}
	},
}

// The table of states in the comment of auto: each row is when one becomes another, or that it
// does not. Four workers take a task each millisecond, and a hundred may wait.
func TestAuto_States(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		proves     string
		from       string
		step       func(*line)
		to         string
		dispatches int // until then; 0 means never in 8,000
	}{
		{"as many as fit are no congestion", "normal", few, "congested", 0},
		{"more than fit are one at once", "normal", beyond, "congested", 1},
		// Five dispatches until no more wait than fit.
		{"congestion is over when no more than fit have waited for 64 dispatches", "congested", few, "normal", 5 + 64 + 1},
		{"congestion that lasts for 512 dispatches is an overload", "congested", beyond, "overload", 512 + 1},
		{"congestion that comes and goes is none", "congested", func(l *line) { l.come(105, 3); l.empty() }, "overload", 0},
		{"an overload is doubted after 2,048 dispatches", "overload", twice, "probing", 2048},
		{"and again after as many, if the last doubt took a sixteenth of that at most", "overload for longer", twice, "probing", 2048 - (2200 - 2048 - 64)},
		{"an overload is over after a probing if few wait", "overload", steady, "normal", 2048 + 1600},
		{"it is when workers have found nothing 256 times", "overload", nothing, "normal", 29 + 256},
		{"what was refused meanwhile counts against that", "overload", func(l *line) { l.come(60, 3); l.empty(); l.dispatch() }, "probing", 59},
		{"so is probing", "probing", nothing, "normal", 36 + 256},
		{"probing has failed when more wait than fit", "probing", twice, "overload", 64},
		{"it has succeeded when no more have for 16 dispatches for each task of B", "probing", steady, "normal", 1601},
	} {
		t.Run(tt.proves, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, 4, 104*time.Millisecond)
			l.learn()
			ways[tt.from](l)
			require.Contains(t, tt.from, l.state())
			if tt.dispatches > 0 {
				got := l.until(tt.to, tt.step)
				require.InDelta(t, tt.dispatches, got, 2)
				return
			}
			for l.dispatches = 0; l.dispatches < 8000; {
				tt.step(l)
				require.NotEqual(t, tt.to, l.state())
			}
		})
	}
}

// empty has workers take all that waits.
func (l *line) empty() {
	for l.q.Len() > 0 {
		l.dispatch()
	}
}

// Congestion has to last for an objective too, where that is longer than 512 dispatches.
func TestAuto_CongestionLastsForAnObjective(t *testing.T) {
	t.Parallel()
	l := newLine(t, 4, 2004*time.Millisecond)
	l.learn()
	l.come(2100, 3)
	require.InDelta(t, 2004, l.until("overload", func(l *line) { l.hold(2100) }), 2)
}

// An overload is over when nothing has happened for 8 dispatches and 3 for each worker, but not
// sooner.
func TestAuto_Quiet(t *testing.T) {
	t.Parallel()
	for after, state := range map[int64]string{19: "overload", 21: "normal"} {
		l := newLine(t, 4, 104*time.Millisecond)
		l.learn()
		ways["overload"](l)
		l.empty()
		l.dispatch()
		l.now += after * 1e6
		l.come(1, 3)
		require.Equal(t, state, l.state(), "after %d dispatches", after)
	}
}

// Whom each state serves next, and whom it refuses. Some ordinary tasks wait, then comes an
// important one, and more ordinary ones.
func TestAuto_WhoIsServedAndWhoIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		proves       string
		way, state   string
		before, more int
		served       string // next: the oldest, or the important one
		wait         int    // those that are not refused
	}{
		{"in the normal state all are served in order of arrival, and none is refused", "normal", "normal", 30, 60, "oldest", 91},
		{"when congested the important go first", "normal", "congested", 60, 50, "important", 111},
		{"the oldest of the least important are refused, beyond 5/4 B", "normal", "congested", 60, 100, "important", 125},
		{"in an overload the important go first, too", "overload", "overload", 30, 60, "important", 91},
		{"as many are refused as when congested", "overload", "overload", 60, 100, "important", 125},
		{"when probing the important go first, too", "probing", "probing", 30, 60, "important", 91},
	} {
		t.Run(tt.proves, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, 4, 104*time.Millisecond)
			l.learn()
			ways[tt.way](l)
			l.empty()
			l.refused = nil
			tasks := l.come(tt.before, 3)
			important := l.come(1, 1)[0]
			tasks = append(tasks, l.come(tt.more, 3)...)
			require.Equal(t, tt.state, l.state())
			require.InDelta(t, tt.wait, l.q.Len(), 1)
			require.Equal(t, tasks[:len(l.refused)], append([]*strategies.Task{}, l.refused...))
			want := important
			if tt.served == "oldest" {
				want = tasks[0]
			}
			require.Same(t, want, l.dispatch())
		})
	}
}

// The least important are refused first, and one of them at the door if no other of them waits.
func TestAuto_ClassesOfImportance(t *testing.T) {
	t.Parallel()
	l := newLine(t, 4, 104*time.Millisecond)
	l.learn()
	l.empty()
	low := l.come(3, 7)
	l.come(140, 1)
	require.Equal(t, low, l.refused[:3])
	require.Equal(t, 1, l.refused[3].Priority.Class())
	one := &strategies.Task{Arrival: l.now, Submitted: l.now, Priority: 7}
	require.Equal(t, late, l.push(one))

	// At twice the load, of which a quarter is important, none of that is refused.
	l.refused, l.ran = nil, nil
	for i := range 4000 {
		l.come(2-i%2, 5)
		l.come(i%2, 1)
		l.dispatch()
	}
	ran := map[int]int{}
	for _, task := range l.ran {
		ran[task.Priority.Class()]++
	}
	for _, task := range l.refused[140:] {
		require.NotEqual(t, 1, task.Priority.Class())
	}
	require.InDelta(t, 2000, ran[1]-125, 30)
}

// In an overload the newest goes first, but the last 24 are served in order, or B/4 if
// that is less.
func TestAuto_NewestFirstBeyondTheFloor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		objective time.Duration
		floor     int
	}{{104 * time.Millisecond, 24}, {44 * time.Millisecond, 10}} {
		l := newLine(t, 4, tt.objective)
		l.learn()
		ways["overload"](l)
		l.empty()
		l.tick = 1e5 // so that nobody is old
		tasks := l.come(34, 3)
		for len(tasks) > 0 {
			next := len(tasks) - 1
			if len(tasks) <= tt.floor {
				next = 0
			}
			require.Same(t, tasks[next], l.dispatch(), "%d wait", len(tasks))
			tasks = slices.Delete(tasks, next, next+1)
		}
	}
}

// In an overload whoever has waited for 36 dispatches is refused, or who can be in time no more.
func TestAuto_RefusesTheOldInAnOverload(t *testing.T) {
	t.Parallel()
	for objective, most := range map[time.Duration]int64{104 * time.Millisecond: 36e6, 24 * time.Millisecond: 20e6} {
		l := newLine(t, 4, objective)
		l.learn()
		ways["overload for longer"](l)
		for l.refused = nil; len(l.refused) < 100; { // those that were not refused meanwhile
			twice(l)
		}
		l.refused = nil
		for range 400 {
			before := len(l.refused)
			twice(l)
			for _, task := range l.refused[before:] {
				require.InDelta(t, most, l.now-task.Arrival, 2e6)
			}
		}
		require.InDelta(t, 400, len(l.refused), 10)
	}
}

var late = strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonLate}

// due pushes a task of a class with so much time left.
func (l *line) due(class int, in int64) strategies.Verdict {
	return l.push(&strategies.Task{Arrival: l.now, Submitted: l.now, Deadline: l.now + in, Priority: strategies.Urgency(class)})
}

// A task's own deadline counts: it is late if it would miss that even newest first, after what is
// more important, at the interval, and what it takes itself.
func TestAuto_OwnDeadline(t *testing.T) {
	t.Parallel()
	const interval, work = 1_000_000, 4_000_000
	for _, tt := range []struct {
		proves string
		way    string
		wait   int // of class 3
		class  int // of the task
		least  int64
	}{
		{"with nothing before it it is late if it takes too long", "normal", 1, 3, interval + work},
		{"those of its class are not before it", "normal", 50, 3, interval + work},
		{"nor those of less important ones", "normal", 50, 1, interval + work},
		{"nor in an overload", "overload", 50, 3, interval + work},
		{"the more important all are", "overload", 50, 4, 51*interval + work},
		{"also in the normal state", "normal", 50, 4, 51*interval + work},
	} {
		t.Run(tt.proves, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, 4, 104*time.Millisecond)
			l.learn()
			ways[tt.way](l)
			l.empty()
			require.Equal(t, strategies.Verdict{}, l.due(3, 1), "nothing waits")
			l.empty()
			require.Equal(t, strategies.Verdict{}, l.due(3, -1e9), "nothing waits")
			l.come(tt.wait-1, 3)
			require.Equal(t, late, l.due(tt.class, tt.least*99/100))
			require.Equal(t, strategies.Verdict{}, l.due(tt.class, tt.least*101/100))
		})
	}
}

// Who would miss his own deadline in order of arrival counts as more than B: he goes first.
func TestAuto_OwnDeadlineIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	l := newLine(t, 4, 104*time.Millisecond)
	l.learn()
	l.come(40, 3)
	urgent := &strategies.Task{Arrival: l.now, Submitted: l.now, Deadline: l.now + 20e6}
	require.Equal(t, strategies.Verdict{}, l.push(urgent))
	task, _, _ := l.q.Pop(l.now)
	require.Same(t, urgent, task)
}

// Before the first dispatch nobody is late, however many wait and for how long.
func TestAuto_NobodyIsLateBeforeTheFirstDispatch(t *testing.T) {
	t.Parallel()
	l := newLine(t, 1, 100*time.Microsecond)
	for range 500 {
		l.come(3, 3)
		require.Equal(t, strategies.Verdict{}, l.due(3, 1))
		l.now += 1e9
	}
	require.Equal(t, 2000, l.q.Len())
}

// While there was no dispatch for an objective, and for 16 times the work, one task for each worker
// may wait. When there is one, it goes on.
func TestAuto_Standstill(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4, 16} {
		objective := time.Duration(100+workers) * time.Millisecond
		l := newLine(t, workers, objective)
		l.learn()
		l.come(20, 3)
		l.now += max(int64(objective), 16*1e6*int64(workers)) * 99 / 100
		l.come(1, 3)
		require.Empty(t, l.refused, "%d workers", workers)
		l.now += int64(objective) / 20
		waiting := l.q.Len()
		l.come(40, 3)
		require.Len(t, l.refused, 40, "each has one refused")
		require.Equal(t, waiting, l.q.Len())
		l.dispatch()
		require.Equal(t, workers-1, l.q.Len(), "and the next dispatch all others")
		l.refused = nil
		for range 1000 {
			l.hold(20)
		}
		require.Empty(t, l.refused)
		require.Equal(t, "normal", l.state())
	}
}

// Where the work alone takes longer than the objective, one task for each worker may wait.
func TestAuto_WorkLongerThanTheObjective(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4, 16} {
		l := newLine(t, workers, time.Millisecond)
		l.tick = 10e6
		for range 200 {
			l.come(3, 3)
			require.NotNil(t, l.dispatch())
		}
		for range 200 {
			l.come(3, 3)
			require.LessOrEqual(t, l.q.Len(), workers)
			require.NotNil(t, l.dispatch(), "workers stay busy")
		}
		if workers == 1 { // normal again with each task
			continue
		}
		l.until("overload", func(l *line) { l.come(3, 3); l.dispatch() })
		last := uint64(0)
		for i := range 200 {
			l.come(workers-l.q.Len(), 3)
			l.refused = nil
			next := l.dispatch()
			require.NotNil(t, next, "nobody is refused for how long he has waited")
			require.Empty(t, l.refused)
			if i >= workers {
				require.Greater(t, next.State.Number, last, "nobody waits for ever")
			}
			last = next.State.Number
		}
	}
}

// Of those that would be refused one in a hundred is served, but at most one in 500 dispatches.
func TestAuto_SparesOneInAHundred(t *testing.T) {
	t.Parallel()
	const dispatches = 20_000
	for _, tt := range []struct {
		come   float64 // for each dispatch
		spared int
	}{
		{1, 0},
		{1.1, dispatches / 1000}, // a hundred are refused in 1,000 dispatches
		{2, dispatches / 500},
		{5, dispatches / 500},
	} {
		l := newLine(t, 4, 104*time.Millisecond)
		l.learn()
		due := 0.0
		for range dispatches {
			for due += tt.come; due >= 1; due-- {
				l.come(1, 3)
			}
			require.NotNil(t, l.dispatch())
		}
		require.InDelta(t, tt.spared, l.spared, 2, "%v for each dispatch", tt.come)
		require.InDelta(t, tt.come*dispatches, len(l.refused)+len(l.ran)+l.q.Len(), 3)
	}
}

// Those who are spared are served when nothing else waits, or when the objective has passed.
func TestAuto_WhenTheSparedAreServed(t *testing.T) {
	t.Parallel()
	isSpared := func(t *strategies.Task) bool { return t.WouldShed != strategies.ReasonNone }
	spare := func() *line {
		l := newLine(t, 4, 104*time.Millisecond)
		l.learn()
		l.come(300, 3) // beside two
		require.Len(t, l.refused, 302-125-1)
		require.Equal(t, 126, l.q.Len())
		return l
	}
	l := spare()
	l.tick = 1e5
	for range 125 {
		require.False(t, isSpared(l.dispatch()))
	}
	require.True(t, isSpared(l.dispatch()), "nothing else waits")

	l = spare()
	for range 103 {
		steady(l)
	}
	require.Zero(t, l.spared)
	steady(l)
	require.Equal(t, 1, l.spared, "the objective has passed")
}

// Under observe nobody is refused, not even at the door: all are served, those that would be refused
// last.
func TestAuto_ObserveShedsNothing(t *testing.T) {
	t.Parallel()
	for _, load := range []int{1, 2, 3} {
		q := lookup(t, "auto").New(strategies.Config{Capacity: 100_000, Workers: 4, Observe: true, Objective: objectiveOf(t, 24*time.Millisecond)})
		now, late := int64(1), 0
		for range 10_000 {
			for range load {
				require.Zero(t, q.Push(&strategies.Task{Arrival: now, Deadline: now + 1}, now))
			}
			now += 1e6
			task, what, _ := q.Pop(now)
			require.Equal(t, strategies.Run, what)
			require.Equal(t, strategies.ReasonNone, task.WouldShed, "whoever drives it knows when it is answered")
			q.(strategies.TurnObserver).TurnBegan(now)
			if now-task.Arrival > 24e6 {
				late++
			}
		}
		require.Equal(t, (load-1)*10_000, q.Len())
		require.Less(t, late, 100, "those that would not be refused are in time")
	}
}

// Under observe what would be refused makes room for what would not.
func TestAuto_ObserveAtTheCapacity(t *testing.T) {
	t.Parallel()
	q := lookup(t, "auto").New(strategies.Config{Capacity: 100, Workers: 1, Observe: true, Objective: objectiveOf(t, 31*time.Millisecond)})
	now := int64(1)
	displaced := 0
	for range 5000 {
		for range 2 {
			v := q.Push(&strategies.Task{Arrival: now}, now)
			require.Equal(t, strategies.Queued, v.Outcome)
			if v.Displaced != nil {
				require.Equal(t, strategies.ReasonDisplaced, v.Displacement())
				displaced++
			}
		}
		now += 1e6
		task, _, _ := q.Pop(now)
		require.LessOrEqual(t, now-task.Arrival, int64(60e6))
		q.(strategies.TurnObserver).TurnBegan(now)
	}
	require.InDelta(t, 5000-100, displaced, 1)
}

func objectiveOf(t *testing.T, d time.Duration) *strategies.Objective {
	t.Helper()
	o := new(strategies.Objective)
	require.NoError(t, o.Set(d))
	return o
}

// With no objective nobody is refused, whatever comes, and all are served in order; also from the
// midst of an overload on, and until there is one again.
func TestAuto_NoObjective(t *testing.T) {
	t.Parallel()
	l := newLine(t, 4, strategies.NoObjective)
	tasks := l.come(4000, 3)
	for _, want := range tasks {
		require.Same(t, want, l.dispatch())
	}
	require.Empty(t, l.refused)

	for way := range ways {
		l := newLine(t, 4, 104*time.Millisecond)
		l.learn()
		ways[way](l)
		require.NoError(t, l.objective.Set(strategies.NoObjective))
		l.refused = nil
		last := int64(0)
		for range 2000 {
			twice(l)
			if task := l.ran[len(l.ran)-1]; task.WouldShed == strategies.ReasonNone {
				require.GreaterOrEqual(t, task.Arrival, last)
				last = task.Arrival
			}
		}
		require.Empty(t, l.refused, way)
		require.Equal(t, "normal", l.state())
		require.Zero(t, l.q.(strategies.Measurer).Measured().Limit)
		require.NoError(t, l.objective.Set(104*time.Millisecond))
		twice(l)
		require.NotEmpty(t, l.refused, way)
		require.InDelta(t, 124, l.q.Len(), 2)
	}
}

// A burst that fits, and a closed loop that does, are served in order, and nobody is refused.
func TestAuto_WhatFitsIsLeftInPeace(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		name string
		step func(*line) []*strategies.Task // that come
	}{
		{"bursts", func(l *line) []*strategies.Task {
			if l.q.Len() == 0 {
				l.dispatch()
				return l.come(99, 3)
			}
			return nil
		}},
		{"a closed loop", func(l *line) []*strategies.Task { return l.come(99-l.q.Len(), 3) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, 4, 104*time.Millisecond)
			l.learn()
			l.empty()
			var waiting []*strategies.Task
			for range 10_000 {
				waiting = append(waiting, step.step(l)...)
				require.Same(t, waiting[0], l.dispatch())
				waiting = waiting[1:]
			}
			require.Empty(t, l.refused)
		})
	}
}

// A closed loop whose refused clients come again at once was too large, and shrinks: it is left
// in peace after the next probing.
func TestAuto_AClosedLoopThatShrinks(t *testing.T) {
	t.Parallel()
	l := newLine(t, 4, 104*time.Millisecond)
	l.learn()
	loop := func(clients int) func(*line) {
		back := 0
		return func(l *line) {
			n := clients - l.q.Len() - back
			back = 0
			refused := len(l.refused)
			l.come(max(0, n), 3)
			l.dispatch()
			back = len(l.refused) - refused // they come before the next dispatch
		}
	}
	l.until("overload", loop(300))
	small := loop(80)
	dispatches := l.until("normal", small)
	require.LessOrEqual(t, dispatches, 2048+1600+64)
	l.refused, l.ran = nil, nil
	for range 5000 {
		small(l)
	}
	require.Empty(t, l.refused)
	for i, task := range l.ran[1:] {
		require.GreaterOrEqual(t, task.Arrival, l.ran[i].Arrival)
	}
}

// A clock that jumps, forth or back, is survived: soon all that fit are served again.
func TestAuto_AClockThatJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{3 * time.Hour, -3 * time.Hour, time.Minute, -time.Minute} {
		for way := range ways {
			l := newLine(t, 4, 104*time.Millisecond)
			l.learn()
			ways[way](l)
			l.now += int64(jump)
			dispatches := 0
			for last := 0; dispatches < 20_000 && dispatches-last < 2000; dispatches++ {
				refused := len(l.refused)
				l.hold(20)
				if len(l.refused) > refused {
					last = dispatches
				}
			}
			t.Logf("%v, %s: %d dispatches", jump, way, dispatches-2000)
			require.Less(t, dispatches-2000, 3000, "%v, %s", jump, way)
			require.Equal(t, 19, l.q.Len())
			require.InDelta(t, 1e6, l.q.(strategies.Measurer).Measured().Pace, 5e5)
		}
	}
}

// Tasks without an arrival, without an end, or with one that no clock shows.
func TestAuto_OddTasks(t *testing.T) {
	t.Parallel()
	odd := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, int64(time.Hour)}
	for _, observe := range []bool{false, true} {
		q := lookup(t, "auto").New(strategies.Config{Workers: -1, Capacity: -1, Observe: observe, Objective: objectiveOf(t, time.Millisecond)})
		require.Equal(t, 1, q.Cap())
		q = lookup(t, "auto").New(strategies.Config{Workers: 0, Capacity: 100, Observe: observe})
		given, taken := 0, 0
		note := func(task *strategies.Task) {
			if task != nil {
				taken++
			}
		}
		for range 20 {
			for _, now := range odd {
				for _, arrival := range odd {
					for _, deadline := range odd {
						given++
						task := &strategies.Task{Arrival: arrival, Submitted: arrival, Deadline: deadline, Priority: strategies.Priority(given)}
						v := q.Push(task, now)
						if note(v.Displaced); v.Outcome != strategies.Queued {
							taken++
						}
						if given%3 == 0 {
							popped, _, _ := q.Pop(now)
							note(popped)
							q.(strategies.TurnObserver).TurnBegan(now)
						}
					}
				}
				q.(strategies.Resizer).Resize(int(now % 100))
			}
		}
		require.Equal(t, given, taken+q.Len(), "none is lost")
	}
}

// A task without an arrival has waited since the clock began: in an overload it is refused.
func TestAuto_ATaskWithoutAnArrivalIsOld(t *testing.T) {
	t.Parallel()
	l := newLine(t, 4, 104*time.Millisecond)
	l.learn()
	ways["overload"](l)
	l.empty()
	l.refused = nil
	task := new(strategies.Task)
	require.Equal(t, late, l.push(task))
	require.Equal(t, []*strategies.Task{task}, l.refused)
}
