package strategytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// underController lets an admission.Controller, and so the engine of package dispatch,
// use the strategy: more ask than there are places, some for several, some give up. It
// ends with the first request that nobody has answered for so long.
func underController(spec strategies.Spec, patience time.Duration) error {
	const places, goroutines, each = 3, 8, 100
	var broken atomic.Pointer[string]
	c, err := admission.New(admission.Options{
		Spec: spec, Concurrency: places, Capacity: 4,
		Broken: func(_, rule string) { broken.Store(&rule) },
	})
	if err != nil {
		return err
	}
	all, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	errLost := fmt.Errorf("a request was lost: nobody has answered it for %v", patience)
	var held atomic.Int64
	var tooMany atomic.Bool
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := 0; i < each && all.Err() == nil; i++ {
				request := admission.Request{
					Priority: strategies.Urgency(i % 8), Client: fmt.Sprint(g % 3), Cost: rand.IntN(places + 1),
				}
				ctx, cancel := context.WithTimeoutCause(all, patience, errLost)
				if i%4 == 0 {
					go cancel()
				}
				p, err := c.Acquire(ctx, request)
				if context.Cause(ctx) == errLost { //nolint:errorlint // it is this one
					stop(errLost)
				}
				cancel()
				if err != nil {
					continue
				}
				if n := held.Add(int64(max(1, request.Cost))); n > places && !runsInline(spec) {
					tooMany.Store(true)
				}
				runtime.Gosched() // so that others have to wait
				held.Add(-int64(max(1, request.Cost)))
				p.Release()
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeoutCause(all, patience, errLost)
	defer cancel()
	drained := c.Drain(ctx)
	s := c.Stats()
	c.Close()
	switch rule := broken.Load(); {
	case rule != nil:
		return errors.New(*rule)
	case drained != nil:
		return errLost
	case tooMany.Load():
		return fmt.Errorf("more than the %d places were held", places)
	case s.InUse != 0 || s.Waiting != 0:
		return fmt.Errorf("%d places are in use and %d requests wait, after the last has gone", s.InUse, s.Waiting)
	}
	return nil
}

// runsInline reports whether the strategy may have whoever submits a task run it.
func runsInline(spec strategies.Spec) bool {
	q := spec.New(strategies.Config{Capacity: 1, Workers: 1})
	for range 3 {
		if q.Push(&strategies.Task{Arrival: 1, Submitted: 1}, int64(time.Second)).Outcome == strategies.CallerRuns {
			return true
		}
	}
	return false
}
