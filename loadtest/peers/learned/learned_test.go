package learned

import (
	"flag"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

var (
	from = flag.Uint64("from", 1, "the first seed")
	to   = flag.Uint64("to", 0, "the last; 0 for no table")
)

// passive is a limit of go-concurrency-limits.
type passive struct{ of core.Limit }

func (p passive) Limit() int { return max(1, p.of.EstimatedLimit()) }

func (p passive) Ended(e sim.Ended) {
	p.of.OnSample(e.Began, max(1, e.Now-e.Began), e.Running, e.Dropped)
}

// failsafe is failsafe-go's adaptive limiter. It reads the clock, so it lives in a bubble,
// whose clock follows that of the simulation: one at a time, on one goroutine.
type failsafe struct {
	of      adaptivelimiter.AdaptiveLimiter[any]
	now     int64 // in the simulation
	permits map[int64][]adaptivelimiter.Permit
	without int // that began although the limiter was full
}

func newFailsafe(b adaptivelimiter.Builder[any]) *failsafe {
	return &failsafe{of: b.Build(), permits: map[int64][]adaptivelimiter.Permit{}}
}

func (f *failsafe) Limit() int { return max(1, f.of.Limit()) }

// until has the clock of the bubble follow.
func (f *failsafe) until(now int64) {
	if f.now != 0 && now > f.now {
		time.Sleep(time.Duration(now - f.now))
	}
	f.now = now
}

func (f *failsafe) Started(now int64) {
	f.until(now)
	p, ok := f.of.TryAcquirePermit()
	if !ok {
		f.without++
		return
	}
	f.permits[now] = append(f.permits[now], p)
}

func (f *failsafe) Ended(e sim.Ended) {
	f.until(e.Now)
	some := f.permits[e.Began]
	if len(some) == 0 {
		return
	}
	p := some[len(some)-1]
	if some = some[:len(some)-1]; len(some) == 0 {
		delete(f.permits, e.Began)
	} else {
		f.permits[e.Began] = some
	}
	if e.Dropped {
		p.Drop()
		return
	}
	p.Record()
}

// It has a place for each request that begins, and it learns.
func TestFailsafe_FollowsTheSimulation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFailsafe(adaptivelimiter.NewBuilder[any]())
		began := time.Now()
		r := sim.Unknown{
			Resource: sim.Resource{Work: sim.Constant(10 * time.Millisecond), Hands: 8}, Load: 1.2, Seed: 1,
			Warmup: 500, Length: 500, Limiter: f,
		}.Run()
		require.InDelta(t, 1000/r.Rate, time.Since(began).Seconds(), 1)
		require.NotEqual(t, 20, f.Limit(), "where it begins")
		require.Zero(t, f.without)
	})
}

// laws are what is compared, in the order of the table. Those in bubbles run one at a time.
// failsafe-go's has at most 200 by default.
var laws = []struct {
	name   string
	bubble bool
	make   func() sim.Limiter
}{
	{"Spillway", false, func() sim.Limiter { return judge.NewLearned() }},
	{"plain", false, func() sim.Limiter { return newPlain() }},
	{"gradient2", false, func() sim.Limiter {
		return passive{of: limit.NewDefaultGradient2Limit("", nil, core.EmptyMetricRegistryInstance)}
	}},
	{"Vegas", false, func() sim.Limiter {
		return passive{of: limit.NewDefaultVegasLimit("", nil, core.EmptyMetricRegistryInstance)}
	}},
	{"AIMD", false, func() sim.Limiter {
		return passive{of: limit.NewDefaultAIMDLimit("", core.EmptyMetricRegistryInstance)}
	}},
	{"failsafe-go", true, func() sim.Limiter { return newFailsafe(adaptivelimiter.NewBuilder[any]()) }},
	{"failsafe-go, up to 10,000", true, func() sim.Limiter {
		return newFailsafe(adaptivelimiter.NewBuilder[any]().WithLimits(1, 10_000, 20))
	}},
	{"fixed: 2 × 2 CPUs", false, func() sim.Limiter { return sim.Fixed(4) }},
	{"fixed: 100", false, func() sim.Limiter { return sim.Fixed(100) }},
}

func TestTable(t *testing.T) {
	t.Parallel()
	if *to == 0 {
		return // nobody asks for it
	}
	var known judge.Bests
	t.Log("| law | ≥ 0.95 of the best fixed | < 0.85 | mean | median |")
	for _, law := range laws {
		var s judge.Summary
		run := func(cpus int) {
			s = judge.Sum(judge.Runs(judge.Plain(), *from, *to, judge.Loads, cpus, &known, law.make))
		}
		if law.bubble {
			synctest.Test(t, func(*testing.T) { run(1) })
		} else {
			run(runtime.GOMAXPROCS(0))
		}
		t.Logf("| %s | %d of %d | %d | %.3f | %.3f |", law.name, s.Good, s.Runs, s.Bad, s.Mean, s.Median)
	}
}
