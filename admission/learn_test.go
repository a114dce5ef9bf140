package admission_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// A number of places that is not given is learned, between bounds, and may be given and
// learned in turns.
func TestLearned(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{})
	s := c.Stats()
	require.NotNil(t, s.Learned)
	require.Equal(t, s.Concurrency, s.Learned.Limit)
	require.Equal(t, 1, s.Learned.Min)
	require.Equal(t, concurrency.DefaultMax, s.Learned.Max)
	require.NotEmpty(t, s.Learned.Why)
	require.NoError(t, c.SetConcurrency(3))
	require.Nil(t, c.Stats().Learned)
	requireWhole(t, c)
	require.NoError(t, c.SetConcurrency(0))
	require.NotNil(t, c.Stats().Learned)

	c = open(t, admission.Options{MinConcurrency: 7, MaxConcurrency: 7})
	require.Equal(t, 7, c.Stats().Concurrency)
	require.Equal(t, &admission.Learned{Limit: 7, Min: 7, Max: 7, Why: c.Stats().Learned.Why}, c.Stats().Learned)
	requireWhole(t, c)
}

// All that is true of places that are given is true of those that are learned: who waits
// goes when its context ends, what is drained is finished, and what is closed turned away.
func TestLearned_ContextsEnd(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies.Names() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, admission.Options{Strategy: strategy, MaxConcurrency: 1})
				if c.Stats().Concurrency == 0 {
					return // nobody ever waits
				}
				held := take(t, c, 1)
				ask := func(ctx context.Context) <-chan error {
					result := make(chan error, 1)
					go func() {
						p, err := c.Acquire(ctx, admission.Request{})
						result <- err
						p.Release()
					}()
					synctest.Wait()
					return result
				}
				late, cancelLate := context.WithTimeout(t.Context(), time.Second)
				defer cancelLate()
				gone, cancel := context.WithCancel(t.Context())
				first, second, third := ask(late), ask(gone), ask(t.Context())
				if strategy == "caller-runs" {
					require.Empty(t, third)
				}
				cancel()
				require.ErrorIs(t, <-second, context.Canceled)
				require.ErrorIs(t, <-first, context.DeadlineExceeded)
				require.Empty(t, third)
				held.Tell(admission.Good)
				synctest.Wait()
				require.Empty(t, third, "the place is still held")
				held.Release()
				require.NoError(t, <-third)
				synctest.Wait() // until it has given its place back

				held = take(t, c, 1)
				waiting := ask(t.Context())
				drained := make(chan error, 1)
				go func() { drained <- c.Drain(t.Context()) }()
				synctest.Wait()
				held.Release()
				require.NoError(t, <-waiting)
				require.NoError(t, <-drained)
				synctest.Wait()
				require.Zero(t, c.Stats().InUse)
				c.Close()
				_, err := c.Acquire(t.Context(), admission.Request{})
				require.ErrorIs(t, err, admission.ErrClosed)
			})
		})
	}
}

// Do tells a law what became of the work: what ran out of time is dropped. Whose caller has left,
// and what panics, tells nothing.
func TestLearned_Do(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{})
		failed := errors.New("failed")
		for _, row := range []struct {
			err     error
			dropped uint64
		}{{nil, 0}, {failed, 0}, {context.DeadlineExceeded, 1}, {context.Canceled, 1}} {
			require.Equal(t, row.err, c.Do(t.Context(), admission.Request{}, func(context.Context) error { return row.err }))
			require.Equal(t, row.dropped, c.Stats().Learned.Dropped)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, failed, c.Do(late, admission.Request{}, func(ctx context.Context) error { <-ctx.Done(); return failed }))
		require.EqualValues(t, 2, c.Stats().Learned.Dropped, "whatever it says")
		require.Panics(t, func() {
			_ = c.Do(t.Context(), admission.Request{}, func(context.Context) error { panic("it fails") })
		})
		require.Zero(t, c.Stats().InUse)
	})
}

// Two upstreams that take the same requests at the same times and answer them at the same
// times, as long as nobody is held back. One does a request at a time, the other does all
// that come. Only who holds requests back learns which it is, so observing cannot tell who
// would wait, or be turned away.
func TestLearned_ObservedCannotTell(t *testing.T) {
	t.Parallel()
	const clients, took = 100, 2500 * time.Microsecond
	upstreams := map[string]func() func(client, request int){
		"one at a time": func() func(int, int) {
			place := make(chan struct{}, 1)
			return func(int, int) {
				place <- struct{}{}
				time.Sleep(took)
				<-place
			}
		},
		"all at once": func() func(int, int) {
			return func(client, request int) {
				if request == 0 {
					time.Sleep(time.Duration(client+1) * took)
					return
				}
				time.Sleep(clients * took)
			}
		},
	}
	// load returns when requests were answered by an upstream.
	load := func(t *testing.T, c *admission.Controller, upstream func(int, int), lasts time.Duration) (answered []time.Duration) {
		began := time.Now()
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				for n := 0; time.Since(began) < lasts; n++ {
					if err := c.Do(t.Context(), admission.Request{}, func(context.Context) error { upstream(i, n); return nil }); err != nil {
						t.Error(err)
					}
					mu.Lock()
					answered = append(answered, time.Since(began))
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return answered
	}
	var observed [][]time.Duration
	learned := map[string]int{}
	for name, upstream := range upstreams {
		synctest.Test(t, func(t *testing.T) {
			c := open(t, admission.Options{Mode: admission.Observe, Objective: admission.NoObjective})
			observed = append(observed, load(t, c, upstream(), 10*time.Second))
			c = open(t, admission.Options{Objective: admission.NoObjective}) // nobody is refused
			load(t, c, upstream(), time.Minute)
			learned[name] = c.Stats().Learned.Limit
		})
	}
	require.Greater(t, len(observed[0]), 3900)
	require.Equal(t, observed[0], observed[1])
	require.Less(t, learned["one at a time"], 10)
	require.Greater(t, learned["all at once"], 50)
}

// A number that is observed holds nobody back, whatever it is.
func TestLearned_Observed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Mode: admission.Observe, MaxConcurrency: 2})
		var running atomic.Int64
		for range 100 {
			go func() {
				_ = c.Do(t.Context(), admission.Request{}, func(context.Context) error {
					running.Add(1)
					time.Sleep(time.Second)
					return nil
				})
			}()
		}
		synctest.Wait()
		require.EqualValues(t, 100, running.Load())
		s := c.Stats()
		require.Equal(t, 100, s.InUse)
		require.Equal(t, 2, s.Concurrency)
		require.Zero(t, s.Waiting)
		time.Sleep(time.Minute)
		require.NoError(t, c.SetConcurrency(3))
		requireWhole(t, c)
	})
}

// A request that was given up, and whose turn comes later as the strategy cannot remove
// it, makes no use of its place. So it tells a law nothing of how long requests take.
func TestLearned_LeftBeforeItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fifo, err := strategies.Lookup("fifo")
		require.NoError(t, err)
		c := open(t, admission.Options{Spec: strategies.Spec{Name: "lasting", New: func(o strategies.Config) strategies.Discipline {
			return struct{ strategies.Discipline }{fifo.New(o)} // which is no Remover
		}}})
		limit := c.Stats().Concurrency
		for range 100 {
			var held []admission.Permit
			for range limit {
				held = append(held, take(t, c, 1))
				held[len(held)-1].Tell(admission.Ignored)
			}
			ctx, cancel := context.WithCancel(t.Context())
			for range 10 {
				go func() {
					if _, err := c.Acquire(ctx, admission.Request{}); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}()
			}
			synctest.Wait()
			cancel()
			synctest.Wait()
			time.Sleep(time.Millisecond) // a law goes by the time as well
			for _, p := range held {
				p.Release()
			}
			synctest.Wait()
			require.Equal(t, limit, c.Stats().Concurrency)
		}
		requireWhole(t, c)
	})
}
