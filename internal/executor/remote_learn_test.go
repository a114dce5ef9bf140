package executor

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/concurrency"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// limited is a store on other machines that can do hands operations in 10 ms, or fails fast.
type limited struct {
	*remoteFake
	hands    int64
	underWay atomic.Int64
	err      atomic.Pointer[error] // that of every operation, after 100 us
}

func (f *limited) GetUnder(_ store.Terms, dst, _ []byte) ([]byte, store.Meta, error) {
	n := f.underWay.Add(1)
	defer f.underWay.Add(-1)
	if err := f.err.Load(); err != nil {
		time.Sleep(100 * time.Microsecond)
		return dst, store.Meta{}, *err
	}
	time.Sleep(10 * time.Millisecond * time.Duration(max(n, f.hands)) / time.Duration(f.hands))
	return dst, store.Meta{}, nil
}

// A store that refuses at once seems to be a hundred times as fast. How many run is not
// raised by that, and learned again when the store is back.
func TestRemote_WhatFailsFastIsNotFast(t *testing.T) {
	t.Parallel()
	const hands = 16
	inRange := func(t *testing.T, l *dispatch.Learned) { // its looks far above are of 1.6 times as many
		require.GreaterOrEqual(t, l.Limit, hands/2, l.Why)
		require.LessOrEqual(t, l.Limit, 4*hands, l.Why)
	}
	for _, err := range []error{
		fmt.Errorf("%w: a test says so", store.ErrUnavailable),
		fmt.Errorf("%w: a test says so", store.ErrTimeout),
		fmt.Errorf("%w: %w: a test says so", store.ErrUnknownOutcome, store.ErrTimeout),
	} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &limited{remoteFake: &remoteFake{fake: newFake(false)}, hands: hands}
				e := Open(Options{Store: f})
				defer e.Close()
				d, openErr := dispatch.Open(dispatch.Options{
					Strategy: "fifo", Capacity: 100, MaxBatch: 1, Run: e.Run, Learn: &concurrency.Options{Max: 1000},
				})
				require.NoError(t, openErr)
				defer d.Close()
				var clients sync.WaitGroup
				defer clients.Wait()
				stop := make(chan struct{})
				defer close(stop)
				for range 100 { // that ask again and again
					clients.Go(func() {
						for {
							c := newCall(getOp("a"))
							d.Submit(&c.task)
							select {
							case <-c.done:
							case <-stop:
								return
							}
						}
					})
				}
				time.Sleep(10 * time.Second)
				learned := d.Gauge().Learned
				inRange(t, learned)
				require.Zero(t, learned.Dropped)

				f.err.Store(&err)
				for range 20 {
					time.Sleep(100 * time.Millisecond)
					learned = d.Gauge().Learned
					require.LessOrEqual(t, learned.Limit, 4*hands, learned.Why)
				}
				require.NotZero(t, learned.Dropped)

				f.err.Store(nil)
				time.Sleep(20 * time.Second)
				inRange(t, d.Gauge().Learned)
			})
		})
	}
}
