package dispatch

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// client is a goroutine that submits tasks, gives some of them up, and reuses
// each as soon as it is done: what a million connections would do.
type client struct {
	d      *Dispatcher
	random *rand.Rand
	free   chan *Task
	shed   atomic.Int64
	ran    atomic.Int64
	twice  atomic.Int64

	continuing sync.WaitGroup // tasks between two turns
}

// state is the payload of a task.
type state struct {
	submitted atomic.Bool // between Submit and Done
	running   atomic.Int32
	again     atomic.Bool // it has another turn to come
	client    *client
}

func newClient(d *Dispatcher, seed uint64, window int) *client {
	c := &client{d: d, random: rand.New(rand.NewPCG(seed, 0)), free: make(chan *Task, window)}
	for range window {
		t := &Task{Payload: &state{client: c}, Done: done}
		c.free <- t
	}
	return c
}

func done(t *Task) {
	s := t.Payload.(*state)
	c := s.client
	if s.again.Swap(false) && t.Shed == strategies.ReasonNone {
		s.running.Store(0)
		c.continuing.Go(func() { c.d.Continue(t) })
		return
	}
	started := s.running.Swap(0)
	if !s.submitted.Swap(false) || started > 1 || (started == 1) != (t.Shed == strategies.ReasonNone) {
		c.twice.Add(1)
	}
	if t.Shed == strategies.ReasonNone {
		c.ran.Add(1)
	} else {
		c.shed.Add(1)
	}
	c.free <- t
}

func (c *client) submit(tasks int) {
	for range tasks {
		t := <-c.free
		s := t.Payload.(*state)
		t.Arrival = c.d.Now()
		t.Deadline = 0
		t.Write = c.random.IntN(2) == 0
		t.InPlace = c.random.IntN(2) == 0
		if c.random.IntN(8) == 0 {
			t.Deadline = t.Arrival + c.random.Int64N(int64(time.Millisecond))
		}
		s.submitted.Store(true)
		again := !t.Write && c.random.IntN(8) == 0
		s.again.Store(again)
		c.d.Submit(t)
		if again {
			continue // it is a range, which its first turn continues
		}
		// The task may be done already, but nobody else submits it again: to
		// cancel it is always allowed.
		if c.random.IntN(4) == 0 {
			c.d.Cancel(t, strategies.ReasonAbandoned)
		}
	}
}

// Every submitted task is completed exactly once, run or shed and never both,
// while tasks are given up, expire and are displaced, while the strategy is
// switched and the number of workers changes, because somebody says so or a law does, and
// when the dispatcher is drained in the middle.
func TestDispatcher_CompletesEveryTaskExactlyOnce(t *testing.T) {
	t.Parallel()
	total := 1_000_000
	if testing.Short() {
		total = 20_000
	}
	others := strategies.Specs()
	for i, spec := range others {
		name := spec.Name
		t.Run(name, func(t *testing.T) {
			const clients = 4
			seed := rand.Uint64()
			var submitted, started, shed, inRun atomic.Int64
			var blocked atomic.Bool
			d, err := Open(Options{
				Strategy: name, Capacity: 16, Workers: 4, MaxBatch: 4, Split: seed%3 == 0,
				Blocked: func(bool) bool { return blocked.Load() },
				Run: func(tasks []*Task, done func(*Task)) {
					inRun.Add(int64(len(tasks)))
					for _, t := range tasks {
						t.Payload.(*state).running.Add(1)
					}
					if len(tasks) == 2 { // as a commit that is handed on
						tasks := append([]*Task(nil), tasks...)
						go func() {
							for _, t := range tasks {
								done(t)
							}
						}()
						return
					}
					for _, t := range tasks {
						done(t)
					}
				},
				Events: func(strategies.Spec) Events {
					return Events{
						Submitted: func() { submitted.Add(1) },
						Started:   func(time.Duration) { started.Add(1) },
						Shed:      func(strategies.Reason) { shed.Add(1) },
					}
				},
			})
			require.NoError(t, err)

			if seed%3 == 1 {
				d.pools[0].limit.set(0, &learning{law: new(dice), bounds: concurrency.Options{Min: 1, Max: 9}})
			}

			cs := make([]*client, clients)
			var submitters, switcher sync.WaitGroup
			for c := range cs {
				cs[c] = newClient(d, seed+uint64(c), 24)
				submitters.Go(func() { cs[c].submit(total / clients) })
			}
			stop := make(chan struct{})
			switcher.Go(func() {
				for n := i; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					_ = d.Switch(others[n%len(others)].Name)
					for range 100 {
						runtime.Gosched()
					}
					_ = d.Switch(name)
					for range 1000 {
						runtime.Gosched()
					}
				}
			})
			switcher.Go(func() {
				defer d.Unblock()
				defer blocked.Store(false)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					blocked.Store(n%2 == 0)
					if n%2 == 1 {
						d.Unblock()
					}
					for range 300 {
						runtime.Gosched()
					}
				}
			})
			switcher.Go(func() {
				for n := 0; seed%3 == 2; n++ {
					select {
					case <-stop:
						return
					default:
					}
					d.Resize(1 + n*7%9)
					for range 100 {
						runtime.Gosched()
					}
				}
			})
			submitters.Wait()
			close(stop)
			switcher.Wait()
			// What still waits is either run or shed by a drain without time.
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = d.Drain(ctx)
			require.NoError(t, d.Drain(context.Background()))
			for _, c := range cs {
				c.continuing.Wait()
			}
			require.NoError(t, d.Drain(context.Background()))
			d.Close()

			var ran, gone int64
			for _, c := range cs {
				require.Zero(t, c.twice.Load(), "tasks completed twice, or both run and shed (seed %d)", seed)
				require.Len(t, c.free, cap(c.free), "tasks lost (seed %d)", seed)
				ran += c.ran.Load()
				gone += c.shed.Load()
			}
			require.EqualValues(t, total, ran+gone)
			require.GreaterOrEqual(t, inRun.Load(), ran)
			require.EqualValues(t, total, submitted.Load())
			// A range that was begun counts as run, also if it was shed later.
			require.GreaterOrEqual(t, started.Load(), ran)
			require.EqualValues(t, total, started.Load()+shed.Load())
			for _, p := range d.pools {
				require.Zero(t, p.reads.Load(), "reads that wait are counted wrongly (seed %d)", seed)
			}
		})
	}
}
