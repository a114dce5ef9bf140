//go:build !race

package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// reference is a queue so plain that it is right by looking at it: a slice of
// requests, of which the next is served, and one is lost when it is full.
type reference struct {
	next, lost func(waiting []Request) int // an index; lost sees the newest last
}

var (
	oldest = func([]Request) int { return 0 }
	newest = func(waiting []Request) int { return len(waiting) - 1 }
	// Of the highest class, which is the least important, the newest.
	leastImportant = func(waiting []Request) (worst int) {
		for i, r := range waiting {
			if r.Class >= waiting[worst].Class {
				worst = i
			}
		}
		return worst
	}
	mostImportant = func(waiting []Request) (best int) {
		for i, r := range waiting {
			if r.Class < waiting[best].Class {
				best = i
			}
		}
		return best
	}
)

var references = map[string]reference{
	"fifo":        {oldest, newest},
	"drop-oldest": {oldest, oldest},
	"lifo":        {newest, oldest},
	"mpmc":        {oldest, newest},
	"priority":    {mostImportant, leastImportant},
}

// unordered says why a strategy has no line in references.
var unordered = map[string]string{
	"adaptive-lifo": "the order changes with the length",
	"auto":          "it goes by the objective",
	"caller-runs":   "who finds no room runs beside the workers",
	"codel":         "it sheds by the time",
	"edf":           "the load tells no deadlines",
	"fair":          "the load has one client",
	"hybrid":        "the order changes each time",
	"sharded":       "the order is that of each part",
	"sync":          "nothing waits",
	"unbounded":     "nobody is lost",
}

// Each strategy has a line in references, or a reason why not.
func TestReferences_AreComplete(t *testing.T) {
	t.Parallel()
	for _, name := range strategies.Names() {
		_, has := references[name]
		require.NotEqual(t, has, unordered[name] != "", "%s needs a line in references, or in unordered", name)
	}
}

// latencies returns how long each request takes, by its time; those that are lost
// are not there.
func (q reference) latencies(requests []Request, workers, capacity int) map[time.Duration]time.Duration {
	took := map[time.Duration]time.Duration{}
	free := make([]time.Duration, workers) // when each worker is
	var waiting []Request
	// serve begins what waits as long as workers are free before a time.
	serve := func(until time.Duration) {
		for len(waiting) > 0 {
			w := slices.Index(free, slices.Min(free))
			if free[w] > until {
				return
			}
			i := q.next(waiting)
			r := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			free[w] = max(free[w], r.At) + r.Service
			took[r.At] = free[w] - r.At
		}
	}
	for _, r := range requests {
		serve(r.At)
		waiting = append(waiting, r)
		serve(r.At)
		if len(waiting) > capacity {
			i := q.lost(waiting)
			waiting = slices.Delete(waiting, i, i+1)
		}
	}
	return took
}

// Whom a strategy serves, and after how long, is what a plain queue of its order
// does under the same load: also for the last requests of the window, whom a load
// that ended with it would serve when nothing new came.
func TestRun_ServesAsAPlainQueue(t *testing.T) {
	t.Parallel()
	const workers, capacity, window = 4, 32, 2 * time.Second
	for strategy, plain := range references {
		for _, use := range []float64{0.9, 1.2, 2} {
			c := Config{
				Strategy: strategy, Workers: workers, Capacity: capacity, Service: Exponential(4 * ms), Duration: window, Seed: 7,
				Classes: make([]Class, 3),
			}
			for i := range c.Classes {
				c.Classes[i].Priority = uint8(i)
			}
			drawn, next := newRandom(7), poisson(use*c.ServiceRate()).times(newRandom(8))
			var requests []Request
			for range 40_000 { // far more than there are in the window
				requests = append(requests, Request{
					At: next(), Service: 1 + Exponential(4*ms).Draw(drawn), Class: drawn.IntN(len(c.Classes)),
				})
			}
			c.Requests = recorded(requests)
			want := plain.latencies(requests, workers, capacity)
			measured, served := 0, 0
			c.Observe = func(r Record) {
				if !r.Measured {
					return
				}
				measured++
				latency, ok := want[r.Arrival]
				require.Equal(t, ok, r.Outcome == Served, "%s at %gx: %+v", strategy, use, r)
				if ok {
					served++
					require.Equal(t, latency, r.Latency, "%s at %gx: %+v", strategy, use, r)
				}
			}
			err := Run(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, measured, slices.IndexFunc(requests, func(r Request) bool { return r.At >= window }))
			require.InEpsilon(t, min(use, 1)*c.ServiceRate()*window.Seconds(), served, 0.1, "%s at %gx", strategy, use)
		}
	}
}

// How long a window is makes no difference to what is measured in it.
func TestRun_WindowsOfAnyLength(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"lifo", "adaptive-lifo", "hybrid", "codel", "auto"} {
		var p99 []time.Duration
		for _, seconds := range []time.Duration{2, 5, 20, 120} {
			c := standard(strategy, 256, 2)
			c.Duration = seconds * time.Second
			r, err := measure(c)
			require.NoError(t, err)
			p99 = append(p99, r.ServedP(99))
		}
		t.Log(strategy, p99)
		for _, p := range p99 {
			require.InEpsilon(t, float64(p99[len(p99)-1]), float64(p), 0.2, "%s: %v", strategy, p99)
		}
	}
}

// Clients who never give up, and are passed over for ever, do not keep a simulation
// from its end.
func TestRun_EndsWithoutPatience(t *testing.T) {
	t.Parallel()
	c := Config{
		Strategy: "lifo", Workers: 1, Capacity: endless, Service: Constant(time.Second), Duration: time.Minute, Seed: 1,
	}
	r, err := measure(c.asked(poisson(2)))
	require.NoError(t, err)
	require.Equal(t, r.Offered, r.Served)
	require.InEpsilon(t, longest, r.P(100), 0.001)
}
