package dispatch

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// ended is a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// during has act run while q pushes, so far that it waits for what the pusher does next, and then after.
func (q *scripted) during(t *testing.T, act, after func()) strategies.Spec {
	pushing := func() {
		go act()
		for range 10_000 {
			runtime.Gosched()
		}
	}
	q.pushing.Store(&pushing)
	q.pushed.Store(&after)
	return strategies.Spec{Name: "scripted", New: func(c strategies.Config) strategies.Discipline {
		spec, err := strategies.Lookup("fifo")
		require.NoError(t, err)
		q.Discipline = spec.New(c)
		q.remover, _ = q.Discipline.(strategies.Remover)
		return q
	}}
}

// What comes while places are drained or closed does not stay ahead of the queue, where who looks for a task put it.
func TestPlaces_NothingIsAheadAfterADrain(t *testing.T) {
	for name, empties := range map[string]func(*Places){
		"Close": (*Places).Close,
		"Drain": func(p *Places) { _ = p.Drain(ended()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var p *Places
				q := new(scripted)
				spec := q.during(t, func() { empties(p) }, func() { p.wake() })
				p, err := Lend(Options{Workers: 2, Capacity: 9, Spec: spec, Grant: func(*Task) {}})
				require.NoError(t, err)
				held, wide := request("held", 1), request("wide", 2)
				shed := strategies.ReasonNone
				wide.Done = func(t *Task) { shed = t.Shed }
				require.True(t, p.Acquire(held))
				require.False(t, p.Acquire(wide))
				synctest.Wait()
				require.Equal(t, strategies.ReasonDraining, shed)
				require.Zero(t, p.Gauge().Depth)
				p.Release(held)
				p.Close()
			})
		})
	}
}

// A read that makes room for itself during a drain holds no write.
func TestDrain_HoldsNoWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var blocked atomic.Bool
		blocked.Store(true)
		s := newStage(t, Options{Workers: 1, Capacity: 1, Strategy: "sync", Blocked: func(bool) bool { return blocked.Load() }})
		q := new(scripted)
		s.use(q.during(t, func() { _ = s.Drain(ended()) }, func() { require.True(t, s.pools[0].giveWay(false, s.Now())) }))
		s.submit("slow")
		s.submit("w", isWrite)
		synctest.Wait()
		require.Equal(t, []string{"w:draining"}, s.endedNow())
		require.Zero(t, s.pools[0].held.len())
		s.end("slow")
		blocked.Store(false)
		s.Unblock()
		s.close()
	})
}
