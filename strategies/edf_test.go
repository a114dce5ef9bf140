package strategies_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// inOrder is the model of a queue that serves tasks in an order of their own,
// and holds the first of them: when there is no room, the last makes it.
type inOrder struct {
	capacity int
	compare  func(a, b *strategies.Task) int
	waiting  []*strategies.Task
}

func (m *inOrder) Push(t *strategies.Task, _ int64) strategies.Verdict {
	m.waiting = append(m.waiting, t)
	slices.SortStableFunc(m.waiting, m.compare)
	if len(m.waiting) <= m.capacity {
		return strategies.Verdict{}
	}
	last := m.waiting[m.capacity]
	m.waiting = m.waiting[:m.capacity]
	if last == t {
		return turnedAway
	}
	return strategies.Verdict{Displaced: last}
}

func (m *inOrder) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if len(m.waiting) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	first := m.waiting[0]
	m.waiting = m.waiting[1:]
	return first, strategies.Run, strategies.ReasonNone
}

func (m *inOrder) Remove(t *strategies.Task) bool {
	i := slices.Index(m.waiting, t)
	if i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
	return i >= 0
}

func (m *inOrder) Len() int { return len(m.waiting) }
func (m *inOrder) Cap() int { return m.capacity }

// edfModel is the model of edf, for service times that do not change.
type edfModel struct {
	inOrder
	workers int
	service int64
}

func newEDFModel(c strategies.Config) strategies.Discipline {
	return &edfModel{workers: c.Workers, inOrder: inOrder{capacity: c.Capacity, compare: byDeadline}}
}

func byDeadline(a, b *strategies.Task) int {
	due := func(t *strategies.Task) int64 {
		if t.Deadline == 0 {
			return t.Arrival + int64(time.Hour)
		}
		return t.Deadline
	}
	return cmp.Compare(due(a), due(b))
}

func (m *edfModel) Push(t *strategies.Task, now int64) strategies.Verdict {
	if m.service > 0 && t.Deadline != 0 && len(m.waiting) > 0 {
		taken := 1
		for _, w := range m.waiting {
			if byDeadline(w, t) <= 0 {
				taken++
			}
		}
		if now+m.service+2*int64(taken)*m.service/int64(m.workers) > t.Deadline {
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonLate}
		}
	}
	return m.inOrder.Push(t, now)
}

func (m *edfModel) Completed(_, service, _ int64) { m.service = service }

func newEDF(t *testing.T, capacity, workers int) strategies.Discipline {
	return lookup(t, "edf").New(strategies.Config{Capacity: capacity, Workers: workers})
}

func due(name string, arrival, deadline time.Duration) *strategies.Task {
	return &strategies.Task{Owner: name, Arrival: int64(arrival), Deadline: int64(deadline)}
}

func TestEDF_WhoMakesRoom(t *testing.T) {
	t.Parallel()
	q := newEDF(t, 3, 1)
	for _, push := range []struct {
		task *strategies.Task
		want string
	}{
		{due("none", 1, 0), "queued"},
		{due("9s", 1, 9*time.Second), "queued"},
		{due("second none", 2, 0), "queued"},
		// The latest deadline makes room, and it is later to have none.
		{due("third none", 3, 0), "full"},
		{due("5s", 4, 5*time.Second), "second none displaced"},
		{due("hour", 5, time.Hour), "none displaced"},
		{due("9s later", 6, 9*time.Second), "hour displaced"},
		{due("9s last", 7, 9*time.Second), "full"},
		{due("10s", 7, 10*time.Second), "full"},
	} {
		require.Equal(t, push.want, verdict(q.Push(push.task, push.task.Arrival)), push.task.Owner)
	}
	require.Equal(t, []string{"5s", "9s", "9s later"}, popAll(t, q, 8))
}

// Many tasks, in the order in which they are due, whichever are removed.
func TestEDF_LongQueue(t *testing.T) {
	t.Parallel()
	const n = 20_000
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, tc := range []struct {
		name     string
		deadline func(i int) int64
	}{
		{"ascending", func(i int) int64 { return int64(1 + i) }},
		{"descending", func(i int) int64 { return int64(1 + n - i) }},
		{"equal", func(int) int64 { return 1 }},
		{"random", func(int) int64 { return 1 + rng.Int64N(n/4) }},
	} {
		q := newEDF(t, n, 1)
		tasks, want := make([]*strategies.Task, n), []string(nil)
		for i := range tasks {
			tasks[i] = due(strconv.Itoa(i), 0, time.Duration(tc.deadline(i)))
			require.Equal(t, "queued", verdict(q.Push(tasks[i], 0)))
		}
		sorted := slices.Clone(tasks)
		slices.SortStableFunc(sorted, byDeadline)
		for i, task := range sorted {
			if rng.IntN(2) == 0 {
				require.True(t, q.(strategies.Remover).Remove(task))
			} else {
				want = append(want, sorted[i].Owner.(string))
			}
		}
		require.Equal(t, want, popAll(t, q, 0), "%s, seed %d", tc.name, seed)
	}
}

const ms = time.Millisecond

// learn has q learn a service time from so many completions.
func learn(q strategies.Discipline, service time.Duration, completions int) {
	for range completions {
		q.(strategies.CompletionObserver).Completed(0, int64(service), 0)
	}
}

// admits reports whether q takes a task with that time left, while others wait.
func admits(q strategies.Discipline, left time.Duration) bool {
	t := due("", 0, left)
	v := q.Push(t, 0)
	return v.Outcome == strategies.Queued && q.(strategies.Remover).Remove(t)
}

// The door: 4 ms a task, 2 workers, and so many tasks before.
func TestEDF_RefusesWhatCannotBeDone(t *testing.T) {
	t.Parallel()
	q := newEDF(t, 100, 2)
	require.True(t, admits(q, 1), "nothing is known and nothing waits")
	for i := range 10 {
		require.Equal(t, "queued", verdict(q.Push(due("", 0, time.Duration(100+i)*ms), 0)))
	}
	require.True(t, admits(q, 1), "nothing is known")
	learn(q, 4*ms, 1)
	for _, tc := range []struct {
		left time.Duration
		want bool
	}{
		// Before all others: itself, twice over, and its own time.
		{8 * ms, true}, {8*ms - 1, false},
		// Behind five of them: 2 * 6 * 4 ms / 2 + 4 ms.
		{104 * ms, true},
		// Behind all: enough.
		{time.Minute, true},
	} {
		require.Equal(t, tc.want, admits(q, tc.left), tc.left)
	}
	v := q.Push(due("", 0, ms), 0)
	require.Equal(t, strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonLate}, v)
	require.Equal(t, "queued", verdict(q.Push(due("none", 0, 0), 0)), "what has no deadline is in time")
	for range 80 {
		q.Push(due("", 0, 50*ms), 0)
	}
	require.Equal(t, 11+11, q.Len(), "as many as can be done until then")
}

// However wrong the mean is, it is learnt anew, because something is let in.
func TestEDF_DoesNotGetStuck(t *testing.T) {
	t.Parallel()
	q := newEDF(t, 100, 2)
	learn(q, math.MaxInt64, 100)
	turns := 0
	for ; !admitsSecond(t, q, 10*ms); turns++ {
		require.Less(t, turns, 2000)
		require.Equal(t, "queued", verdict(q.Push(due("", 0, ms), 0)), "nothing waits")
		require.Equal(t, []string{""}, popAll(t, q, 0))
		learn(q, ms, 1)
	}
	require.Positive(t, turns)
}

func admitsSecond(t *testing.T, q strategies.Discipline, left time.Duration) bool {
	t.Helper()
	first := due("", 0, 0)
	require.Equal(t, "queued", verdict(q.Push(first, 0)))
	defer q.(strategies.Remover).Remove(first)
	return admits(q, left)
}

// The mean follows the work, and not single ones that are unlike the others.
func TestEDF_LearnsTheServiceTime(t *testing.T) {
	t.Parallel()
	needed := func(q strategies.Discipline) time.Duration { // of one worker: 3 times the mean
		left := time.Duration(1)
		for !admitsSecond(t, q, left) {
			left += left/50 + 1
		}
		return left / 3
	}
	for _, tc := range []struct {
		about    string
		learn    func(q strategies.Discipline)
		from, to time.Duration
	}{
		{"steady", func(strategies.Discipline) {}, 3900 * time.Microsecond, 4100 * time.Microsecond},
		{"a few health checks", func(q strategies.Discipline) { learn(q, 10*time.Microsecond, 3) }, 3500 * time.Microsecond, 4 * ms},
		{"one that hung", func(q strategies.Discipline) { learn(q, time.Minute, 1) }, 4 * ms, 6 * ms},
		{"eight that hung, and a tenth of a second after", func(q strategies.Discipline) { learn(q, time.Minute, 8); learn(q, 4*ms, 200) }, 4 * ms, 5 * ms},
		{"ten times slower for good", func(q strategies.Discipline) { learn(q, 40*ms, 100) }, 35 * ms, 41 * ms},
		{"ten times faster for good", func(q strategies.Discipline) { learn(q, ms*4/10, 100) }, ms * 4 / 10, ms * 6 / 10},
		{"no time at all", func(q strategies.Discipline) { learn(q, 0, 1000) }, 0, 10 * time.Microsecond},
	} {
		q := newEDF(t, 10, 1)
		learn(q, 4*ms, 100)
		tc.learn(q)
		got := needed(q)
		require.GreaterOrEqual(t, got, tc.from, tc.about)
		require.LessOrEqual(t, got, tc.to, tc.about)
	}
}

// TestEDF_LearnsFromAServiceTimeOfZero: a clock may be too coarse for what is quick.
func TestEDF_LearnsFromAServiceTimeOfZero(t *testing.T) {
	t.Parallel()
	for _, first := range []time.Duration{0, 1, 2} {
		q := newEDF(t, 10, 1)
		learn(q, first, 1)
		learn(q, 4*time.Millisecond, 400)
		require.InEpsilon(t, int64(4*time.Millisecond), q.(strategies.Measurer).Measured().Pace, 0.01, "after a first one of %d ns", first)
	}
}
