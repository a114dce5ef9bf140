package admission_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// A request that costs more than there is takes all there is.
func TestCost_MoreThanThereIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 4})
		for _, cost := range []int{4, 5, 1 << 40} {
			p, err := c.Acquire(t.Context(), admission.Request{Cost: cost})
			require.NoError(t, err)
			require.Equal(t, 4, c.Stats().InUse)
			p.Release()
		}
		_, err := c.Acquire(t.Context(), admission.Request{Cost: -3})
		require.EqualError(t, err, "admission: Cost is -3, at least 1 is allowed, or 0 for 1")
		require.NotErrorIs(t, err, admission.ErrShed)
		_, ok := c.TryAcquire(admission.Request{Cost: -3})
		require.False(t, ok)
		p := take(t, c, 0)
		require.Equal(t, 1, c.Stats().InUse)

		granted := make(chan admission.Permit)
		go func() {
			p, err := c.Acquire(t.Context(), admission.Request{Cost: 100})
			require.NoError(t, err)
			granted <- p
		}()
		synctest.Wait()
		require.NoError(t, c.SetConcurrency(2)) // and it takes what there is by then
		p.Release()
		all := <-granted
		require.Equal(t, 2, c.Stats().InUse)
		require.NoError(t, c.SetConcurrency(3))
		_ = take(t, c, 1)
		all.Release()
		require.Equal(t, 1, c.Stats().InUse)
	})
}

// stream keeps places busy with requests of a cost of 1, each for a while, until ctx
// ends, and counts them.
func stream(ctx context.Context, c *admission.Controller, clients int, served *atomic.Int64) {
	for i := range clients {
		go func() {
			time.Sleep(time.Duration(i) * time.Millisecond / 3)
			for ctx.Err() == nil {
				_ = c.Do(ctx, admission.Request{}, func(context.Context) error {
					time.Sleep(time.Millisecond)
					served.Add(1)
					return nil
				})
			}
		}()
	}
}

// Who needs many places gets them although others come all the time, under every
// strategy that serves it at all.
func TestCost_DoesNotStarve(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies.Names() {
		switch strategy {
		case "sync", "cheap-first": // has no places; goes by the cost
			continue
		}
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, admission.Options{Strategy: strategy, Concurrency: 4, Mode: admission.Observe})
				ctx, cancel := context.WithCancel(t.Context())
				var served atomic.Int64
				stream(ctx, c, 6, &served)
				time.Sleep(time.Second)
				// Newest first it may be overtaken for as long as others wait.
				began := time.Now()
				patient, enough := context.WithTimeout(t.Context(), 10*time.Second)
				defer enough()
				p, err := c.Acquire(patient, admission.Request{Cost: 4, Priority: 1})
				if err != nil {
					cancel()
				}
				require.NoError(t, err, "%s lets who costs much wait for ever: if that is its rule, it is an exception above", strategy)
				if strategy != "lifo" {
					require.Less(t, time.Since(began), 100*time.Millisecond)
				}
				p.Release()
				cancel()
				synctest.Wait()
				time.Sleep(time.Second)
				requireWhole(t, c)
			})
		})
	}
}

// If somebody keeps a place for ever, who needs all of them does not keep the others
// from theirs for ever, whatever its deadline; and it gets them when it can.
func TestCost_DoesNotBlockOthersForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 4})
		keeps := take(t, c, 1)
		granted := make(chan admission.Permit, 2)
		for range 2 {
			go func() {
				p, err := c.Acquire(t.Context(), admission.Request{Cost: 4})
				require.NoError(t, err)
				granted <- p
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var served atomic.Int64
		stream(ctx, c, 10, &served)
		synctest.Wait()
		require.Zero(t, served.Load(), "the three places are gathered first")
		time.Sleep(10 * time.Second)
		// Three places are used for at least a third of the time.
		require.Greater(t, served.Load(), int64(3*10*time.Second/time.Millisecond)/3)
		require.Empty(t, granted)
		require.LessOrEqual(t, c.Stats().InUse, 4)

		keeps.Release()
		all := <-granted
		require.Equal(t, 4, c.Stats().InUse)
		all.Release()
		all = <-granted
		require.Equal(t, 4, c.Stats().InUse)
		all.Release()
		cancel()
		time.Sleep(time.Second)
		requireWhole(t, c)
	})
}

// What a request has gathered that is given up is the others'.
func TestCost_GivenUpWhileItGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 3})
		keeps := take(t, c, 1)
		ctx, cancel := context.WithCancel(t.Context())
		gave := make(chan error)
		go func() {
			_, err := c.Acquire(ctx, admission.Request{Cost: 3})
			gave <- err
		}()
		synctest.Wait()
		require.Equal(t, 3, c.Stats().InUse, "they are not idle")
		var begun atomic.Int64
		for range 2 {
			go func() {
				p, err := c.Acquire(t.Context(), admission.Request{})
				require.NoError(t, err)
				begun.Add(1)
				p.Release()
			}()
		}
		synctest.Wait()
		require.Zero(t, begun.Load())
		cancel()
		require.ErrorIs(t, <-gave, context.Canceled)
		synctest.Wait()
		require.EqualValues(t, 2, begun.Load())
		keeps.Release()
		requireWhole(t, c)
	})
}

// Those that others pass count against the capacity: memory stays bounded.
func TestCost_CapacityHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 2, Capacity: 8})
		_ = take(t, c, 1) // for ever
		ctx, cancel := context.WithCancel(t.Context())
		var full atomic.Int64
		for range 50 {
			go func() {
				_, err := c.Acquire(ctx, admission.Request{Cost: 2})
				require.Error(t, err)
				if ctx.Err() == nil {
					full.Add(1)
				}
			}()
			time.Sleep(50 * time.Millisecond)
			require.LessOrEqual(t, c.Stats().Waiting, 9, "8, and who gathers places")
		}
		var served atomic.Int64
		stream(ctx, c, 1, &served)
		time.Sleep(10 * time.Second)
		require.Positive(t, served.Load())
		require.Positive(t, full.Load())
		cancel()
		time.Sleep(time.Second) // for whoever is being served
		require.Zero(t, c.Stats().Waiting)
		require.Equal(t, 1, c.Stats().InUse)
	})
}

// Those that others pass do not all leave the order that the strategy keeps: who comes
// later and is more important goes before most of them.
func TestCost_OrderHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "priority", Concurrency: 3})
		keeps := take(t, c, 2)
		var before atomic.Int64 // how many ordinary ones were served
		ordinary := func() {
			p, err := c.Acquire(t.Context(), admission.Request{Cost: 2})
			require.NoError(t, err)
			before.Add(1)
			time.Sleep(time.Millisecond)
			p.Release()
		}
		for range 100 {
			go ordinary()
		}
		time.Sleep(25 * time.Millisecond) // others may pass who gathers places, and do not any more
		urgent := make(chan int64)
		go func() {
			p, err := c.Acquire(t.Context(), admission.Request{Cost: 2, Priority: strategies.MostImportant})
			require.NoError(t, err)
			urgent <- before.Load()
			p.Release()
		}()
		synctest.Wait()
		keeps.Release()
		require.LessOrEqual(t, <-urgent, int64(10))
		time.Sleep(time.Second)
		requireWhole(t, c)
	})
}
