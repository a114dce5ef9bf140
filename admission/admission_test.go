package admission_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func open(tb testing.TB, o admission.Options) *admission.Controller {
	tb.Helper()
	c, err := admission.New(o)
	require.NoError(tb, err)
	return c
}

func take(tb testing.TB, c *admission.Controller, cost int) admission.Permit {
	tb.Helper()
	p, ok := c.TryAcquire(admission.Request{Cost: cost})
	require.True(tb, ok)
	return p
}

// requireWhole finds a place that was lost, or one too many.
func requireWhole(tb testing.TB, c *admission.Controller) {
	tb.Helper()
	s := c.Stats()
	require.Zero(tb, s.InUse, "places in use")
	require.Zero(tb, s.Waiting)
	if s.Strategy == "sync" {
		return
	}
	var all []admission.Permit
	for range s.Concurrency {
		all = append(all, take(tb, c, 1))
	}
	_, ok := c.TryAcquire(admission.Request{})
	require.False(tb, ok, "a place more than there are")
	for _, p := range all {
		p.Release()
	}
}

func TestNew_BadOptions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		o    admission.Options
		want string
	}{
		{admission.Options{Concurrency: -1}, "admission: Concurrency is -1, 1 to 1048576 is allowed, or 0 to have it learned"},
		{admission.Options{Concurrency: 1<<20 + 1}, "admission: Concurrency is 1048577, 1 to 1048576 is allowed, or 0 to have it learned"},
		{admission.Options{MinConcurrency: -1}, "admission: MinConcurrency is -1, 1 to 1048576 is allowed, or 0 for 1"},
		{admission.Options{MaxConcurrency: 1<<20 + 1}, "admission: MaxConcurrency is 1048577, 1 to 1048576 is allowed, or 0 for 10000"},
		{admission.Options{MinConcurrency: 9, MaxConcurrency: 8}, "admission: MinConcurrency is 9, which is more than MaxConcurrency, 8"},
		{admission.Options{InitialConcurrency: -1}, "admission: InitialConcurrency is -1, 1 to 10000 is allowed, or 0 for the default"},
		{admission.Options{InitialConcurrency: 20_000}, "admission: InitialConcurrency is 20000, 1 to 10000 is allowed, or 0 for the default"},
		{
			admission.Options{MinConcurrency: 3, MaxConcurrency: 5, InitialConcurrency: 2},
			"admission: InitialConcurrency is 2, 3 to 5 is allowed, or 0 for the default",
		},
		{admission.Options{Objective: -time.Second}, "admission: Objective is -1s, 100µs to 1h0m0s is allowed, 0 for the default, or NoObjective"},
		{admission.Options{Objective: time.Microsecond}, "admission: Objective is 1µs, 100µs to 1h0m0s is allowed, 0 for the default, or NoObjective"},
		{admission.Options{Objective: 24 * time.Hour}, "admission: Objective is 24h0m0s, 100µs to 1h0m0s is allowed, 0 for the default, or NoObjective"},
		{admission.Options{Concurrency: 1, Capacity: -5}, "admission: Capacity is -5, 1 to 16777216 is allowed, or 0 for the default"},
		{admission.Options{Concurrency: 1, Capacity: 1<<24 + 1}, "admission: Capacity is 16777217, 1 to 16777216 is allowed, or 0 for the default"},
		{admission.Options{Concurrency: 1, Mode: 2}, "admission: Mode is 2, Enforce (0) and Observe (1) are allowed"},
		{
			admission.Options{Concurrency: 1, Strategy: "fifo", Spec: strategies.EDF(strategies.EDFOptions{})},
			`admission: Strategy is "fifo" although Spec is given, one of them is allowed`,
		},
		{
			admission.Options{Concurrency: 1, Spec: strategies.CoDel(strategies.CoDelOptions{Target: -time.Second})},
			`admission: strategy "codel": Target is -1s, 1µs to 1h is allowed`,
		},
		{admission.Options{Concurrency: 1, Spec: strategies.Spec{Name: "mine"}}, `admission: strategy "mine": New is nil`},
		{
			admission.Options{Concurrency: 1, Spec: strategies.Spec{Name: "mine", New: func(strategies.Config) strategies.Discipline { return nil }}},
			`admission: strategy "mine": New returned no discipline`,
		},
	} {
		_, err := admission.New(row.o)
		require.EqualError(t, err, row.want)
	}
	_, err := admission.New(admission.Options{Concurrency: 1, Strategy: "nonsense"})
	require.ErrorIs(t, err, strategies.ErrUnknown)

	c := open(t, admission.Options{Concurrency: 1})
	require.EqualError(t, c.SetConcurrency(-1), "admission: Concurrency is -1, 1 to 1048576 is allowed, or 0 to have it learned")
	require.ErrorIs(t, c.Switch("nonsense"), strategies.ErrUnknown)
	require.Error(t, c.SwitchTo(strategies.Spec{}))
	s := c.Stats()
	require.Equal(t, "auto", s.Strategy)
	require.Equal(t, 4096, s.Capacity)
	require.Equal(t, 1, s.Concurrency)
	require.Nil(t, s.Learned)
}

// No more run at once than there are places, and all run in the end.
func TestAcquire_WaitsItsTurn(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies.Names() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, admission.Options{Strategy: strategy, Concurrency: 2, Capacity: 10})
				var running, most, served atomic.Int64
				for range 12 {
					go func() {
						p, err := c.Acquire(t.Context(), admission.Request{})
						require.NoError(t, err)
						n := running.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						time.Sleep(time.Millisecond)
						running.Add(-1)
						served.Add(1)
						p.Release()
					}()
				}
				time.Sleep(time.Minute)
				require.EqualValues(t, 12, served.Load())
				if strategy != "sync" {
					require.EqualValues(t, 2, most.Load())
				}
				requireWhole(t, c)
			})
		})
	}
}

func TestAcquire_ContextEnds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		end    func(context.Context) (context.Context, context.CancelFunc)
		cause  error
		reason strategies.Reason
	}{
		"its deadline": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
			context.DeadlineExceeded, strategies.ReasonExpired,
		},
		"cancelled": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
			context.Canceled, strategies.ReasonAbandoned,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Also where the strategy cannot give up what waits.
			for _, spec := range []strategies.Spec{strategies.CoDel(strategies.CoDelOptions{}), stubborn} {
				synctest.Test(t, func(t *testing.T) {
					c := open(t, admission.Options{Spec: spec, Concurrency: 1})
					held := take(t, c, 1)
					ctx, cancel := row.end(t.Context())
					defer cancel()
					began := time.Now()
					_, err := c.Acquire(ctx, admission.Request{})
					require.Equal(t, time.Second, time.Since(began))
					require.ErrorIs(t, err, admission.ErrShed)
					require.NotErrorIs(t, err, admission.ErrClosed)
					require.ErrorIs(t, err, row.cause)
					var shed *admission.ShedError
					require.ErrorAs(t, err, &shed)
					require.Equal(t, row.reason, shed.Reason)
					require.Zero(t, shed.RetryAfter)
					_, err = c.Acquire(ctx, admission.Request{})
					require.ErrorIs(t, err, row.cause, "it had ended before")
					held.Release()
					synctest.Wait()
					requireWhole(t, c)
				})
			}
		})
	}
}

// stubborn is first-in first-out, and gives up nothing before its turn.
var stubborn = strategies.Spec{Name: "stubborn", New: func(c strategies.Config) strategies.Discipline {
	fifo, _ := strategies.Lookup("fifo")
	return struct{ strategies.Discipline }{fifo.New(c)}
}}

func TestAcquire_TurnedAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 1, Capacity: 1})
		held := take(t, c, 1)
		go func() {
			p, err := c.Acquire(t.Context(), admission.Request{})
			require.NoError(t, err)
			p.Release()
		}()
		synctest.Wait()
		_, err := c.Acquire(t.Context(), admission.Request{})
		require.EqualError(t, err, "admission: shed: full")
		var shed *admission.ShedError
		require.ErrorAs(t, err, &shed)
		require.Equal(t, time.Second, shed.RetryAfter)
		require.NoError(t, errors.Unwrap(err))
		_, ok := c.TryAcquire(admission.Request{})
		require.False(t, ok)
		held.Release()
		synctest.Wait()
		requireWhole(t, c)
	})
}

// Who is turned away is told how long the queue takes to drain, but no more than half a minute.
func TestAcquire_RetryAfter(t *testing.T) {
	t.Parallel()
	for takes, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Second, 100 * time.Millisecond: 11 * time.Second, time.Minute: 30 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := open(t, admission.Options{Strategy: "fifo", Concurrency: 1, Capacity: 100})
			held := take(t, c, 1)
			for range 100 {
				go func() {
					p, err := c.Acquire(t.Context(), admission.Request{})
					require.NoError(t, err)
					time.Sleep(takes)
					p.Release()
				}()
			}
			synctest.Wait()
			held.Release()
			time.Sleep(101 * takes) // it is known now
			held = take(t, c, 1)
			ctx, cancel := context.WithCancel(t.Context())
			for range 100 {
				go func() { _, _ = c.Acquire(ctx, admission.Request{}) }()
			}
			synctest.Wait()
			_, err := c.Acquire(t.Context(), admission.Request{})
			var shed *admission.ShedError
			require.ErrorAs(t, err, &shed)
			require.Equal(t, want, shed.RetryAfter)
			cancel()
			held.Release()
		})
	}
}

// The first word on how a request ended counts, and what comes after it changes nothing, also
// once the places are taken again.
func TestPermit_Done(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			name    string
			end     func(admission.Permit)
			dropped uint64
		}{
			{"good", func(p admission.Permit) { p.Done(admission.Good) }, 0},
			{"dropped", func(p admission.Permit) { p.Done(admission.Dropped) }, 1},
			{"ignored", func(p admission.Permit) { p.Done(admission.Ignored) }, 0},
			{"no outcome there is", func(p admission.Permit) { p.Done(7) }, 0},
			{"released is good", func(p admission.Permit) { p.Release(); p.Done(admission.Dropped) }, 0},
			{"twice", func(p admission.Permit) { p.Done(admission.Dropped); p.Done(admission.Dropped) }, 1},
			{"told before", func(p admission.Permit) { p.Tell(admission.Dropped); p.Done(admission.Good) }, 1},
			{"told before as good", func(p admission.Permit) { p.Tell(admission.Good); p.Done(admission.Dropped) }, 0},
			{"told after", func(p admission.Permit) { p.Done(admission.Good); p.Tell(admission.Dropped) }, 0},
		} {
			c := open(t, admission.Options{MaxConcurrency: 1})
			first := take(t, c, 1)
			row.end(first)
			require.Equal(t, row.dropped, c.Stats().Learned.Dropped, row.name)
			require.Zero(t, c.Stats().InUse, row.name)
			next := take(t, c, 1)
			first.Tell(admission.Dropped)
			first.Done(admission.Dropped)
			require.Equal(t, 1, c.Stats().InUse, row.name)
			require.Equal(t, row.dropped, c.Stats().Learned.Dropped, row.name)
			next.Release()
			admission.Permit{}.Done(admission.Dropped)
		}
	})
}

// What a request does under its context is part of it: it has its places, and waits for no
// others of the same controller.
func TestPermit_Context(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		c, other := open(t, admission.Options{Concurrency: 1}), open(t, admission.Options{Concurrency: 1})
		outer := context.WithValue(t.Context(), key{}, "kept")
		require.Equal(t, outer, admission.Permit{}.Context(outer))
		p := take(t, c, 1)
		ctx, cancel := context.WithCancel(p.Context(outer))
		require.Equal(t, "kept", ctx.Value(key{}))
		inner, err := c.Acquire(ctx, admission.Request{})
		require.NoError(t, err)
		inner.Done(admission.Dropped)
		require.Equal(t, 1, c.Stats().InUse)
		elsewhere, err := other.Acquire(ctx, admission.Request{})
		require.NoError(t, err)
		require.Equal(t, 1, other.Stats().InUse, "another controller is another resource")
		elsewhere.Release()

		p.Release()
		inner, err = c.Acquire(ctx, admission.Request{})
		require.NoError(t, err)
		require.Equal(t, 1, c.Stats().InUse, "it has none any more")
		inner.Release()
		cancel()
		_, err = c.Acquire(ctx, admission.Request{})
		require.ErrorIs(t, err, context.Canceled)

		require.NoError(t, c.Do(t.Context(), admission.Request{}, func(ctx context.Context) error {
			return c.Do(ctx, admission.Request{}, func(context.Context) error {
				require.Equal(t, 1, c.Stats().InUse)
				return nil
			})
		}))
		requireWhole(t, c)
	})
}

// DeadlineExceeded says that the deadline has passed. Who could not meet it is told something
// else, whatever the strategy calls that.
func TestAcquire_HasTimeLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, reason := range []strategies.Reason{"late", strategies.ReasonExpired} {
			c := open(t, admission.Options{Concurrency: 1, Spec: strategies.Spec{
				Name: "strict", Reasons: []strategies.Reason{"late"},
				New: func(o strategies.Config) strategies.Discipline {
					fifo, _ := strategies.Lookup("fifo")
					return strict{fifo.New(o), reason}
				},
			}})
			held := take(t, c, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := c.Acquire(ctx, admission.Request{})
			require.ErrorIs(t, err, admission.ErrShed)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			var shed *admission.ShedError
			require.ErrorAs(t, err, &shed)
			require.Equal(t, reason, shed.Reason)
			held.Release()
		}
	})
}

// strict turns away all that would have to wait.
type strict struct {
	strategies.Discipline
	reason strategies.Reason
}

func (s strict) Push(*strategies.Task, int64) strategies.Verdict {
	return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: s.reason}
}

func TestPermit_ReleasedTwice(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Strategy: "fifo", Concurrency: 2})
	var none admission.Permit
	none.Release()
	for range 1000 {
		first := take(t, c, 2)
		alias := first
		first.Release()
		second := take(t, c, 2)
		first.Release()
		alias.Release()
		require.Equal(t, 2, c.Stats().InUse)
		second.Release()
	}
	p := take(t, c, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(p.Release)
	}
	wg.Wait()
	requireWhole(t, c)
}

func TestDo(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	mine := errors.New("mine")
	require.ErrorIs(t, c.Do(t.Context(), admission.Request{}, func(context.Context) error {
		require.Equal(t, 1, c.Stats().InUse)
		return mine
	}), mine)
	require.Panics(t, func() {
		_ = c.Do(t.Context(), admission.Request{}, func(context.Context) error { panic("the handler's") })
	})
	requireWhole(t, c)
	c.Close()
	require.ErrorIs(t, c.Do(t.Context(), admission.Request{}, func(context.Context) error {
		t.Error("it was called")
		return nil
	}), admission.ErrShed)
}

// What still waits when the time is over is turned away; what is held is given back
// whenever it is.
func TestController_Drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 1})
		held := take(t, c, 1)
		served := make(chan error, 2)
		for range 2 {
			go func() {
				served <- c.Do(t.Context(), admission.Request{}, func(context.Context) error {
					time.Sleep(time.Second)
					return nil
				})
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		drained := make(chan error)
		go func() { drained <- c.Drain(ctx) }()
		synctest.Wait()
		_, err := c.Acquire(t.Context(), admission.Request{})
		require.EqualError(t, err, "admission: shed: draining")
		_, ok := c.TryAcquire(admission.Request{})
		require.False(t, ok)

		time.Sleep(time.Second)
		held.Release()
		require.ErrorIs(t, <-drained, context.DeadlineExceeded)
		require.EqualError(t, <-served, "admission: shed: draining", "the last one waits still")
		require.NoError(t, <-served)
		require.Zero(t, c.Stats().InUse)
	})
}

func TestController_DrainUntilQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "lifo", Concurrency: 2})
		var served atomic.Int64
		for range 5 {
			go func() {
				require.NoError(t, c.Do(t.Context(), admission.Request{}, func(context.Context) error {
					time.Sleep(time.Second)
					served.Add(1)
					return nil
				}))
			}()
		}
		synctest.Wait()
		require.NoError(t, c.Drain(t.Context()))
		require.EqualValues(t, 5, served.Load())
		c.Close()
	})
}

func TestController_Close(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Concurrency: 3})
		small := take(t, c, 1)
		waited := make(chan error, 2)
		for range 2 { // one gathers places, the other waits behind it
			go func() {
				_, err := c.Acquire(t.Context(), admission.Request{Cost: 3})
				waited <- err
			}()
		}
		synctest.Wait()
		c.Close()
		for range 2 {
			require.ErrorIs(t, <-waited, admission.ErrClosed)
		}
		_, err := c.Acquire(t.Context(), admission.Request{})
		require.ErrorIs(t, err, admission.ErrClosed)
		require.ErrorIs(t, err, admission.ErrShed)
		_, ok := c.TryAcquire(admission.Request{})
		require.False(t, ok)
		require.Equal(t, 1, c.Stats().InUse)
		small.Release()
		small.Release()
		require.Zero(t, c.Stats().InUse)
		require.ErrorIs(t, c.SetConcurrency(5), admission.ErrClosed)
		require.ErrorIs(t, c.SetObjective(time.Second), admission.ErrClosed)
		require.ErrorIs(t, c.SetMode(admission.Observe), admission.ErrClosed)
		require.ErrorIs(t, c.Switch("fifo"), admission.ErrClosed)
		require.ErrorIs(t, c.SwitchTo(strategies.EDF(strategies.EDFOptions{})), admission.ErrClosed)
		require.NoError(t, c.Drain(t.Context()))
		c.Close()
	})
}

func TestController_SetConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 4})
		var held []admission.Permit
		for range 4 {
			held = append(held, take(t, c, 1))
		}
		require.NoError(t, c.SetConcurrency(2))
		var begun atomic.Int64
		for range 6 {
			go func() {
				require.NoError(t, c.Do(t.Context(), admission.Request{}, func(context.Context) error {
					begun.Add(1)
					time.Sleep(time.Second)
					return nil
				}))
			}()
		}
		synctest.Wait()
		s := c.Stats()
		require.Equal(t, 2, s.Concurrency)
		require.Equal(t, 4, s.InUse)
		require.Equal(t, 6, s.Waiting)
		held[0].Release()
		held[1].Release()
		synctest.Wait()
		require.Zero(t, begun.Load(), "as many are in use as there are")
		held[2].Release()
		synctest.Wait()
		require.EqualValues(t, 1, begun.Load())
		require.NoError(t, c.SetConcurrency(5))
		synctest.Wait()
		require.EqualValues(t, 4, begun.Load())
		held[3].Release()
		time.Sleep(10 * time.Second)
		requireWhole(t, c)
	})
}

func TestHooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []admission.Event
		hook := func(e admission.Event) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, e)
		}
		c := open(t, admission.Options{
			Strategy: "fifo", Concurrency: 1, Capacity: 1, Admitted: hook, Shed: hook, Released: hook,
		})
		a := admission.Request{Client: "a", Priority: strategies.MostImportant, Cost: 1}
		b := admission.Request{Client: "b"}
		p, err := c.Acquire(t.Context(), a)
		require.NoError(t, err)
		time.Sleep(time.Second)
		done := make(chan struct{})
		go func() {
			p, err := c.Acquire(t.Context(), b)
			require.NoError(t, err)
			p.Release()
			close(done)
		}()
		synctest.Wait()
		_, err = c.Acquire(t.Context(), b)
		require.Error(t, err)
		time.Sleep(time.Second)
		p.Release()
		<-done
		require.ElementsMatch(t, []admission.Event{
			{Strategy: "fifo", Request: a},
			{Strategy: "fifo", Request: b, Reason: strategies.ReasonFull},
			{Strategy: "fifo", Request: a, Held: 2 * time.Second},
			{Strategy: "fifo", Request: b, Waited: time.Second},
			{Strategy: "fifo", Request: b, Waited: time.Second},
		}, log)
	})
}

// However often the concurrency changes, no place seems to be in use that is not.
// LimitChanged is told how many places there are, learned or set, and may use the controller.
func TestHooks_LimitChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told [][2]int
		var c *admission.Controller
		c = open(t, admission.Options{Strategy: "fifo", InitialConcurrency: 2, LimitChanged: func(from, to int) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, [2]int{from, to})
			require.Equal(t, to, c.Stats().Concurrency)
			if to == 6 {
				require.NoError(t, c.SetConcurrency(5))
			}
		}})
		require.Equal(t, 2, c.Stats().Concurrency)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				_ = c.Do(t.Context(), admission.Request{}, func(ctx context.Context) error { return sleep(ctx, time.Second) })
			})
		}
		all.Wait()
		synctest.Wait()
		grown := len(told)
		require.Greater(t, grown, 1)
		require.Equal(t, 2, told[0][0])
		for i, change := range told[1:] {
			require.Equal(t, told[i][1], change[0], "from where the last one ended")
		}
		require.Equal(t, c.Stats().Concurrency, told[grown-1][1])

		for _, n := range []int{7, 7, 6} {
			require.NoError(t, c.SetConcurrency(n))
			synctest.Wait()
		}
		require.Equal(t, [][2]int{{7, 6}, {6, 5}}, told[len(told)-2:])
		require.Equal(t, 5, c.Stats().Concurrency)
		requireWhole(t, c)
	})
}

func TestController_StatsAreOfOneMoment(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 100})
	_ = take(t, c, 1)
	var seen atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; !seen.Load(); n++ {
			assert.NoError(t, c.SetConcurrency(1+99*(n%2)))
		}
	})
	for range 100_000 {
		assert.Equal(t, 1, c.Stats().InUse)
		if t.Failed() {
			break
		}
	}
	seen.Store(true)
	wg.Wait()
}

// A hook that panics leaves nobody with a permit, and takes no place along.
func TestHooks_Panic(t *testing.T) {
	t.Parallel()
	panics := func(admission.Event) { panic("a hook") }
	for _, o := range []admission.Options{
		{Admitted: panics}, {Shed: panics}, {Released: panics}, {Admitted: panics, Shed: panics, Released: panics},
	} {
		o.Strategy, o.Concurrency = "fifo", 1
		c := open(t, o)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), canceled} {
			func() {
				defer func() { _ = recover() }()
				_ = c.Do(ctx, admission.Request{}, func(context.Context) error { return nil })
			}()
			require.Zero(t, c.Stats().InUse)
		}
	}
}

// Who leaves a strategy that cannot give it up before its turn is told of as others are.
func TestHooks_LeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []admission.Event
		c := open(t, admission.Options{
			Strategy: "fifo", Concurrency: 1, Shed: func(e admission.Event) { told = append(told, e) },
		})
		all := take(t, c, 1)
		time.Sleep(time.Second) // or it would come at the zero of the clock
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := admission.Request{Client: "a"}
		go func() {
			time.Sleep(time.Second / 2)
			require.NoError(t, c.SwitchTo(strategies.Spec{Name: "other", New: func(c strategies.Config) strategies.Discipline {
				q, _ := strategies.Lookup("fifo")
				return struct{ strategies.Discipline }{q.New(c)} // without Remove
			}}))
		}()
		_, err := c.Acquire(ctx, r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []admission.Event{
			{Strategy: "fifo", Request: r, Waited: time.Second, Reason: strategies.ReasonExpired},
		}, told)
		all.Release()
		requireWhole(t, c)
	})
}

func TestObserve(t *testing.T) {
	t.Parallel()
	for _, mode := range []admission.Mode{admission.Enforce, admission.Observe} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var shed, observed, admitted atomic.Int64
				c := open(t, admission.Options{
					Strategy: "codel", Concurrency: 1, Mode: mode,
					Admitted: func(admission.Event) { admitted.Add(1) },
					Shed: func(e admission.Event) {
						require.Equal(t, strategies.ReasonCoDel, e.Reason)
						if e.Observed {
							observed.Add(1)
						} else {
							shed.Add(1)
						}
					},
				})
				for range 100 {
					go func() {
						_ = c.Do(t.Context(), admission.Request{}, func(context.Context) error {
							time.Sleep(50 * time.Millisecond)
							return nil
						})
					}()
				}
				time.Sleep(time.Minute)
				require.Equal(t, mode, c.Stats().Mode)
				if mode == admission.Observe {
					require.EqualValues(t, 100, admitted.Load())
					require.Zero(t, shed.Load())
					require.Greater(t, observed.Load(), int64(50))
				} else {
					require.Greater(t, shed.Load(), int64(50))
					require.Zero(t, observed.Load())
					require.EqualValues(t, 100, admitted.Load()+shed.Load())
				}
				requireWhole(t, c)
			})
		})
	}
}

// Objective and mode change while requests wait, and Stats tells what is in force.
func TestController_SetObjectiveAndMode(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1, Objective: 200 * time.Millisecond})
	require.Equal(t, strategies.ObjectiveState{Set: 200 * time.Millisecond, InForce: 200 * time.Millisecond, Why: "it is set"}, c.Stats().Objective)
	require.NoError(t, c.SetObjective(admission.NoObjective))
	require.Zero(t, c.Objective().InForce())
	require.NoError(t, c.SetObjective(0))
	require.Equal(t, strategies.StandIn, c.Stats().Objective.InForce)
	require.EqualError(t, c.SetObjective(-2), "admission: Objective is -2ns, 100µs to 1h0m0s is allowed, 0 for the default, or NoObjective")
	require.NoError(t, c.SetMode(admission.Observe))
	require.Equal(t, admission.Observe, c.Stats().Mode)
	require.NoError(t, c.SetMode(admission.Enforce))
	require.EqualError(t, c.SetMode(2), "admission: Mode is 2, Enforce (0) and Observe (1) are allowed")
	require.Equal(t, admission.Enforce, c.Stats().Mode)
}

// What was answered later than the objective would be turned away, whether or not anybody
// is held back. It is told once, when the places are given back.
func TestObserve_Late(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			var told, released []admission.Event
			c := open(t, admission.Options{
				Concurrency: concurrency, Mode: admission.Observe, Objective: 200 * time.Millisecond,
				Shed:     func(e admission.Event) { told = append(told, e) },
				Released: func(e admission.Event) { released = append(released, e) },
			})
			r := admission.Request{Client: "a"}
			for _, took := range []time.Duration{150 * time.Millisecond, 250 * time.Millisecond} {
				p, err := c.Acquire(t.Context(), r)
				require.NoError(t, err)
				time.Sleep(took)
				p.Tell(admission.Good)
				time.Sleep(time.Minute) // its reader is slow
				p.Release()
			}
			require.Equal(t, []admission.Event{{Strategy: "auto", Request: r, Reason: strategies.ReasonLate, Observed: true}}, told)
			require.Len(t, released, 2)
			require.True(t, released[0].InTime)
			require.False(t, released[1].InTime)
		})
	}
}

// The capacity changes while requests wait.
func TestController_SetCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := admission.New(admission.Options{Strategy: "fifo", Concurrency: 1, Capacity: 1})
		require.NoError(t, err)
		p, err := c.Acquire(t.Context(), admission.Request{})
		require.NoError(t, err)
		results := make(chan error, 3)
		ask := func() {
			go func() {
				p, err := c.Acquire(t.Context(), admission.Request{})
				p.Release()
				results <- err
			}()
			synctest.Wait()
		}
		ask()
		ask()
		require.ErrorIs(t, <-results, admission.ErrShed, "there is room for one")
		require.NoError(t, c.SetCapacity(2))
		ask()
		require.Equal(t, []int{2, 2}, []int{c.Stats().Waiting, c.Stats().Capacity})
		require.NoError(t, c.SetCapacity(1))
		synctest.Wait()
		require.ErrorIs(t, <-results, admission.ErrShed)
		p.Release()
		require.NoError(t, <-results)
		require.NoError(t, c.SetCapacity(0))
		require.Equal(t, 256, c.Stats().Capacity, "that of the strategy")
		require.EqualError(t, c.SetCapacity(-1), "admission: Capacity is -1, 1 to 16777216 is allowed, or 0 for the default")
		c.Close()
		require.ErrorIs(t, c.SetCapacity(1), admission.ErrClosed)
	})
}
