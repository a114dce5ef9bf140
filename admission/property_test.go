package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// Whatever many goroutines do at once, with contexts that end at any moment, no more
// places are held than there are, every request is told once what became of it, and in
// the end no place is lost.
func TestController_Random(t *testing.T) {
	t.Parallel()
	const goroutines, each, most = 16, 400, 8
	names := slices.DeleteFunc(strategies.Names(), func(name string) bool { return name == "sync" || name == "caller-runs" })
	for _, row := range []struct {
		name             string
		switches, resize bool
		mode             admission.Mode
		least            int // of what SetConcurrency is told, 0 for a number that is learned
	}{
		{"one strategy", false, false, admission.Enforce, 1},
		{"switches", true, false, admission.Enforce, 1},
		{"switches and sizes", true, true, admission.Enforce, 1},
		{"observed", true, true, admission.Observe, 1},
		{"learned", true, false, admission.Enforce, 0},
		{"learned and given in turns", true, true, admission.Enforce, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			var held, admitted, shed, released, observed atomic.Int64
			c := open(t, admission.Options{
				Strategy: names[seed%uint64(len(names))], Concurrency: most * row.least, MaxConcurrency: most, Capacity: 6, Mode: row.mode,
				Admitted: func(admission.Event) { admitted.Add(1) },
				Released: func(admission.Event) { released.Add(1) },
				Shed: func(e admission.Event) {
					if e.Observed {
						observed.Add(1)
					} else {
						shed.Add(1)
					}
				},
			})
			stop := make(chan struct{})
			var others, clients sync.WaitGroup
			others.Go(func() {
				r := rand.New(rand.NewPCG(seed, 0))
				for {
					select {
					case <-stop:
						return
					default:
					}
					if row.switches {
						require.NoError(t, c.Switch(names[r.IntN(len(names))]))
					}
					if row.resize {
						require.NoError(t, c.SetConcurrency(row.least+r.IntN(most)))
					}
					_ = c.Stats()
					runtime.Gosched()
				}
			})
			var asked atomic.Int64
			for g := range goroutines {
				clients.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(1+g)))
					for range each {
						request := admission.Request{
							Priority: strategies.Urgency(r.IntN(8)), Client: fmt.Sprint(r.IntN(4)), Cost: r.IntN(most + 3),
						}
						ctx, cancel := context.WithCancel(context.Background())
						switch r.IntN(4) {
						case 0:
							ctx, cancel = context.WithTimeout(context.Background(), time.Duration(r.IntN(200))*time.Microsecond)
						case 1:
							go cancel()
						}
						var p admission.Permit
						var err error
						if r.IntN(8) == 0 {
							var ok bool
							if p, ok = c.TryAcquire(request); !ok {
								cancel()
								continue
							}
							asked.Add(1)
						} else {
							asked.Add(1)
							p, err = c.Acquire(ctx, request)
						}
						cancel()
						if err != nil {
							if !errors.Is(err, admission.ErrShed) {
								t.Error(err)
							}
							continue
						}
						places := int64(1)
						if !row.resize && row.least > 0 {
							places = int64(min(max(1, request.Cost), most))
						}
						if n := held.Add(places); n > most {
							t.Errorf("seed %d: %d places held of %d", seed, n, most)
						}
						if r.IntN(3) == 0 {
							runtime.Gosched()
						}
						held.Add(-places)
						if r.IntN(3) == 0 {
							p.Tell(admission.Outcome(r.IntN(3)))
						}
						p.Release()
						if r.IntN(4) == 0 {
							p.Tell(admission.Good)
							p.Release()
						}
					}
				})
			}
			clients.Wait()
			close(stop)
			others.Wait()
			require.Eventually(t, func() bool { return c.Stats().InUse == 0 }, time.Minute, time.Millisecond, "seed %d", seed)
			require.LessOrEqual(t, c.Stats().Concurrency, most)
			require.NoError(t, c.SetConcurrency(most)) // which is learned no more
			requireWhole(t, c)
			require.Equal(t, asked.Load(), admitted.Load()+shed.Load()-wholeness(c), "seed %d", seed)
			require.Equal(t, admitted.Load(), released.Load(), "seed %d", seed)
			if row.mode == admission.Enforce {
				require.Zero(t, observed.Load())
			}
		})
	}
}

// wholeness is how many requests requireWhole has made.
func wholeness(c *admission.Controller) int64 { return int64(c.Stats().Concurrency) }

// call is an operation of a history: a request of places, or their release.
type call struct{ cost int }

// semaphore is what the places are: each operation takes effect at one moment between
// its call and its return.
func semaphore(places int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			used, cost := state.(int), input.(call).cost
			switch {
			case cost < 0: // a release
				return true, used + cost
			case output.(bool):
				return used+cost <= places, used + cost
			default:
				return used+cost > places, used
			}
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// Requests that do not wait, and releases, are linearizable: one is refused only if at
// some moment of the call there are not enough places.
func TestTryAcquire_Linearizable(t *testing.T) {
	t.Parallel()
	const places, goroutines, steps, histories = 3, 4, 6, 300
	for range histories {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: places})
		var mu sync.Mutex
		var history []porcupine.Operation
		var clock atomic.Int64
		seed := rand.Uint64()
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(g)))
				record := func(cost int, f func() bool) bool {
					began := clock.Add(1)
					ok := f()
					ended := clock.Add(1)
					mu.Lock()
					defer mu.Unlock()
					history = append(history, porcupine.Operation{ClientId: g, Input: call{cost}, Output: ok, Call: began, Return: ended})
					return ok
				}
				for range steps {
					cost := 1 + r.IntN(places)
					var p admission.Permit
					if record(cost, func() (ok bool) {
						p, ok = c.TryAcquire(admission.Request{Cost: cost})
						return ok
					}) {
						if r.IntN(2) == 0 {
							runtime.Gosched()
						}
						record(-cost, func() bool { p.Release(); return true })
					}
				}
			})
		}
		wg.Wait()
		require.True(t, porcupine.CheckOperations(semaphore(places), history), "seed %d: %v", seed, history)
	}
}

// Requests that wait are linearizable with those that do not: what is granted was free.
func TestAcquire_Linearizable(t *testing.T) {
	t.Parallel()
	const places, goroutines, steps, histories = 3, 5, 5, 200
	model := semaphore(places)
	model.Step = func(state, input, output any) (bool, any) {
		used, cost := state.(int), input.(call).cost
		if !output.(bool) {
			return true, used // others waited, or its context ended
		}
		return used+cost <= places, used + cost
	}
	for i := range histories {
		names := []string{"fifo", "lifo", "mpmc", "unbounded", "auto", "fair", "edf", "priority", "sharded"}
		c := open(t, admission.Options{Strategy: names[i%len(names)], Concurrency: places})
		var mu sync.Mutex
		var history []porcupine.Operation
		var clock atomic.Int64
		seed := rand.Uint64()
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(g)))
				record := func(cost int, began int64, ok bool) {
					ended := clock.Add(1)
					mu.Lock()
					defer mu.Unlock()
					history = append(history, porcupine.Operation{ClientId: g, Input: call{cost}, Output: ok, Call: began, Return: ended})
				}
				for range steps {
					cost := 1 + r.IntN(places)
					ctx, cancel := context.WithCancel(context.Background())
					if r.IntN(3) == 0 {
						go cancel()
					}
					began := clock.Add(1)
					p, err := c.Acquire(ctx, admission.Request{Cost: cost})
					record(cost, began, err == nil)
					cancel()
					if err == nil {
						runtime.Gosched()
						began := clock.Add(1)
						p.Release()
						record(-cost, began, true)
					}
				}
			})
		}
		wg.Wait()
		require.True(t, porcupine.CheckOperations(model, history), "seed %d: %v", seed, history)
		require.Eventually(t, func() bool { return c.Stats().InUse == 0 }, time.Minute, time.Millisecond)
		requireWhole(t, c)
	}
}
