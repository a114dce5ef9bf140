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

func open(tb testing.TB, o admission.Options) *admission.Controller {
	tb.Helper()
	c, err := admission.New(o)
	require.NoError(tb, err)
	return c
}

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
						if n := running.Add(1); n > most.Load() {
							most.Store(n)
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
				s := c.Stats()
				require.Zero(t, s.InUse)
				require.Zero(t, s.Waiting)
			})
		})
	}
}

func TestAcquire_ContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 1})
		held, err := c.Acquire(t.Context(), admission.Request{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Acquire(ctx, admission.Request{})
		require.ErrorIs(t, err, admission.ErrShed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var shed *admission.Shed
		require.ErrorAs(t, err, &shed)
		require.Equal(t, strategies.ReasonExpired, shed.Reason)
		held.Release()
		held.Release()
		require.Zero(t, c.Stats().InUse)
	})
}
