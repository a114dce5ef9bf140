package admission_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// scripted is first-in first-out, and calls what it is told at the moments at which
// somebody else could do something.
type scripted struct {
	strategies.Discipline
	beforePush, counted, foundNothing func()
}

func (q *scripted) Push(t *strategies.Task, now int64) strategies.Verdict {
	if f := q.beforePush; f != nil {
		q.beforePush = nil
		f()
	}
	return q.Discipline.Push(t, now)
}

func (q *scripted) Len() int {
	n := q.Discipline.Len()
	if f := q.counted; f != nil {
		q.counted = nil
		f()
	}
	return n
}

func (q *scripted) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	t, what, reason := q.Discipline.Pop(now)
	if f := q.foundNothing; t == nil && f != nil {
		q.foundNothing = nil
		f()
	}
	return t, what, reason
}

func (q *scripted) Remove(t *strategies.Task) bool {
	return q.Discipline.(strategies.Remover).Remove(t)
}

func (q *scripted) open(t *testing.T) *admission.Controller {
	return open(t, admission.Options{Concurrency: 1, Spec: strategies.Spec{
		Name: "scripted",
		New: func(c strategies.Config) strategies.Discipline {
			fifo, _ := strategies.Lookup("fifo")
			q.Discipline = fifo.New(c)
			return q
		},
	}})
}

// The last place is given back, and nothing waits, while a request has found it taken and
// is about to wait: it looks again once it does.
func TestAcquire_ReleasedBeforeThePush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := new(scripted)
		c := q.open(t)
		held := take(t, c, 1)
		q.beforePush = held.Release
		p, err := c.Acquire(t.Context(), admission.Request{})
		require.NoError(t, err)
		p.Release()
		requireWhole(t, c)
	})
}

// A request comes to wait when who gives the last place back has just found that nothing
// does.
func TestAcquire_PushedAfterTheLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := new(scripted)
		c := q.open(t)
		held := take(t, c, 1)
		waited := make(chan admission.Permit)
		go func() {
			p, err := c.Acquire(t.Context(), admission.Request{})
			require.NoError(t, err)
			waited <- p
		}()
		synctest.Wait()
		held.Release()
		second := <-waited
		granted := make(chan admission.Permit, 1)
		q.foundNothing = func() {
			go func() {
				p, err := c.Acquire(t.Context(), admission.Request{})
				require.NoError(t, err)
				granted <- p
			}()
		}
		second.Release()
		synctest.Wait()
		require.Len(t, granted, 1)
		(<-granted).Release()
		requireWhole(t, c)
	})
}

// The only one that waits goes while a place is about to be handed to it, and another comes
// before the place is free.
func TestAcquire_GoneWhileItIsHandedThePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := new(scripted)
		c := q.open(t)
		held := take(t, c, 1)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := c.Acquire(ctx, admission.Request{})
			gone <- err
		}()
		synctest.Wait()
		granted := make(chan admission.Permit, 1)
		q.counted = func() { // it, and it is not popped yet
			cancel()
			require.ErrorIs(t, <-gone, context.Canceled)
		}
		q.foundNothing = func() {
			go func() {
				p, err := c.Acquire(t.Context(), admission.Request{})
				require.NoError(t, err)
				granted <- p
			}()
			synctest.Wait()
		}
		held.Release()
		synctest.Wait()
		require.Len(t, granted, 1)
		(<-granted).Release()
		requireWhole(t, c)
	})
}

// Who needs two places gets them before who came later and needs one.
func TestAcquire_GathersInItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, admission.Options{Strategy: "fifo", Concurrency: 2})
		first, second := take(t, c, 1), take(t, c, 1)
		order := make(chan int, 3)
		for i, cost := range []int{2, 1, 1} {
			go func() {
				p, err := c.Acquire(t.Context(), admission.Request{Cost: cost})
				require.NoError(t, err)
				order <- i
				p.Release()
			}()
			synctest.Wait()
		}
		first.Release()
		synctest.Wait()
		_, ok := c.TryAcquire(admission.Request{})
		require.False(t, ok, "what is gathered is not free")
		require.Empty(t, order)
		second.Release()
		require.Equal(t, 0, <-order)
		<-order
		<-order
		synctest.Wait()
		requireWhole(t, c)
	})
}
