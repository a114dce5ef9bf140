package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// metered is a discipline that notes what it is told of runs.
type metered struct {
	strategies.Discipline
	meter strategies.Meter // nil if that discipline is none
	ledger
	last   *atomic.Uint64 // the number of a run, which no other meter of the test has given
	panics func() bool    // whether a method panics now
}

// ledger holds the runs of one meter.
type ledger struct {
	mu          sync.Mutex
	runs        map[uint64]metedRun // that have not ended
	began, gave int
	shared      int // ended beside others
	wrong       string
}

type metedRun struct {
	begun  bool // or only popped
	inside uint64
}

// meters makes specs whose disciplines are metered, and holds these.
type meters struct {
	mu     sync.Mutex
	all    []*metered
	last   atomic.Uint64
	panics func() bool
}

func (ms *meters) spec(t *testing.T, name string) strategies.Spec {
	t.Helper()
	spec, err := strategies.Lookup(name)
	require.NoError(t, err)
	inside := spec.New
	spec.New = func(c strategies.Config) strategies.Discipline {
		m := &metered{Discipline: inside(c), last: &ms.last, panics: ms.panics, ledger: ledger{runs: map[uint64]metedRun{}}}
		m.meter, _ = m.Discipline.(strategies.Meter)
		ms.mu.Lock()
		defer ms.mu.Unlock()
		ms.all = append(ms.all, m)
		return m
	}
	return spec
}

// atRest requires that each meter was told of the end of each of its runs, once, and of no other. It returns how many
// have begun, and how many were given up after they were popped.
func (ms *meters) atRest(t *testing.T) (began, gave, shared int) {
	t.Helper()
	for i, m := range ms.all {
		require.Empty(t, m.wrong, "meter %d", i)
		require.Empty(t, m.runs, "meter %d", i)
		began, gave, shared = began+m.began, gave+m.gave, shared+m.shared
	}
	return began, gave, shared
}

func newMetered(t *testing.T) (*meters, strategies.Spec) {
	t.Helper()
	ms := &meters{panics: func() bool { return false }}
	return ms, ms.spec(t, "fifo")
}

func (m *metered) mayPanic() {
	if m.panics() {
		panic("index out of range")
	}
}

func (m *metered) Push(t *strategies.Task, now int64) strategies.Verdict {
	m.mayPanic()
	return m.Discipline.Push(t, now)
}

func (m *metered) Remove(t *strategies.Task) bool {
	m.mu.Lock() // who finds no task here may go by its number
	defer m.mu.Unlock()
	r, ok := m.Discipline.(strategies.Remover)
	return ok && r.Remove(t)
}

func (m *metered) TurnBegan(now int64) {
	if o, ok := m.Discipline.(strategies.TurnObserver); ok {
		o.TurnBegan(now)
	}
}

func (m *metered) Resize(n int) {
	if r, ok := m.Discipline.(strategies.Resizer); ok {
		r.Resize(n)
	}
}

func (m *metered) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	m.mayPanic()
	m.mu.Lock()
	defer m.mu.Unlock()
	t, what, reason := m.Discipline.Pop(now)
	if t != nil {
		m.notesLocked(t, false)
		m.mayPanic() // t is lost until who waits for it gives up
	}
	return t, what, reason
}

func (m *metered) notesLocked(t *strategies.Task, begun bool) {
	n := m.last.Add(1)
	m.runs[n] = metedRun{begun, t.Run}
	t.Run = n
}

func (m *metered) Began(t *strategies.Task, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began++
	r, popped := m.runs[t.Run]
	if t.Run != 0 && (!popped || r.begun) {
		m.wrong = fmt.Sprintf("Began of %d; popped here: %t, begun: %t", t.Run, popped, r.begun)
		return
	}
	delete(m.runs, t.Run)
	if t.Run = r.inside; m.meter != nil {
		m.meter.Began(t, now)
	}
	m.notesLocked(t, true)
	m.mayPanic()
}

func (m *metered) Ended(run uint64, of int, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.runs[run]
	switch {
	case !ok:
		m.wrong = fmt.Sprintf("Ended of %d, which is none", run)
		return
	case !r.begun:
		m.gave++
	}
	if of > 1 {
		m.shared++
	}
	delete(m.runs, run)
	if m.meter != nil && r.inside != 0 {
		m.meter.Ended(r.inside, of, now)
	}
	m.mayPanic()
}

// A discipline that goes by how long tasks take is told of those that never waited, of those that did, and of those that
// were popped and given up; of each once.
func TestPlaces_TellAMeter(t *testing.T) {
	t.Parallel()
	m, spec := newMetered(t)
	var granted []*Task
	p, err := Lend(Options{Spec: spec, Workers: 1, Grant: func(task *Task) { granted = append(granted, task) }})
	require.NoError(t, err)
	defer p.Close()
	done := func(*Task) {}
	first, late, next := &Task{Done: done}, &Task{Done: done}, &Task{Done: done}
	late.Deadline = 1
	require.True(t, p.Acquire(first))
	require.False(t, p.Acquire(late))
	require.False(t, p.Acquire(next))
	require.Equal(t, 1, m.all[0].began)
	p.Release(first)
	require.Equal(t, []*Task{next}, granted)
	require.Equal(t, strategies.ReasonExpired, late.Shed)
	require.Equal(t, 1, m.all[0].gave)
	p.Release(next)
	require.True(t, p.Acquire(first), "again")
	p.Release(first)
	began, _, _ := m.atRest(t)
	require.Equal(t, 3, began)
}

func TestDispatcher_TellsAMeter(t *testing.T) {
	t.Parallel()
	m, spec := newMetered(t)
	d, err := Open(Options{
		Spec: spec, Workers: 3, Capacity: 32, MaxBatch: 4,
		Run: func(tasks []*Task, done func(*Task)) {
			for _, task := range tasks {
				done(task)
			}
		},
	})
	require.NoError(t, err)
	var group, all sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 200 {
				all.Add(1)
				task := &Task{Write: i%2 == 0, InPlace: i%3 == 0, Done: func(*Task) { all.Done() }}
				if i%7 == g {
					task.Deadline = d.Now() + int64(time.Microsecond)
				}
				d.Submit(task)
				if i%11 == g {
					d.Cancel(task, strategies.ReasonAbandoned)
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, d.Drain(context.Background()))
	all.Wait()
	d.Close()
	began, _, _ := m.atRest(t)
	require.Positive(t, began)
}

// What a switch takes out of a meter never runs there. The meter is told, and not the strategy after it.
func TestSwitch_TellsTheFormerMeter(t *testing.T) {
	t.Parallel()
	m, spec := newMetered(t)
	fifo, err := strategies.Lookup("fifo")
	require.NoError(t, err)
	var broken []string
	p, err := Lend(Options{
		Spec: spec, Workers: 1, Grant: func(*Task) {},
		Broken: func(strategy, rule string) { broken = append(broken, strategy+": "+rule) },
	})
	require.NoError(t, err)
	defer p.Close()
	done := func(*Task) {}
	first, late, next := &Task{Done: done}, &Task{Done: done}, &Task{Done: done}
	late.Deadline = 1
	require.True(t, p.Acquire(first))
	require.False(t, p.Acquire(late))
	require.False(t, p.Acquire(next))
	require.NoError(t, p.SwitchTo(fifo))
	require.Equal(t, strategies.ReasonExpired, late.Shed)
	require.Equal(t, 2, m.all[0].gave)
	p.Release(first)
	p.Release(next)
	m.atRest(t)
	require.Empty(t, broken)
}

// A range that goes on after a switch takes its time from the strategy that is active then.
func TestContinue_TellsTheMeterOfItsTurn(t *testing.T) {
	t.Parallel()
	m, spec := newMetered(t)
	d, err := Open(Options{Spec: spec, Workers: 1, MaxBatch: 1, Run: func(tasks []*Task, done func(*Task)) { done(tasks[0]) }})
	require.NoError(t, err)
	there := make(chan bool)
	task := &Task{Done: func(*Task) { there <- true }}
	d.Submit(task)
	<-there
	for i, next := range []strategies.Spec{spec, m.spec(t, "sync"), m.spec(t, "fair")} {
		require.NoError(t, d.SwitchTo(next))
		go d.Continue(task)
		<-there
		require.Equal(t, 1, m.all[i+1].began)
	}
	d.Close()
	m.atRest(t)
}

// shaker changes an engine at random, and makes the tasks that are submitted meanwhile.
type shaker struct {
	t      *testing.T
	random *rand.Rand
	meters *meters
}

// meteredNames are the strategies to switch to: the first three are a meter by itself, one has submitters run what finds
// no room, and one has no queue.
var meteredNames = []string{"fair", "fair", "fair", "auto", "fifo", "lifo", "edf", "caller-runs", "sync"}

func newShaker(t *testing.T) (s *shaker, seed uint64) {
	seed = rand.Uint64()
	t.Logf("seed %d", seed)
	ms, _ := newMetered(t)
	return &shaker{t: t, random: rand.New(rand.NewPCG(seed, 0)), meters: ms}, seed
}

func (s *shaker) spec() strategies.Spec {
	return s.meters.spec(s.t, meteredNames[s.random.IntN(len(meteredNames))])
}

func (s *shaker) change(e *engine) {
	switch s.random.IntN(6) {
	case 0, 1:
		require.NoError(s.t, e.SwitchTo(s.spec()))
	case 2, 3:
		require.NoError(s.t, e.SetCapacity(1+s.random.IntN(12)))
	case 4:
		e.Resize(1 + s.random.IntN(5))
	case 5:
		require.NoError(s.t, e.SetObserve(s.random.IntN(3) == 0))
	}
}

func anyTask(random *rand.Rand, t *Task, now int64) {
	t.Client, t.Route = string(rune('a'+random.IntN(5))), "route"
	t.Cost, t.Arrival, t.Deadline = random.IntN(4), now, 0
	t.Write, t.InPlace = random.IntN(2) == 0, random.IntN(2) == 0
	if random.IntN(8) == 0 {
		t.Deadline = now + random.Int64N(int64(time.Millisecond))
	}
}

// atRest requires that every meter is at rest, and that some were told of runs, and of some that were given up.
func (s *shaker) atRest() {
	began, gave, _ := s.meters.atRest(s.t)
	require.Positive(s.t, began)
	require.Positive(s.t, gave)
}

// crowd has 16 clients do what ask does, each until the engine was changed so many times. Whoever waits may give up at
// each change, and does so after the last.
func (s *shaker) crowd(e *engine, seed uint64, ask func(random *rand.Rand, waits func(there <-chan bool, cancel func()) bool)) {
	changes := 10_000
	if testing.Short() {
		changes = 150
	}
	var over atomic.Bool
	var changed atomic.Pointer[chan struct{}]
	renew := func() (former *chan struct{}) {
		next := make(chan struct{})
		return changed.Swap(&next)
	}
	renew()
	var clients sync.WaitGroup
	for i := range 16 {
		random := rand.New(rand.NewPCG(seed, uint64(1+i)))
		waits := func(there <-chan bool, cancel func()) bool {
			if random.IntN(4) == 0 {
				cancel()
			}
			for !over.Load() {
				select {
				case granted := <-there:
					return granted
				case <-*changed.Load():
					cancel()
				}
			}
			cancel()
			return <-there
		}
		clients.Go(func() {
			for !over.Load() {
				ask(random, waits)
			}
		})
	}
	for range changes {
		s.change(e)
		for range 20 {
			runtime.Gosched()
		}
		close(*renew())
	}
	over.Store(true)
	close(*renew())
	clients.Wait()
}

// However tasks are popped, moved, given up, expire and find places: what a meter has charged for ends once, and is told
// of at that meter.
func TestPlaces_EndEachRunOnce(t *testing.T) {
	t.Parallel()
	s, seed := newShaker(t)
	p, err := Lend(Options{Spec: s.spec(), Workers: 3, Capacity: 8, Grant: func(t *Task) { t.Payload.(chan bool) <- true }})
	require.NoError(t, err)
	s.crowd(p.engine, seed, func(random *rand.Rand, waits func(<-chan bool, func()) bool) {
		there := make(chan bool, 1)
		task := &Task{Payload: there, Done: func(*Task) { there <- false }}
		for range 8 {
			anyTask(random, task, p.Now())
			if p.TryAcquire(task) || p.Acquire(task) || waits(there, func() { p.Cancel(task, strategies.ReasonAbandoned) }) {
				runtime.Gosched()
				p.Release(task)
			}
		}
	})
	p.Close()
	s.atRest()
}

func TestDispatcher_EndsEachRunOnce(t *testing.T) {
	t.Parallel()
	s, seed := newShaker(t)
	var blocked atomic.Bool
	d, err := Open(Options{
		Spec: s.spec(), Workers: 3, Capacity: 8, MaxBatch: 4,
		Blocked: func(bool) bool { return blocked.Load() },
		Run: func(tasks []*Task, done func(*Task)) {
			for _, task := range tasks {
				done(task)
			}
		},
	})
	require.NoError(t, err)
	s.crowd(&d.engine, seed, func(random *rand.Rand, waits func(<-chan bool, func()) bool) {
		there := make(chan bool, 1)
		task := &Task{Done: func(t *Task) { there <- t.Shed == strategies.ReasonNone }}
		for range 8 {
			anyTask(random, task, d.Now())
			d.Submit(task)
			ran := waits(there, func() { d.Cancel(task, strategies.ReasonAbandoned) })
			for range random.IntN(3) {
				if ran && !task.Write {
					d.Continue(task)
					ran = <-there
				}
			}
		}
		blocked.Store(random.IntN(4) == 0)
		d.Unblock()
	})
	blocked.Store(false)
	d.Unblock()
	d.Close()
	s.atRest()
}

// The same while methods of the disciplines panic, one step after the other.
func TestPlaces_EndEachRunOnceBesidePanics(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := newShaker(t)
		var calls atomic.Int64
		s.meters.panics = func() bool { return calls.Add(1)%61 == 0 }
		var mu sync.Mutex // timers grant as well
		var free, waiting, granted []*Task
		moves := func(task *Task, to *[]*Task) {
			mu.Lock()
			defer mu.Unlock()
			for _, from := range []*[]*Task{&free, &waiting, &granted} {
				*from = slices.DeleteFunc(*from, func(t *Task) bool { return t == task })
			}
			*to = append(*to, task)
		}
		one := func(of *[]*Task) *Task {
			mu.Lock()
			defer mu.Unlock()
			if len(*of) == 0 {
				return nil
			}
			return (*of)[s.random.IntN(len(*of))]
		}
		p, err := Lend(Options{Spec: s.spec(), Workers: 3, Capacity: 8, Grant: func(task *Task) { moves(task, &granted) }})
		require.NoError(t, err)
		for range 12 {
			free = append(free, &Task{Done: func(task *Task) { moves(task, &free) }})
		}
		step := func(n int) {
			switch {
			case n < 5:
				if task := one(&free); task != nil {
					anyTask(s.random, task, p.Now())
					moves(task, &waiting)
					if p.Acquire(task) {
						moves(task, &granted)
					}
				}
			case n < 9:
				if task := one(&granted); task != nil {
					moves(task, &free)
					p.Release(task)
				}
			case n < 11:
				if task := one(&waiting); task != nil {
					p.Cancel(task, strategies.ReasonAbandoned)
				}
			default:
				s.change(p.engine)
			}
			time.Sleep(time.Duration(s.random.IntN(int(time.Millisecond))))
			synctest.Wait() // for timers of this moment
		}
		for range 10_000 {
			step(s.random.IntN(12))
		}
		for i := 0; len(free) < 12; i++ { // what was lost in a panic can be given up
			require.Less(t, i, 100)
			step(8 + i%2)
		}
		p.Close()
		s.atRest()
	})
}
