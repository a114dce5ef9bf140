package dispatch

import (
	"context"
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
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// only returns the resource of places that have one.
func (p *Places) only() *Resource { return (*p.resources.Load())[0] }

// lend returns places of resources, n of each, and what is granted after a wait.
func lend(t *testing.T, strategy string, n int, resources ...string) (*Places, chan *Task) {
	t.Helper()
	granted := make(chan *Task, 64)
	p, err := Lend(Options{
		Strategy: strategy, Capacity: 64, Workers: n, Resources: resources, Grant: func(t *Task) { granted <- t },
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, granted
}

// take takes as many places as are asked for, all at once, and returns the tasks by resource.
func take(t *testing.T, p *Places, n int) map[string][]*Task {
	t.Helper()
	by := map[string][]*Task{}
	for range n {
		task := &Task{Done: func(*Task) {}}
		require.True(t, p.Acquire(task))
		by[task.On().Name] = append(by[task.On().Name], task)
	}
	return by
}

func (p *Places) named(name string) *Resource {
	i := slices.IndexFunc(p.Resources(), func(r *Resource) bool { return r.Name == name })
	return p.Resources()[i]
}

func TestResources_LargestFreeShare(t *testing.T) {
	t.Parallel()
	p, granted := lend(t, "fifo", 4, "a", "b")
	p.named("b").limit.set(8, nil)
	require.Equal(t, 12, p.Gauge().Workers)

	by := take(t, p, 6)
	require.Len(t, by["a"], 2)
	require.Len(t, by["b"], 4, "in proportion to what each can do")
	for _, more := range take(t, p, 6) {
		by["a"] = append(by["a"], more...)
	}
	require.Equal(t, 4, p.named("a").Gauge().Busy)
	require.Equal(t, 8, p.named("b").Gauge().Busy)

	waits := &Task{Done: func(*Task) {}}
	require.False(t, p.Acquire(waits))
	p.Release(by["b"][0])
	require.Same(t, waits, <-granted)
	require.Equal(t, "b", waits.On().Name, "the place that was given back")
}

func TestResources_EqualOnesTakeTurns(t *testing.T) {
	t.Parallel()
	p, _ := lend(t, "fifo", 4, "a", "b", "c")
	times := map[string]int{}
	for range 300 {
		for name, tasks := range take(t, p, 1) {
			times[name]++
			p.Release(tasks[0])
		}
	}
	require.Equal(t, map[string]int{"a": 100, "b": 100, "c": 100}, times)
}

func TestResources_EachTaskTakesOnePlace(t *testing.T) {
	t.Parallel()
	p, _ := lend(t, "fifo", 2, "a", "b")
	for range 4 {
		task := &Task{Done: func(*Task) {}}
		task.Cost = 3
		require.True(t, p.Acquire(task))
	}
}

func TestResources_Rest(t *testing.T) {
	t.Parallel()
	p, granted := lend(t, "fifo", 2, "a", "b")
	by := take(t, p, 2)
	p.named("a").Bound(0)
	require.Equal(t, 2, p.named("a").Gauge().Workers, "people see what it could do")
	take(t, p, 1)
	waits := &Task{Done: func(*Task) {}}
	require.False(t, p.Acquire(waits))
	p.Release(by["a"][0])
	require.Empty(t, granted, "it rests")
	p.named("a").Bound(1)
	require.Same(t, waits, <-granted)
	require.Equal(t, "a", waits.On().Name)
	p.Release(waits)
	p.Release(by["b"][0])
	require.Equal(t, 1, p.Gauge().Busy)
	require.Len(t, take(t, p, 2), 2)
}

// What is held back by a bound does not run as many as the law tries, so that learns nothing from it.
func TestResources_BoundedLearnNothing(t *testing.T) {
	t.Parallel()
	p, _ := lend(t, "fifo", 2, "a", "b")
	laws := map[string]*teller{}
	for _, r := range p.Resources() {
		laws[r.Name] = &teller{limit: 4}
		r.limit.set(0, &learning{law: laws[r.Name], bounds: concurrency.Options{Min: 1, Max: 50}})
	}
	p.named("a").Bound(1)
	for range 20 {
		for _, tasks := range take(t, p, 1) {
			p.Release(tasks[0])
		}
	}
	require.Empty(t, laws["a"].told())
	require.NotEmpty(t, laws["b"].told())
	p.named("a").Bound(4)
	for range 20 {
		for _, tasks := range take(t, p, 1) {
			p.Release(tasks[0])
		}
	}
	require.NotEmpty(t, laws["a"].told())
}

func TestResources_Change(t *testing.T) {
	t.Parallel()
	p, granted := lend(t, "fifo", 1, "a", "b")
	by, a := take(t, p, 2), p.named("a")
	first, second := &Task{Done: func(*Task) {}}, &Task{Done: func(*Task) {}}
	require.False(t, p.Acquire(first))
	require.False(t, p.Acquire(second))

	p.SetResources([]string{"a", "c"})
	require.Same(t, first, <-granted, "of the new one")
	require.Equal(t, "c", first.On().Name)
	require.Same(t, a, p.named("a"), "it goes on")
	p.Release(by["b"][0])
	require.Empty(t, granted, "b is gone")
	p.Release(by["a"][0])
	require.Same(t, second, <-granted)
	require.Equal(t, "a", second.On().Name)
	require.Equal(t, 2, p.Gauge().Busy)

	require.NoError(t, p.Learn(concurrency.Options{Min: 3, Initial: 3}))
	p.SetResources([]string{"a", "c", "d"})
	require.Equal(t, 3, p.named("d").Gauge().Learned.Limit, "it learns, as the others do")
	require.Equal(t, 9, p.Gauge().Learned.Limit)
}

func TestResources_Move(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"fifo", "fair"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			var started, shed atomic.Int64
			granted := make(chan *Task, 64)
			p, err := Lend(Options{
				Strategy: strategy, Capacity: 64, Workers: 1, Resources: []string{"a", "b"}, Grant: func(t *Task) { granted <- t },
				Events: func(strategies.Spec) Events {
					return Events{
						Submitted: func() {}, Started: func(time.Duration) { started.Add(1) }, Shed: func(strategies.Reason) { shed.Add(1) },
					}
				},
			})
			require.NoError(t, err)
			t.Cleanup(p.Close)
			by := take(t, p, 1)
			name, other := "a", "b"
			if by["b"] != nil {
				name, other = other, name
			}
			moves := by[name][0]
			p.named(name).Bound(0)
			require.True(t, p.Move(moves))
			require.Equal(t, other, moves.On().Name)

			p.named(name).Bound(1)
			holds := take(t, p, 1)[name][0]
			waits := &Task{Done: func(*Task) {}}
			require.False(t, p.Acquire(waits))
			p.named(name).Bound(0)
			require.False(t, p.Move(holds))
			require.Empty(t, granted)
			p.Release(moves)
			require.Same(t, holds, <-granted, "ahead of what waits")
			require.EqualValues(t, 2, started.Load(), "it was told of once")

			p.named(other).Bound(0)
			require.False(t, p.Move(holds))
			require.True(t, p.Cancel(holds, strategies.ReasonAbandoned))
			require.Zero(t, shed.Load(), "it has begun")
			p.named(other).Bound(1)
			require.Same(t, waits, <-granted)
			p.Release(waits)
			require.EqualValues(t, 3, started.Load())
			require.Zero(t, p.Gauge().Busy)
		})
	}
}

// What hangs at one resource has few more go there while the others get on, and all once it does.
func TestResources_OneHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hung []*Task
		var done int
		hangs, free := false, map[string][2]time.Time{}
		granted := make(chan *Task, 4096)
		p, err := Lend(Options{
			Strategy: "fifo", Capacity: 16, Learn: &concurrency.Options{}, Resources: []string{"a", "b"}, Grant: func(t *Task) { granted <- t },
		})
		require.NoError(t, err)
		work := func(t *Task) {
			name := t.On().Name
			if name == "a" && hangs {
				hung = append(hung, t)
				return
			}
			at := time.Now()
			if last := free[name][0]; last.After(at) { // it does two at once
				at = last
			}
			at = at.Add(20 * time.Millisecond)
			free[name] = [2]time.Time{free[name][1], at}
			time.AfterFunc(time.Until(at), func() { p.Release(t) })
			done++
		}
		load := func(d time.Duration) { // 2.5 times what both can do
			for range d / (2 * time.Millisecond) {
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				if task := (&Task{Done: func(*Task) {}}); p.Acquire(task) {
					work(task)
				}
				for len(granted) > 0 {
					work(<-granted)
				}
			}
		}
		load(5 * time.Second)
		hangs, done = true, 0
		load(time.Minute)
		require.Greater(t, done, 5900, "of 6000 that the other can do")
		require.Less(t, len(hung), 40)
		hangs, done = false, 0
		p.Release(hung[len(hung)-1])
		load(time.Minute)
		require.Greater(t, done, 11_800, "both do what they can, although some hang for ever")
		for _, t := range hung[:len(hung)-1] {
			p.Release(t)
		}
		p.Close()
		time.Sleep(time.Minute)
		require.Zero(t, p.Gauge().Busy)
	})
}

// Whatever becomes of resources while tasks come, wait, move, are given up and end: none has more places in use than it
// has, nothing waits beside a free place, and at rest all places are free.
func TestResources_Property(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"auto", "fifo", "lifo", "mpmc", "fair", "priority"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			rounds := 20_000
			if testing.Short() {
				rounds = 2_000
			}
			const most = 3
			var over atomic.Int64
			names := []string{"a", "b", "c", "d", "e"}
			p, err := Lend(Options{
				Strategy: strategy, Capacity: 16, Workers: most, Resources: names[:3],
				Grant: func(t *Task) { t.Payload.(chan bool) <- true },
			})
			require.NoError(t, err)
			var clients, changes sync.WaitGroup
			done := make(chan struct{})
			var inUse sync.Map // *Resource to *atomic.Int64
			work := func(task *Task, random *rand.Rand) {
				counter, _ := inUse.LoadOrStore(task.On(), new(atomic.Int64))
				used := counter.(*atomic.Int64)
				if used.Add(1) > most {
					over.Add(1)
				}
				for range random.IntN(3) {
					runtime.Gosched()
				}
				used.Add(-1)
			}
			for range 8 {
				clients.Go(func() {
					random := rand.New(rand.NewPCG(rand.Uint64(), 0))
					decided := make(chan bool, 1)
					task := &Task{Payload: decided, Done: func(*Task) { decided <- false }}
					for range rounds {
						task.Arrival = 0
						held := p.Acquire(task)
						if !held && random.IntN(4) == 0 {
							p.Cancel(task, strategies.ReasonAbandoned)
						}
						for held || <-decided {
							work(task, random)
							if random.IntN(8) != 0 {
								p.Release(task)
								break
							}
							held = p.Move(task)
						}
					}
				})
			}
			changes.Go(func() {
				random := rand.New(rand.NewPCG(rand.Uint64(), 0))
				for {
					select {
					case <-done:
						return
					default:
					}
					switch some := p.Resources(); random.IntN(4) {
					case 0:
						some[random.IntN(len(some))].Bound(0)
					case 1:
						for _, r := range some {
							r.Bound(1 + random.IntN(most))
						}
					case 2:
						set := slices.Clone(names)
						random.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
						p.SetResources(set[:1+random.IntN(len(set))])
					default:
						_ = p.Switch([]string{"sharded", strategy}[random.IntN(2)])
					}
					for range 20 {
						runtime.Gosched()
					}
					for _, r := range p.Resources() {
						r.Bound(most) // so that all come to an end
					}
				}
			})
			clients.Wait()
			close(done)
			changes.Wait()
			require.NoError(t, p.Drain(context.Background()))
			require.Zero(t, over.Load(), "more in use than there are places")
			require.Zero(t, p.Gauge().Busy)
			for _, r := range p.Resources() {
				require.EqualValues(t, most, r.free.Load(), r.Name)
			}
			p.Close()
		})
	}
}
