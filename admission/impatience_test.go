package admission_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
)

// A client gives up after 1 s on a report of 2 s, again and again. The service is idle and
// healthy, so that the requests of others find a place at once. No fewer than MinConcurrency are
// let through, whatever the one does, and if it just leaves, nothing is learned from it.
func TestLearned_OneImpatientClient(t *testing.T) {
	t.Parallel()
	timesOut := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	leaves := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	for _, row := range []struct {
		name    string
		least   int
		others  int
		giveUp  func(context.Context) (context.Context, context.CancelFunc)
		dropped uint64
	}{
		{"its deadline passes", 64, 64, timesOut, 40},
		{"it leaves", 64, 64, leaves, 0},
		{"it leaves, and no minimum is given", 0, 4, leaves, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, admission.Options{MinConcurrency: row.least})
				for range 40 {
					ctx, cancel := row.giveUp(t.Context())
					require.Error(t, c.Do(ctx, admission.Request{}, func(ctx context.Context) error { return sleep(ctx, 2*time.Second) }))
					cancel()
				}
				learned := c.Stats().Learned
				require.Equal(t, row.dropped, learned.Dropped)
				require.False(t, learned.Paused, "the service is not full")
				var all sync.WaitGroup
				for range row.others {
					all.Go(func() {
						began := time.Now()
						if err := c.Do(t.Context(), admission.Request{}, func(ctx context.Context) error { return sleep(ctx, 5*time.Millisecond) }); err != nil {
							t.Error(err)
						}
						if took := time.Since(began); took != 5*time.Millisecond {
							t.Errorf("a request of 5 ms took %v", took)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// A handler takes 2 s however many run at once. 50 requests a second have 10 s each, and it heeds
// that. While the number of places grows, many get theirs with less than 2 s left. That the
// handler cannot do those in time is not its fault.
func TestLearned_ItsOwnQueueIsNotTheResource(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		strategy string
		first    int64 // served in the first half minute, in which the number grows, at least
		grown    int   // the half minute from which on nearly all are
	}{
		{"auto", 200, 1},
		{"fifo", 20, 3}, // by which those who have waited longest, and have least time left, go first
	} {
		t.Run(row.strategy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, admission.Options{Strategy: row.strategy})
				const perSecond = 50
				var served [6]atomic.Int64 // in each half minute
				began := time.Now()
				for i := range 180 * perSecond {
					time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / perSecond)))
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						if c.Do(ctx, admission.Request{}, func(ctx context.Context) error { return sleep(ctx, 2*time.Second) }) == nil {
							served[i/(30*perSecond)].Add(1)
						}
					}()
				}
				time.Sleep(time.Minute)
				require.Zero(t, c.Stats().Learned.Dropped)
				require.GreaterOrEqual(t, served[0].Load(), row.first)
				for i := row.grown; i < len(served); i++ {
					require.Greater(t, served[i].Load(), int64(30*perSecond*9/10), "half minute %d", 1+i)
				}
			})
		})
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
