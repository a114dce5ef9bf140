//go:build !race

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// means are the mean service times that auto has to do without being told.
var means = []time.Duration{50 * time.Microsecond, 4 * time.Millisecond, 100 * time.Millisecond}

// past runs auto at a multiple of the capacity, with 8 workers and an SLO of 25
// service times.
func past(t *testing.T, service Distribution, multiple float64) *Result {
	t.Helper()
	mean := service.Mean()
	c := Config{
		Strategy: "auto", Service: service, SLO: 25 * mean, Seed: 1,
		Warmup:   time.Duration(2_500 / multiple * float64(mean)),
		Duration: time.Duration(20_000 / multiple * float64(mean)),
	}
	r, err := Run(c.asked(poisson(multiple * c.ServiceRate())))
	require.NoError(t, err)
	return r
}

// patience is how long auto lets a task wait at least before it gives it up.
const patience = 10 * time.Millisecond

// Past the capacity the workers stay busy with what is in time, whatever a
// request costs. What is busy is compared, because the work that was drawn differs
// from its mean by as much as there may be idle; and what is not good. Where 10 ms are
// more than the objective, who waits for them is late.
func TestAuto_GoodputPastCapacity(t *testing.T) {
	t.Parallel()
	for _, mean := range means {
		for _, tt := range []struct {
			multiple  float64
			busy, p99 float64 // at least, of the workers; at most, in service times
		}{
			{1.1, 0.988, 7.2},
			{1.2, 0.994, 6.4},
			{1.5, 0.995, 5.8},
			{2, 0.997, 5.4},
			{4, 0.997, 5.2},
			{10, 0.997, 5},
		} {
			r := past(t, Exponential(mean), tt.multiple)
			name := fmt.Sprintf("%v at %gx", mean, tt.multiple)
			t.Logf("%s: goodput %.4f of capacity, busy %.4f, served p99 %v", name, r.OfCapacity(), r.Busy/8, r.ServedP(99))
			require.GreaterOrEqual(t, r.Busy/8, tt.busy, name)
			good, p99 := 0.999, tt.p99*float64(mean)
			if mean < patience/25 {
				good, p99 = 0.99, p99+float64(patience)
			}
			require.GreaterOrEqual(t, float64(r.Good), good*float64(r.Served), name)
			require.LessOrEqual(t, float64(r.ServedP(99)), p99, name)
		}
	}
}

// Below the capacity it is fifo.
func TestAuto_AsFIFOBelowCapacity(t *testing.T) {
	t.Parallel()
	for _, multiple := range []float64{0.5, 0.8, 0.9, 0.95} {
		auto, fifo := standard("auto", 256, multiple), standard("fifo", 256, multiple)
		fifo.Duration = auto.Duration
		a, err := Run(auto)
		require.NoError(t, err)
		f, err := Run(fifo)
		require.NoError(t, err)
		t.Logf("at %gx: mean %v and %v, p99 %v and %v, shed %v", multiple, a.MeanSojourn, f.MeanSojourn, a.P(99), f.P(99), a.Shed)
		require.LessOrEqual(t, float64(a.MeanSojourn), 1.05*float64(f.MeanSojourn))
		require.LessOrEqual(t, float64(a.P(99)), 1.05*float64(f.P(99)))
		require.GreaterOrEqual(t, a.Good, f.Good)
		require.LessOrEqual(t, float64(a.Refused), 0.001*float64(a.Offered))
	}
}

// The recovery from a spike of 5 s: whoever arrives 20 ms after its end is served
// as fast as ever.
func TestAuto_AfterASpike(t *testing.T) {
	t.Parallel()
	spikes := uint64(1000)
	if testing.Short() {
		spikes = 100
	}
	const end = 5500 * time.Millisecond
	var before, after, soon []time.Duration
	refused := 0
	for seed := range spikes {
		c := standard("auto", 4096, 1)
		c.Warmup, c.Duration, c.Seed = 0, 6500*time.Millisecond, seed
		c = c.asked(spike(1600, 6000, 500*time.Millisecond, 5*time.Second))
		c.Observe = func(r Record) {
			since := r.Arrival - end
			switch {
			case r.Arrival > 100*time.Millisecond && r.Arrival < 500*time.Millisecond:
				before = append(before, r.Latency)
			case since < 20*time.Millisecond:
			case r.Outcome == Refused:
				refused++
			default:
				after = append(after, r.Latency)
				if since < 100*time.Millisecond {
					soon = append(soon, r.Latency)
				}
			}
		}
		_, err := Run(c)
		require.NoError(t, err)
	}
	p99 := func(all []time.Duration) time.Duration {
		slices.Sort(all)
		return all[len(all)*99/100]
	}
	steady := p99(before)
	t.Logf("p99 %v before, %v from 20 ms on, %v from 20 to 100 ms, %d of %d refused", steady, p99(after), p99(soon), refused, len(after))
	require.LessOrEqual(t, float64(p99(after)), 1.1*float64(steady))
	require.LessOrEqual(t, float64(p99(soon)), 1.1*float64(steady))
	require.LessOrEqual(t, float64(refused), 0.005*float64(len(after)))
}

// A queue that a burst has made long grows slowly after that: in eight turns by less than a 32nd.
// It is an overload all the same, and no closed loop.
func TestAuto_ALongQueueGrowsSlowly(t *testing.T) {
	t.Parallel()
	for _, multiple := range []float64{1.1, 1.2, 1.5} {
		c := standard("auto", 4096, 1)
		c.Workers, c.Parallel = 1, 1
		rate := multiple * c.ServiceRate()
		c = c.asked(spike(rate, 1e5, 100*time.Millisecond, 15*time.Millisecond))
		c.Warmup, c.Duration = 40*time.Second, 40*time.Second
		r, err := Run(c)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.OfCapacity(), 0.9, "at %gx", multiple)
	}
}

// Other kinds of work, numbers of workers and capacities. What is asked for is
// what it does now, so that no change alters it unnoticed.
func TestAuto_StaysSane(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	exp := Exponential(4 * ms)
	for _, tt := range []struct {
		name              string
		service           Distribution
		workers, capacity int
		multiple, least   float64
	}{
		{"constant", Constant(4 * ms), 8, 256, 1.1, 0.995},
		{"log-normal", LogNormal{Average: 4 * ms, CV: 2}, 8, 256, 1.1, 0.96},
		{"log-normal", LogNormal{Average: 4 * ms, CV: 2}, 8, 256, 2, 0.98},
		{"bimodal", Bimodal{Cheap: ms, Expensive: 31 * ms, Share: 0.1}, 8, 256, 1.1, 0.93},
		{"bimodal", Bimodal{Cheap: ms, Expensive: 31 * ms, Share: 0.1}, 8, 256, 2, 0.98},
		{"one worker", exp, 1, 256, 2, 0.98},
		{"two workers", exp, 2, 256, 1.1, 0.98},
		{"64 workers", exp, 64, 256, 1.1, 0.99},
		{"64 workers", exp, 64, 256, 10, 0.99},
		{"capacity 16", exp, 8, 16, 1.1, 0.955},
		{"capacity 16", exp, 8, 16, 10, 0.99},
		{"capacity 10,000", exp, 8, 10_000, 1.1, 0.98},
		{"capacity 10,000", exp, 8, 10_000, 10, 0.99},
	} {
		c := standard("auto", tt.capacity, 1)
		c.Workers, c.Service = tt.workers, tt.service
		c = c.asked(poisson(tt.multiple * c.ServiceRate()))
		c.Duration = time.Duration(float64(40*time.Second) / tt.multiple * 8 / float64(tt.workers))
		r, err := Run(c)
		require.NoError(t, err)
		t.Logf("%s at %gx: goodput %.4f of capacity, served p99 %v, shed %v", tt.name, tt.multiple, r.OfCapacity(), r.ServedP(99), r.Shed)
		require.GreaterOrEqual(t, r.OfCapacity(), tt.least, "%+v", tt)
	}
}

// Where few work, the 64 tasks that may wait before an overload is known would take longer
// than anybody wants to wait. Once it is known they are not waited for.
func TestAuto_SoonRightWithFewWorkers(t *testing.T) {
	t.Parallel()
	for _, mean := range means {
		for _, tt := range []struct {
			workers         int
			multiple, least float64
		}{{1, 1.1, 0.85}, {1, 1.2, 0.9}, {2, 1.1, 0.95}, {4, 1.2, 0.98}} {
			good := 0.0
			const seeds = 16
			for seed := range uint64(seeds) {
				c := Config{Strategy: "auto", Workers: tt.workers, Capacity: 4096, Service: Exponential(mean), SLO: 25 * mean, Seed: seed}
				c.Duration = time.Duration(2_500 / tt.multiple * float64(mean))
				r, err := Run(c.asked(poisson(tt.multiple * c.ServiceRate())))
				require.NoError(t, err)
				good += r.OfCapacity() / seeds
			}
			t.Logf("%d workers of %v at %gx: goodput %.4f of capacity from the start on", tt.workers, mean, tt.multiple, good)
			if mean > time.Millisecond { // or else the looks take longest, which last 30 ms
				require.GreaterOrEqual(t, good, tt.least)
			}
		}
	}
}

// Bursts with nothing between are worked off rather than given up, as fifo does.
func TestAuto_Bursts(t *testing.T) {
	t.Parallel()
	good := map[string]float64{}
	for _, strategy := range []string{"auto", "fifo"} {
		c := standard(strategy, 256, 1)
		c.Duration = 60 * time.Second
		r, err := Run(c.asked(bursts(6000, 20*time.Millisecond, 60*time.Millisecond)))
		require.NoError(t, err)
		good[strategy] = r.OfOffered()
	}
	t.Log(good)
	require.GreaterOrEqual(t, good["auto"], 0.95*good["fifo"])
}

// Bursts that are over within 32 turns for each worker are worked off, and nobody is
// refused while there is room: of those that five times the load for 100 ms of each
// second is, none.
func TestAuto_BurstsAreNoOverload(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		capacity      int
		good, refused float64
	}{{256, 0.78, 0.1}, {4096, 0.78, 0}} {
		c := standard("auto", tt.capacity, 1)
		c.Warmup, c.Duration = time.Second, 20*time.Second
		seconds := func(*rand.Rand) func() (float64, time.Duration) {
			n := 0
			return func() (float64, time.Duration) {
				if n++; n%2 == 1 {
					return 6000, 100 * time.Millisecond
				}
				return 1200, 900 * time.Millisecond
			}
		}
		r, err := Run(c.asked(seconds))
		require.NoError(t, err)
		t.Logf("capacity %d: %.3f good, shed %v", tt.capacity, r.OfOffered(), r.Shed)
		require.GreaterOrEqual(t, r.OfOffered(), tt.good)
		require.LessOrEqual(t, float64(r.Refused), tt.refused*float64(r.Offered))
		require.Zero(t, r.Shed["codel"])
	}
}

// A closed loop that waits is no overload, however many connections it has: nobody is
// refused, and all are served in turn.
func TestAuto_ClosedLoop(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{4, 8} {
		for _, mean := range []time.Duration{50 * time.Microsecond, time.Millisecond, 4 * time.Millisecond} {
			for _, connections := range []int{64, 256, 512, 1024, 4096} {
				lap := time.Duration(connections) * mean / time.Duration(workers)
				c := Config{
					Strategy: "auto", Workers: workers, Capacity: 4096, Service: Exponential(mean), Seed: 1,
					Connections: connections, Closed: true, Warmup: lap + 500*time.Millisecond, Duration: 4 * lap,
				}
				r, err := Run(c.asked(poisson(1)))
				require.NoError(t, err)
				name := fmt.Sprintf("%d connections, %d workers, %v", connections, workers, mean)
				require.Zero(t, r.Refused, name)
				require.InEpsilon(t, 1, r.Busy/float64(workers), 0.01, name)
				require.LessOrEqual(t, r.ServedP(99), 2*lap+10*mean+2*c.turnaround(), name)
			}
		}
	}
}

// The important loses nothing, and deadlines that cannot be met are not waited for.
func TestAuto_PrioritiesAndDeadlines(t *testing.T) {
	t.Parallel()
	r, err := Run(standard("auto", 256, 3,
		Class{Name: "important", Weight: 1, Priority: 0},
		Class{Name: "usual", Weight: 4, Priority: 3},
		Class{Name: "late", Weight: 1, Priority: 3, Timeout: 3 * time.Millisecond, Deadline: true},
	))
	require.NoError(t, err)
	important := r.Classes[0]
	t.Logf("important: %d of %d good; shed %v", important.Good, important.Offered, r.Shed)
	require.GreaterOrEqual(t, float64(important.Good), 0.999*float64(important.Offered))
	require.Greater(t, r.OfCapacity(), 0.9)
	require.Greater(t, r.Shed["expired"], int64(0))
}
