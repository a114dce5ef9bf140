package strategies_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/strategytest"
)

var (
	turnedAway = strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
	callerRuns = strategies.Verdict{Outcome: strategies.CallerRuns}
)

// models says what each strategy that comes with Spillway does, sync excepted.
var models = []struct {
	name string
	new  func(strategies.Config) strategies.Discipline
}{
	{"adaptive-lifo", newestWhileStanding},
	{"auto", newAutoModel},
	{"caller-runs", strategytest.Model{Next: strategytest.Oldest, Full: callerRuns}.New},
	{"codel", newCoDelModel},
	{"drop-oldest", strategytest.Model{Next: strategytest.Oldest, Displaced: strategytest.Oldest}.New},
	{"edf", newEDFModel},
	{"fair", newFairModel},
	{"fifo", strategytest.Model{Next: strategytest.Oldest, Full: turnedAway}.New},
	{"hybrid", alternating},
	{"lifo", strategytest.Model{Next: strategytest.Newest, Displaced: strategytest.Oldest}.New},
	{"mpmc", strategytest.Model{Next: strategytest.Oldest, Full: turnedAway}.New},
	{"priority", strategytest.Model{Next: strategytest.First(byClass), Displaced: strategytest.Last(byClass)}.New},
	// With one worker, which is what models are compared with.
	{"sharded", strategytest.Model{Next: strategytest.Oldest, Full: turnedAway}.New},
	{"unbounded", strategytest.Model{Next: strategytest.Oldest, Unbounded: true}.New},
}

func byClass(a, b *strategies.Task) int { return a.Priority.Class() - b.Priority.Class() }

func byCost(a, b *strategies.Task) int { return a.Places() - b.Places() }

// newestWhileStanding is the model of adaptive-lifo.
func newestWhileStanding(c strategies.Config) strategies.Discipline {
	return strategytest.Model{
		Next: func(waiting []*strategies.Task) int {
			if len(waiting) > 8*c.Workers || len(waiting) > c.Capacity/2 {
				return len(waiting) - 1
			}
			return 0
		},
		Displaced: strategytest.Oldest,
	}.New(c)
}

// codelModel is the model of codel. It notes the pops since the last that says
// that no queue stands.
type codelModel struct {
	strategies.Discipline // a first-in first-out queue
	strategies.Remover    // the same
	workers               int
	late                  []int64 // when they were
}

func newCoDelModel(c strategies.Config) strategies.Discipline {
	q := strategytest.Model{Next: strategytest.Oldest, Full: turnedAway}.New(c)
	return &codelModel{Discipline: q, Remover: q.(strategies.Remover), workers: c.Workers}
}

func (m *codelModel) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	const ms = 1_000_000
	several := m.Len() > m.workers
	t, what, reason := m.Discipline.Pop(now)
	if t == nil || !several || now-t.Submitted < 5*ms {
		m.late = nil
		return t, what, reason
	}
	m.late = append(m.late, now)
	if now-m.late[0] >= 100*ms && now-t.Submitted > 10*ms {
		return t, strategies.Shed, strategies.ReasonCoDel
	}
	return t, what, reason
}

// alternating is the model of hybrid.
func alternating(c strategies.Config) strategies.Discipline {
	newest := false
	return strategytest.Model{
		Next: func(waiting []*strategies.Task) int {
			if len(waiting) == 1 || !newest {
				newest = len(waiting) > 1
				return 0
			}
			newest = false
			return len(waiting) - 1
		},
		Displaced: strategytest.Oldest,
	}.New(c)
}

// noQueue is the model of sync, in which no task ever waits.
func noQueue(strategies.Config) strategies.Discipline {
	return strategytest.Model{Full: callerRuns}.New(strategies.Config{})
}

func lookup(tb testing.TB, name string) strategies.Spec {
	tb.Helper()
	spec, err := strategies.Lookup(name)
	if err != nil {
		tb.Fatal(err)
	}
	return spec
}

// modelled calls test with every strategy, and its model.
func modelled(t *testing.T, test func(t *testing.T, spec strategies.Spec, model func(strategies.Config) strategies.Discipline)) {
	t.Helper()
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) { test(t, lookup(t, m.name), m.new) })
	}
	t.Run("sync", func(t *testing.T) { test(t, lookup(t, "sync"), noQueue) })
	t.Run("fair with weights", func(t *testing.T) {
		spec := lookup(t, "fair")
		workers := func(c strategies.Config) int { return max(c.Workers, 3) } // for costs of their own
		weighted := spec.New
		spec.New = func(c strategies.Config) strategies.Discipline {
			c.Workers, c.Weight = workers(c), weightOf
			return weighted(c)
		}
		test(t, spec, func(c strategies.Config) strategies.Discipline {
			c.Workers, c.Weight = workers(c), weightOf
			return newFairModel(c)
		})
	})
	t.Run("cheap-first", func(t *testing.T) { test(t, lookup(t, "cheap-first"), cheapFirstModel.New) })
}

// TestStrategies_KeepTheRules is not parallel, nor are its subtests, because
// strategytest counts allocations.
func TestStrategies_KeepTheRules(t *testing.T) {
	modelled(t, func(t *testing.T, spec strategies.Spec, _ func(strategies.Config) strategies.Discipline) {
		t.Helper()
		strategytest.Run(t, spec, nil) // TestStrategies_DoAsTheirModels has the rule about these
	})
}

// FuzzDisciplines compares every strategy with its model.
func FuzzDisciplines(f *testing.F) {
	const push, pop, remove, miss = 0, 3, 5, 6 // see strategytest.Replay
	f.Add([]byte{})
	f.Add([]byte{0, push, push, pop, pop})
	f.Add([]byte{3, push, push, push, push, push, push, pop, push, pop})
	// The oldest stays while the others are removed: the ring has to close its holes.
	script := []byte{3, push, push, push, push}
	for range 20 {
		script = append(script, remove|1<<3, push, remove|3<<3, push, miss)
	}
	f.Add(append(script, pop, pop, pop))
	f.Fuzz(func(t *testing.T, script []byte) {
		for _, m := range models {
			if err := strategytest.Replay(lookup(t, m.name), m.new, script); err != nil {
				t.Errorf("strategy %q: %v", m.name, err)
			}
		}
		if err := strategytest.Replay(lookup(t, "sync"), noQueue, script); err != nil {
			t.Errorf("strategy %q: %v", "sync", err)
		}
	})
}

// TestDisciplines_ContentionOnOtherCPUs repeats the rules about contention with
// other numbers of CPUs for the disciplines without locks: on one, a goroutine
// stops in the middle of an operation only when it is preempted. The number is
// the whole process's, so the test is not parallel.
func TestDisciplines_ContentionOnOtherCPUs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	// So many queues that others move tasks while an operation goes through them.
	sharded := lookup(t, "sharded")
	many := sharded
	many.Name = "sharded for 64 workers"
	many.New = func(c strategies.Config) strategies.Discipline {
		c.Workers = 64
		return sharded.New(c)
	}
	cpus, searches := []int{1, 2, 4}, 16
	if testing.Short() {
		cpus, searches = []int{1, 4}, 4
	}
	for _, procs := range cpus {
		runtime.GOMAXPROCS(procs)
		for _, spec := range []strategies.Spec{lookup(t, "mpmc"), many, lookup(t, "unbounded")} {
			for _, r := range strategytest.Rules(nil) {
				times := 1
				switch r.Name {
				case "empty under contention":
					if spec.Name == many.Name {
						times = searches // each takes little time, and luck to find something
					}
				case "capacity under contention", "exactly once under contention", "remove or pop":
				default:
					continue
				}
				for range times {
					if err := r.Check(spec); err != nil {
						t.Errorf("strategy %q, %d CPUs, rule %q: %v", spec.Name, procs, r.Name, err)
					}
				}
			}
		}
	}
}

// A model with chance in it takes any of its answers, and no other; and one that turns the pushed task away says so.
func TestModel_Answers(t *testing.T) {
	t.Parallel()
	const push, pop = 0, 3
	script := []byte{3, push, push, push, push, push, pop, pop, pop, pop}
	one := func(which int) func([]*strategies.Task) int {
		return func(waiting []*strategies.Task) int { return min(which, len(waiting)-1) }
	}
	twoOldest := func(waiting []*strategies.Task) []int { return []int{0, min(1, len(waiting)-1)} }
	for _, tc := range []struct {
		about    string
		q, model strategytest.Model
		want     string
	}{
		{"one of its answers", strategytest.Model{Next: one(0), Full: turnedAway}, strategytest.Model{Any: twoOldest, Full: turnedAway}, ""},
		{"the other one", strategytest.Model{Next: one(1), Full: turnedAway}, strategytest.Model{Any: twoOldest, Full: turnedAway}, ""},
		{"neither", strategytest.Model{Next: one(2), Full: turnedAway}, strategytest.Model{Any: twoOldest, Full: turnedAway}, "the answer was run"},
		{"anybody", strategytest.Model{Next: one(2), Full: turnedAway}, strategytest.Model{Any: strategytest.Everybody, Full: turnedAway}, ""},
		{"the pushed one leaves", strategytest.Model{Next: one(0), Full: turnedAway}, strategytest.Model{Next: one(0), Displaced: strategytest.Newest}, ""},
		{"it should not", strategytest.Model{Next: one(0), Full: turnedAway}, strategytest.Model{Next: one(0), Displaced: strategytest.Oldest}, "the answer was turned away, full, the model says queued"},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			err := strategytest.Replay(strategies.Spec{Name: "model", New: tc.q.New}, tc.model.New, script)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}
