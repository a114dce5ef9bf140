package metrics

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

func TestMetrics_Live(t *testing.T) {
	t.Parallel()
	_, ok := New(Options{}).Live()
	require.False(t, ok, "the service is starting")

	m, sources := newWatched(t)
	sources.Writable = func() error { return errors.New("no space") }
	for _, strategy := range []string{"fifo", "lifo"} {
		queue := m.Queue(strategies.Spec{Name: strategy})
		for range 3 {
			queue.Submitted()
		}
		queue.Started(0)
		queue.Started(time.Millisecond)
		queue.Shed(strategies.ReasonFull)
		m.Answered(strategy, "GET", 200, served.OK, 70*time.Millisecond)
		m.Answered(strategy, "PUT", 201, served.OK, 80*time.Millisecond)
		m.Answered(strategy, "GET", 503, served.Shed, time.Microsecond)
		m.Answered(strategy, "PUT", 503, served.Shed, time.Microsecond) // which never became a task
		m.Answered(strategy, "GET", 500, served.Error, time.Microsecond)
		m.Answered(strategy, "PUT", 412, served.Error, time.Microsecond)
	}
	m.ObserveFsync(time.Millisecond)
	m.Left(3 * time.Millisecond)
	m.Operated("get", 2*time.Millisecond)
	m.Operated("commit", 4*time.Millisecond)
	m.Operated("sync", time.Second)

	l, ok := m.Live()
	require.True(t, ok)
	require.Equal(t, 70*time.Millisecond, l.Objective.InForce)
	require.InDelta(t, 6, l.Submitted, 0)
	require.InDelta(t, 4, l.Run, 0)
	require.InDelta(t, 2, l.Shed["full"], 0)
	require.InDelta(t, 4, l.TurnedAway, 0)
	require.Len(t, l.Shed, len(strategies.Reasons()))
	require.Equal(t, map[int]float64{200: 2, 201: 2, 503: 4, 500: 2, 412: 2}, l.Codes)
	require.InDelta(t, 2, l.Good, 0, "within the objective, sheds and errors left out")
	require.InDelta(t, 2, l.Late, 0)
	require.InDelta(t, 2, l.Failed, 0)
	require.InDelta(t, 2, l.Unmet, 0, "a condition that does not hold is no error")
	require.Equal(t, Distribution{index(0.07): 2, index(0.08): 2}, l.Latency)
	require.Equal(t, Distribution{-1024: 2, index(0.001): 2}, l.Wait, "tasks that did not wait are far below the others")
	require.Equal(t, Distribution{index(0.001): 1}, l.Fsync)
	require.Equal(t, Distribution{index(0.003): 1}, l.Left)
	require.Equal(t, Distribution{index(0.002): 1}, l.Get)
	require.Equal(t, Distribution{index(0.004): 1}, l.Commit)
	require.True(t, l.Embedded)
	require.Equal(t, "fifo", l.Gauge.Strategy)
	require.Equal(t, 7, l.Connections)
	require.EqualError(t, l.Writable, "no space")
	require.EqualValues(t, 10, l.Store.WriteStalls)

	// Of a store elsewhere there are no such figures.
	sources.Store = nil
	distributed := New(Options{})
	distributed.Watch(*sources)
	l, ok = distributed.Live()
	require.True(t, ok)
	require.False(t, l.Embedded)
}

// index is the key of a duration in seconds, from the definition.
func index(seconds float64) int { return int(math.Ceil(math.Log2(seconds) * 8)) }

// What a state costs when every strategy has been used.
func BenchmarkMetrics_Live(b *testing.B) {
	m := New(Options{})
	m.Watch(Sources{
		Gauge:       func() dispatch.Gauge { return dispatch.Gauge{} },
		Connections: func() int { return 0 },
		Writable:    func() error { return nil },
		Dropped:     func() uint64 { return 5 },
		Store:       func() StoreStats { return StoreStats{} },
	})
	for _, name := range strategies.Names() {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			for i := range 1000 {
				m.Answered(name, method, 200, served.OK, time.Duration(i)*time.Millisecond)
				m.Queue(strategies.Spec{Name: name}).Started(time.Duration(i) * time.Millisecond)
			}
		}
	}
	for b.Loop() {
		m.Live()
	}
}
