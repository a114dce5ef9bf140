package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
)

func newGroup(t *testing.T, o admission.GroupOptions) *admission.Group {
	t.Helper()
	g, err := admission.NewGroup(o)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// state returns the state of a resource.
func state(g *admission.Group, name string) admission.ResourceState {
	for _, r := range g.Resources() {
		if r.Name == name {
			return r
		}
	}
	return admission.ResourceState{}
}

// on has so many requests end like that on a resource, one after the other.
func on(t *testing.T, g *admission.Group, name string, how admission.Outcome, times int) {
	t.Helper()
	for tries := 0; times > 0; tries++ {
		require.Less(t, tries, 1000, "none goes to %s", name)
		p, err := g.Acquire(context.Background(), admission.Request{})
		require.NoError(t, err)
		if p.Resource() != name {
			p.Done(admission.Good)
			continue
		}
		p.Done(how)
		times--
	}
}

func TestGroup_BadOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]admission.GroupOptions{
		"Resources are none":    {},
		`"a" is given twice`:    {Resources: []string{"a", "b", "a"}},
		"Concurrency is -1":     {Resources: []string{"a"}, Options: admission.Options{Concurrency: -1}},
		"InitialConcurrency is": {Resources: []string{"a"}, Options: admission.Options{InitialConcurrency: 9, MaxConcurrency: 8}},
	} {
		_, err := admission.NewGroup(o)
		require.ErrorContains(t, err, want)
	}
	g := newGroup(t, admission.GroupOptions{Resources: []string{"a"}})
	require.ErrorContains(t, g.SetResources(nil), "Resources are none")
	require.ErrorContains(t, g.SetResources([]string{"b", "b"}), "given twice")
	g.Close()
	require.ErrorIs(t, g.SetResources([]string{"b"}), admission.ErrClosed)
}

func TestGroup_EachHasItsOwnNumber(t *testing.T) {
	t.Parallel()
	g := newGroup(t, admission.GroupOptions{Resources: []string{"a", "b"}, Options: admission.Options{Concurrency: 2}})
	require.Equal(t, 4, g.Stats().Concurrency)
	var all []admission.Permit
	for range 4 {
		p, ok := g.TryAcquire(admission.Request{Cost: 2})
		require.True(t, ok)
		all = append(all, p)
	}
	_, ok := g.TryAcquire(admission.Request{})
	require.False(t, ok)
	require.Equal(t, 2, state(g, "a").InUse)
	require.Equal(t, 2, state(g, "b").InUse)
	require.NoError(t, g.SetResources([]string{"b", "c"}))
	require.Equal(t, 2, state(g, "b").InUse)
	require.Zero(t, state(g, "c").InUse)
	for _, p := range all {
		p.Release()
	}
	require.Zero(t, g.Stats().InUse)
	require.NoError(t, g.SetConcurrency(0))
	require.Equal(t, 8, g.Stats().Concurrency)
	require.Equal(t, 8, g.Stats().Learned.Limit)
}

// What fails rests, is probed, and returns.
func TestGroup_Rests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reachable atomic.Bool
		var probes atomic.Int64
		g := newGroup(t, admission.GroupOptions{
			Resources: []string{"a", "b"}, Options: admission.Options{Concurrency: 4},
			Probe: func(_ context.Context, resource string) error {
				require.Equal(t, "a", resource)
				probes.Add(1)
				if !reachable.Load() {
					return errors.New("connection refused")
				}
				return nil
			},
		})
		on(t, g, "a", admission.Dropped, 2)
		on(t, g, "a", admission.Good, 1)
		on(t, g, "a", admission.Dropped, 3)
		require.Zero(t, state(g, "a").Allowed)
		require.Equal(t, 8, g.Stats().Concurrency, "people see what all could do")
		for range 4 {
			p, ok := g.TryAcquire(admission.Request{})
			require.True(t, ok)
			require.Equal(t, "b", p.Resource())
			defer p.Release()
		}
		_, ok := g.TryAcquire(admission.Request{})
		require.False(t, ok)

		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 1, probes.Load())
		require.Zero(t, state(g, "a").Allowed)
		require.Equal(t, 1500*time.Millisecond, state(g, "a").Unwell)
		reachable.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, probes.Load())
		require.Equal(t, 1, state(g, "a").Allowed)
		p, ok := g.TryAcquire(admission.Request{})
		require.True(t, ok)
		require.Equal(t, "a", p.Resource())
		_, ok = g.TryAcquire(admission.Request{})
		require.False(t, ok, "one is the probe")
		p.Release()
		require.Greater(t, state(g, "a").Allowed, 1)
		for range 20 {
			p, ok := g.TryAcquire(admission.Request{})
			require.True(t, ok)
			p.Release()
		}
		require.Equal(t, math.MaxInt, state(g, "a").Allowed)
		require.Zero(t, state(g, "a").Unwell)
	})
}

func TestGroup_Do(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		down  map[string]bool
		tried int
		good  bool
	}{
		{"all there", nil, 1, true},
		{"one there", map[string]bool{"a": true, "b": true}, 3, true},
		{"none there", map[string]bool{"a": true, "b": true, "c": true}, 3, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, admission.GroupOptions{Resources: []string{"a", "b", "c"}})
			most := 0
			for range 8 {
				tried := 0
				err := g.Do(context.Background(), admission.Request{}, func(_ context.Context, resource string) error {
					tried++
					if test.down[resource] {
						return admission.ErrUnreached
					}
					return nil
				})
				most = max(most, tried)
				if test.good {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, admission.ErrUnreached)
				}
			}
			require.LessOrEqual(t, most, test.tried)
			require.Zero(t, g.Stats().InUse)
		})
	}
}

// An error of the function is one of its resource, as a status of 500 is, and no good answer.
func TestGroup_DoFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err     error
		allowed int
	}{
		"good":      {nil, math.MaxInt},
		"failed":    {errors.New("it fails"), 0},
		"timed out": {context.DeadlineExceeded, 0},
		"cancelled": {context.Canceled, math.MaxInt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inTime := 0
				g := newGroup(t, admission.GroupOptions{Resources: []string{"a", "b"}, Options: admission.Options{
					Released: func(e admission.Event) {
						if e.InTime {
							inTime++
						}
					},
				}})
				of := map[string]int{}
				for of["a"] < 3 {
					var got error
					err := g.Do(t.Context(), admission.Request{}, func(_ context.Context, resource string) error {
						if of[resource]++; resource == "a" {
							got = test.err
						}
						return got
					})
					require.Equal(t, got, err)
				}
				require.Equal(t, test.allowed, state(g, "a").Allowed)
				if test.err == nil {
					require.Equal(t, of["a"]+of["b"], inTime)
				} else {
					require.Equal(t, of["b"], inTime)
				}
			})
		})
	}
}

// Who has to go elsewhere waits there, before the others, for as long as its context lasts.
func TestGroup_WaitsElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var admitted, released atomic.Int64
		g := newGroup(t, admission.GroupOptions{Resources: []string{"a", "b"}, Options: admission.Options{
			Strategy: "fifo", Concurrency: 1,
			Admitted: func(admission.Event) { admitted.Add(1) }, Released: func(admission.Event) { released.Add(1) },
		}})
		held := map[string]admission.Permit{}
		for range 2 {
			p, _ := g.TryAcquire(admission.Request{})
			held[p.Resource()] = p
		}
		waiting := make(chan string, 1)
		go func() {
			p, err := g.Acquire(context.Background(), admission.Request{})
			require.NoError(t, err)
			waiting <- p.Resource()
			p.Release()
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		_, err := g.Again(ctx, held["a"])
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, admission.ErrShed)
		_, err = g.Again(ctx, held["a"])
		require.ErrorContains(t, err, "was given back")
		held["b"].Release()
		require.Equal(t, "b", <-waiting)
		synctest.Wait()
		require.Zero(t, g.Stats().InUse)
		require.EqualValues(t, 3, admitted.Load())
		require.EqualValues(t, 3, released.Load(), "each that had its place")
	})
}

// Whoever was admitted is released once, whatever becomes of it elsewhere.
func TestGroup_ReleasedOnce(t *testing.T) {
	t.Parallel()
	var admitted, released atomic.Int64
	g := newGroup(t, admission.GroupOptions{Resources: []string{"a", "b"}, Options: admission.Options{
		Strategy: "fifo", Concurrency: 1,
		Admitted: func(admission.Event) { admitted.Add(1) },
		Released: func(admission.Event) { released.Add(1) },
	}})
	held := map[string]admission.Permit{}
	for range 2 {
		p, _ := g.TryAcquire(admission.Request{})
		held[p.Resource()] = p
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := g.Again(ctx, held["a"])
	require.ErrorIs(t, err, admission.ErrShed)
	require.EqualValues(t, 1, released.Load(), "it was shed while it waited elsewhere")
	_, err = g.Again(context.Background(), held["b"])
	require.ErrorIs(t, err, admission.ErrUnreached)
	require.EqualValues(t, 2, released.Load(), "all others rest")
	require.EqualValues(t, 2, admitted.Load())
	require.Zero(t, g.Stats().InUse)
}

// Clients who have no time left say nothing of a resource, where its usual time is known.
func TestGroup_HurriedClients(t *testing.T) {
	t.Parallel()
	for name, concurrency := range map[string]int{"given": 4, "learned": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, admission.GroupOptions{Resources: []string{"a", "b"}, Options: admission.Options{Strategy: "fifo", Concurrency: concurrency}})
				// fail has so many requests of a take as long as they are given; those of b do well.
				fail := func(times int, given time.Duration) {
					for times > 0 {
						ctx, cancel := context.WithTimeout(context.Background(), given)
						p, err := g.Acquire(ctx, admission.Request{})
						require.NoError(t, err)
						if p.Resource() == "b" {
							time.Sleep(given / 2)
							p.Done(admission.Good)
						} else {
							<-ctx.Done()
							p.Done(admission.Dropped)
							times--
						}
						cancel()
					}
				}
				for range 200 { // one in 16 is measured, and after eight of those it is known
					p, _ := g.Acquire(context.Background(), admission.Request{})
					time.Sleep(20 * time.Millisecond)
					p.Release()
				}
				fail(20, 5*time.Millisecond)
				require.Zero(t, resting(g))
				fail(3, 30*time.Millisecond) // who had the time
				require.Equal(t, 1, resting(g))
			})
		})
	}
}

// resting returns how many rest.
func resting(g *admission.Group) (n int) {
	for _, r := range g.Resources() {
		if r.Allowed == 0 {
			n++
		}
	}
	return n
}

// Wait elsewhere is told as such: not as the time since the clock began.
func TestGroup_WaitsElsewhereForSoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waited atomic.Int64
		g := newGroup(t, admission.GroupOptions{Resources: []string{"a", "b"}, Options: admission.Options{
			Strategy: "fifo", Concurrency: 1, Released: func(e admission.Event) { waited.Store(int64(e.Waited)) },
		}})
		time.Sleep(time.Hour)
		held := map[string]admission.Permit{}
		for range 2 {
			p, _ := g.TryAcquire(admission.Request{})
			held[p.Resource()] = p
		}
		time.AfterFunc(time.Second/2, held["b"].Release)
		p, err := g.Again(context.Background(), held["a"])
		require.NoError(t, err)
		require.Equal(t, "b", p.Resource())
		p.Release()
		require.EqualValues(t, time.Second/2, waited.Load())
	})
}

// Close waits for no probe that is slow.
func TestGroup_CloseEndsProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, admission.GroupOptions{
			Resources: []string{"a", "b"}, Options: admission.Options{Concurrency: 4},
			Probe: func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return ctx.Err()
			},
		})
		on(t, g, "a", admission.Unreached, 1)
		time.Sleep(2 * time.Second)
		before := time.Now()
		g.Close()
		require.Zero(t, time.Since(before))
	})
}

// Whatever becomes of the resources and of the list while requests come, go elsewhere, are given up and end: each has
// an end, and at rest all places are free.
func TestGroup_Property(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"auto", "fifo", "fair", "sync", "caller-runs", "priority"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			rounds := 3_000
			if testing.Short() {
				rounds = 600
			}
			names := []string{"a", "b", "c", "d", "e"}
			var admitted, released atomic.Int64
			g := newGroup(t, admission.GroupOptions{Resources: names[:3], Options: admission.Options{
				Strategy: strategy, Concurrency: 3, Capacity: 16,
				Admitted: func(admission.Event) { admitted.Add(1) }, Released: func(admission.Event) { released.Add(1) },
			}, Probe: func(context.Context, string) error {
				if rand.IntN(2) == 0 {
					return errors.New("refused")
				}
				return nil
			}})
			var clients, changes sync.WaitGroup
			done := make(chan struct{})
			for range 8 {
				clients.Go(func() {
					for range rounds {
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(1000))*time.Microsecond)
						_ = g.Do(ctx, admission.Request{Client: names[rand.IntN(5)]}, func(context.Context, string) error {
							runtime.Gosched()
							switch rand.IntN(10) {
							case 0:
								return admission.ErrUnreached
							case 1:
								return context.DeadlineExceeded
							}
							return nil
						})
						cancel()
					}
				})
			}
			changes.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					set := slices.Clone(names)
					rand.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
					_ = g.SetResources(set[:1+rand.IntN(len(set))])
					_ = g.SetConcurrency(3 * (i % 2)) // learned, and 3
					_ = g.SetMode(admission.Mode(i / 2 % 2))
					g.Resources()
					for range 20 {
						runtime.Gosched()
					}
				}
			})
			clients.Wait()
			close(done)
			changes.Wait()
			require.NoError(t, g.SetConcurrency(3))
			require.NoError(t, g.SetResources([]string{"x", "y"}))
			require.NoError(t, g.SetMode(admission.Enforce))
			require.NoError(t, g.Switch("fifo"))
			require.NoError(t, g.Drain(context.Background()), "nobody is left")
			require.Zero(t, g.Stats().InUse)
			require.Equal(t, admitted.Load(), released.Load())
		})
	}
}

// Who could not reach a resource never gets it again in its place while another is healthy, however many find that out
// at once, and also when it has only just been added.
func TestGroup_AgainIsAnother(t *testing.T) {
	t.Parallel()
	g := newGroup(t, admission.GroupOptions{Resources: []string{"there"}, Options: admission.Options{Strategy: "fifo", Concurrency: 8, Capacity: 1000}})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var moved atomic.Int64
	for range 24 {
		all.Go(func() {
			for ctx.Err() == nil {
				p, err := g.Acquire(context.Background(), admission.Request{})
				for err == nil && p.Resource() != "there" {
					was := p.Resource()
					if p, err = g.Again(context.Background(), p); p.Resource() == was {
						t.Error("it is given the same one again")
						stop()
					}
					moved.Add(1)
				}
				if err != nil {
					t.Error(err)
					stop()
					return
				}
				runtime.Gosched()
				p.Release()
			}
		})
	}
	for n := 0; n < 1000 && ctx.Err() == nil; n++ {
		away := fmt.Sprint("away ", n)
		require.NoError(t, g.SetResources([]string{"there", away}))
		require.Eventually(t, func() bool { return state(g, away).Allowed == 0 || ctx.Err() != nil }, time.Minute, 10*time.Microsecond)
	}
	stop()
	all.Wait()
	require.Positive(t, moved.Load())
}
