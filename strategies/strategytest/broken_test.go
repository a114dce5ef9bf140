package strategytest

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// broken is a first-in first-out queue that keeps every rule, except for what a
// fault does to it. The hooks run under its lock.
type broken struct {
	fault    fault
	mu       sync.Mutex
	waiting  []*strategies.Task
	capacity int
	pushes   int
	entering int // pushes in progress
	holes    int
	litter   []*strategies.Task
}

type fault struct {
	// races says that what it does is a data race as well, by which the race detector would
	// fail the test.
	races bool

	rule, name string

	capacity func(c int) int                                                // what New makes of Config.Capacity
	full     func(q *broken) bool                                           // instead of len(waiting) >= capacity
	push     func(q *broken, t *strategies.Task) (strategies.Verdict, bool) // true: this is the answer
	pop      func(q *broken) bool                                           // true: Empty is the answer
	popped   func(q *broken, t *strategies.Task)                            // after taking t, before returning it
	remove   func(q *broken, t *strategies.Task) (bool, bool)               // answer, and whether it is the answer
	len      func(q *broken) (int, bool)
	racy     bool // look for room first, queue later
	spec     strategies.Spec
}

func (f fault) New(c strategies.Config) strategies.Discipline {
	q := &broken{fault: f, capacity: c.Capacity, waiting: make([]*strategies.Task, 0, 2*c.Capacity+8)}
	if f.capacity != nil {
		q.capacity = f.capacity(q.capacity)
	}
	return q
}

func (q *broken) isFull() bool {
	if q.fault.full != nil {
		return q.fault.full(q)
	}
	return len(q.waiting) >= q.capacity
}

func (q *broken) Push(t *strategies.Task, _ int64) strategies.Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pushes++
	if q.fault.push != nil {
		if v, ok := q.fault.push(q, t); ok {
			return v
		}
	}
	if q.isFull() {
		return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
	}
	if q.fault.racy {
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	q.waiting = append(q.waiting, t)
	return strategies.Verdict{}
}

func (q *broken) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 || q.fault.pop != nil && q.fault.pop(q) {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	t := q.waiting[0]
	q.drop(0)
	if q.fault.popped != nil {
		q.fault.popped(q, t)
	}
	return t, strategies.Run, strategies.ReasonNone
}

func (q *broken) drop(i int) {
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

func (q *broken) Remove(t *strategies.Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fault.remove != nil {
		if answer, ok := q.fault.remove(q, t); ok {
			return answer
		}
	}
	i := slices.Index(q.waiting, t)
	if i < 0 {
		return false
	}
	q.drop(i)
	return true
}

func (q *broken) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fault.len != nil {
		if n, ok := q.fault.len(q); ok {
			return n
		}
	}
	return len(q.waiting)
}

func (q *broken) Cap() int { return q.capacity }

var faults = []fault{
	{
		rule: "inline", name: "queues although it is inline",
		spec: strategies.Spec{Inline: true},
	},
	{
		rule: "capacity", name: "over by one",
		full: func(q *broken) bool { return len(q.waiting) > q.capacity },
	},
	{
		rule: "capacity", name: "rounded up to a power of two",
		capacity: func(c int) int {
			size := 1
			for size < c {
				size *= 2
			}
			return size
		},
	},
	{
		rule: "capacity", name: "full one too early",
		full: func(q *broken) bool { return len(q.waiting) >= q.capacity-1 },
	},
	{
		rule: "capacity under contention", name: "looks for room and takes it later",
		racy: true,
	},
	{
		rule: "capacity under contention", name: "full also means having lost a race",
		push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			q.entering++
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			q.entering--
			lost := q.entering > 0
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}, lost
		},
	},
	{
		rule: "empty under contention", name: "empty also means having lost a race",
		push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			q.entering++
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			q.entering--
			return strategies.Verdict{}, false
		},
		pop: func(q *broken) bool { return q.entering > 0 },
	},
	{
		rule: "empty under contention", name: "full also means having lost a race",
		push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			q.entering++
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			q.entering--
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}, q.entering > 0
		},
	},
	{
		rule: "room after removal", name: "a removed task keeps its place until the head passes it",
		full: func(q *broken) bool { return len(q.waiting)+q.holes >= q.capacity },
		pop:  func(q *broken) bool { q.holes = 0; return false },
		remove: func(q *broken, t *strategies.Task) (bool, bool) {
			if slices.Contains(q.waiting, t) {
				q.holes++
			}
			return false, false
		},
	},
	{
		rule: "exactly once", name: "loses every tenth task",
		push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			return strategies.Verdict{}, q.pushes%10 == 0
		},
	},
	{
		rule: "exactly once", name: "returns every tenth task twice",
		popped: func(q *broken, t *strategies.Task) {
			if q.pushes%10 == 0 {
				q.waiting = append(q.waiting, t)
			}
		},
	},
	{
		rule: "exactly once", name: "forgets to take out what it says it removed",
		remove: func(q *broken, t *strategies.Task) (bool, bool) { return true, slices.Contains(q.waiting, t) },
	},
	{
		rule: "exactly once", name: "removes another task",
		remove: func(q *broken, t *strategies.Task) (bool, bool) {
			if len(q.waiting) > 0 && slices.Contains(q.waiting, t) {
				q.drop(0)
				return true, true
			}
			return false, false
		},
	},
	{
		rule: "exactly once", name: "finds nothing although a task waits",
		pop: func(q *broken) bool { return q.pushes%10 == 0 },
	},
	{
		rule: "exactly once", name: "counts wrong",
		len: func(q *broken) (int, bool) { return len(q.waiting) - 1, len(q.waiting) == 3 },
	},
	{
		rule: "exactly once", name: "turns away without a reason",
		push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			return strategies.Verdict{Outcome: strategies.TurnedAway}, q.pushes%10 == 0
		},
	},
	{
		rule: "exactly once", name: "displaces a task and does not queue the other",
		push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			if !q.isFull() {
				return strategies.Verdict{}, false
			}
			oldest := q.waiting[0]
			q.drop(0)
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull, Displaced: oldest}, true
		},
	},
	{
		rule: "exactly once under contention", name: "takes without its lock",
		popped: func(q *broken, t *strategies.Task) {
			// The task is out, and in again for a moment.
			q.waiting = append(q.waiting, t)
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			if i := slices.Index(q.waiting, t); i >= 0 {
				q.drop(i)
			}
		},
	},
	{
		rule: "remove or pop", name: "both get the task",
		remove: func(q *broken, t *strategies.Task) (bool, bool) {
			found := slices.Contains(q.waiting, t)
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
			if i := slices.Index(q.waiting, t); i >= 0 {
				q.drop(i)
			}
			return found, true
		},
	},
	{
		rule: "retention", name: "does not clear a slot",
		popped: func(q *broken, t *strategies.Task) { q.litter = append(q.litter[:0], t) },
	},
	{
		rule: "retention", name: "leaves a task leading to the others",
		popped: func(q *broken, t *strategies.Task) { t.Owner = q },
	},
	{
		rule: "allocations", name: "a node for each task",
		push: func(q *broken, t *strategies.Task) (strategies.Verdict, bool) {
			q.litter = append([]*strategies.Task(nil), t)
			return strategies.Verdict{}, false
		},
		pop: func(q *broken) bool { q.litter = nil; return false },
	},
	{
		rule: "under a controller", name: "gives a task out and keeps it", races: true,
		popped: func(q *broken, t *strategies.Task) {
			if q.pushes%3 == 0 {
				q.waiting = append(q.waiting, t)
			}
		},
	},
	{
		rule: "exactly once under contention", name: "returns a task of its own making",
		pop: func(q *broken) bool {
			q.waiting[0] = new(strategies.Task)
			return false
		},
	},
	{
		rule: "observe", name: "turns away for want of nothing",
		push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonLate}, q.pushes == 3
		},
	},
	{
		rule: "exactly once", name: "a reason that it has not declared",
		push: func(*broken, *strategies.Task) (strategies.Verdict, bool) {
			return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: "mine"}, true
		},
	},
	{
		rule: "model", name: "newest first",
		push: func(q *broken, t *strategies.Task) (strategies.Verdict, bool) {
			if q.isFull() {
				return strategies.Verdict{}, false
			}
			q.waiting = slices.Insert(q.waiting, 0, t)
			return strategies.Verdict{}, true
		},
	},
}

func TestRules_CatchWhatIsBroken(t *testing.T) {
	for _, f := range faults {
		if !f.races { // or else TestRules_CatchRaces has it
			t.Run(f.rule+"/"+f.name, f.isCaught)
		}
	}
}

// isCaught finds that the rule finds the fault.
func (f fault) isCaught(t *testing.T) {
	spec := f.spec
	spec.Name, spec.New = "broken", f.New
	rule := ruleNamed(t, f.rule)
	if f.rule == "under a controller" { // which may find the fault by a request that is never answered
		rule.check = func(s strategies.Spec) error { return underController(s, time.Second) }
	}
	if !rule.serial {
		t.Parallel()
	}
	// A race need not be lost the first time.
	var err error
	for range 1000 {
		if err = rule.Check(spec); err != nil {
			break
		}
	}
	require.Error(t, err)
	t.Log(err)
}

// TestRules_LetPass shows that it is the faults that are caught.
func TestRules_LetPass(t *testing.T) {
	Run(t, strategies.Spec{Name: "sound", New: fault{}.New}, fifo.New)
}

// TestRules_EachIsNeeded finds that there is a fault for every rule.
func TestRules_EachIsNeeded(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{
		"returns at once": true, // TestReturnsAtOnce_FindsWhatBlocks
		"turns":           true, // TestTurns_FindsTurnsTakenForTasks
		"meter":           true, // TestMeter_FindsTasksWithoutANumber
		"learner":         true, // the race detector speaks up, or the discipline panics
	}
	for _, f := range faults {
		tested[f.rule] = true
	}
	for _, r := range Rules(fifo.New) {
		require.True(t, tested[r.Name], "no fault shows that the rule %q catches anything", r.Name)
		require.NotEmpty(t, r.Why)
	}
}

var fifo = Model{
	Next: Oldest,
	Full: strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull},
}

func ruleNamed(t *testing.T, name string) Rule {
	rules := Rules(fifo.New)
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name })
	require.GreaterOrEqual(t, i, 0, "no rule %q", name)
	return rules[i]
}

// blocking waits in Pop for a task, until it is closed.
type blocking struct {
	strategies.Discipline
	closed chan struct{}
}

func (q blocking) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if q.Len() == 0 {
		<-q.closed
	}
	return q.Discipline.Pop(now)
}

func TestReturnsAtOnce_FindsWhatBlocks(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	defer close(closed)
	err := returnsAtOnce(strategies.Spec{New: func(c strategies.Config) strategies.Discipline {
		return blocking{fault{}.New(c), closed}
	}}, time.Millisecond)
	require.ErrorContains(t, err, "Pop, while nothing waits, has not returned")
}

// A strategy that loses requests is told so after the first, however many it loses.
func TestUnderController_FindsWhatIsLost(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{
		{name: "loses each task", push: func(*broken, *strategies.Task) (strategies.Verdict, bool) {
			return strategies.Verdict{}, true
		}},
		{name: "loses every tenth task", push: func(q *broken, _ *strategies.Task) (strategies.Verdict, bool) {
			return strategies.Verdict{}, q.pushes%10 == 0
		}},
		{name: "never tells of a task", pop: func(*broken) bool { return true }, remove: func(*broken, *strategies.Task) (bool, bool) {
			return false, true
		}},
		{name: "never tells of a task, and says that it has none", pop: func(*broken) bool { return true },
			len:    func(*broken) (int, bool) { return 0, true },
			remove: func(*broken, *strategies.Task) (bool, bool) { return false, true }},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			var err error
			for range 1000 { // all may have come when a place was free
				if err = underController(strategies.Spec{Name: "broken", New: f.New}, 10*time.Millisecond); err != nil {
					break
				}
			}
			require.EqualError(t, err, "a request was lost: nobody has answered it for 10ms")
		})
	}
}

// A discipline that never returns fails each of the rules that call it, instead of the
// time-out of the whole package.
func TestRule_FindsWhatNeverReturns(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	var checks sync.WaitGroup
	t.Cleanup(func() {
		close(closed)
		checks.Wait()
	})
	spec := strategies.Spec{Name: "blocking", New: func(c strategies.Config) strategies.Discipline {
		return blocking{fault{}.New(c), closed}
	}}
	for _, name := range []string{"exactly once", "empty under contention", "under a controller"} {
		rule := ruleNamed(t, name)
		check := rule.check
		checks.Add(1)
		rule.check = func(s strategies.Spec) error {
			defer checks.Done()
			return check(s)
		}
		err := rule.checkWithin(spec, 10*time.Millisecond)
		require.ErrorContains(t, err, "has not ended for 10ms: a call of the discipline blocks", name)
	}
}

// timingTurns takes each turn for one task.
type timingTurns struct {
	strategies.Discipline
	last, sum, turns int64
}

func (q *timingTurns) TurnBegan(now int64) {
	q.sum += now - q.last
	q.last = now
	q.turns++
}

func (q *timingTurns) Measured() strategies.Measured {
	return strategies.Measured{Pace: q.sum / q.turns}
}

func TestTurns_FindsTurnsTakenForTasks(t *testing.T) {
	t.Parallel()
	err := turns(strategies.Spec{New: func(c strategies.Config) strategies.Discipline {
		return &timingTurns{Discipline: fault{}.New(c)}
	}})
	require.ErrorContains(t, err, "Measured().Pace = 10000 after turns of 8 tasks", "want about 1250")
}

func TestReplay_TellsTheSteps(t *testing.T) {
	t.Parallel()
	spec := strategies.Spec{New: fault{remove: func(q *broken, t *strategies.Task) (bool, bool) {
		return true, slices.Contains(q.waiting, t)
	}}.New}
	// Among pushes and pops, one removal.
	script := []byte{3, 0, 0, 0, 3, 3, 0, 0, 0, 0, 5, 3, 7, 3, 0}
	err := Replay(spec, nil, script)
	require.EqualError(t, err, `Len() = 1 while 0 tasks wait
after these steps with capacity 4:
	push 9: queued
	remove 9: true
Repeat them with strategytest.Replay(spec, model, []byte("\x03\x00\x05"))`)
}

// numberless is a Meter that does not say how it knows a task.
type numberless struct{ strategies.Discipline }

func (numberless) Began(*strategies.Task, int64) {}
func (numberless) Ended(uint64, int, int64)      {}

func TestMeter_FindsTasksWithoutANumber(t *testing.T) {
	t.Parallel()
	spec, err := strategies.Lookup("fifo")
	require.NoError(t, err)
	queue := spec.New
	spec.New = func(c strategies.Config) strategies.Discipline { return numberless{queue(c)} }
	require.ErrorContains(t, meter(spec), "have no number")
}
