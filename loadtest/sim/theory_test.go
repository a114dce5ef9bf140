//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// erlangC returns the probability that a request has to wait in M/M/c, of which
// load is the arrival rate over the service rate of one worker.
func erlangC(workers int, load float64) float64 {
	blocked := 1.0 // Erlang's B, by its recursion
	for n := 1; n <= workers; n++ {
		blocked = load * blocked / (float64(n) + load*blocked)
	}
	use := load / float64(workers)
	return blocked / (1 - use*(1-blocked))
}

// lost returns the share of requests that M/M/c/K turns away, where room is how
// many may wait.
func lost(workers, room int, load float64) float64 {
	state, sum := 1.0, 1.0
	for n := 1; n <= workers+room; n++ {
		state *= load / float64(min(n, workers))
		sum += state
	}
	return state / sum
}

// lasting returns how long so many requests take to arrive.
func lasting(requests, rate float64) time.Duration {
	return time.Duration(requests / rate * float64(time.Second))
}

// tolerance is how closely theory is met.
const tolerance = 0.01

const endless = 1 << 20 // a queue so long that nothing is turned away

// The mean waiting time of M/M/c is that of Erlang's C formula.
func TestRun_ErlangC(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		workers  int
		use      float64
		requests float64
	}{
		{workers: 1, use: 0.5, requests: 1e6},
		{workers: 2, use: 0.6, requests: 1e6},
		{workers: 8, use: 0.7, requests: 2e6},
	} {
		const mean = 4 * time.Millisecond
		load := tt.use * float64(tt.workers)
		r, err := measure(Config{
			Strategy: "fifo", Workers: tt.workers, Capacity: endless,
			Service: Exponential(mean),
			Warmup:  10 * time.Second, Duration: lasting(tt.requests, load/mean.Seconds()), Seed: 0,
		}.asked(poisson(load / mean.Seconds())))
		require.NoError(t, err)
		want := erlangC(tt.workers, load) * mean.Seconds() / (float64(tt.workers) * (1 - tt.use))
		require.InEpsilon(t, want, r.MeanWait.Seconds(), tolerance, "%+v", tt)
		require.InEpsilon(t, load, r.Busy, tolerance)
		require.InEpsilon(t, want+mean.Seconds(), r.MeanSojourn.Seconds(), tolerance)
	}
}

// M/M/c/K turns away as many as its steady state says.
func TestRun_Loss(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		workers, room int
		use           float64
	}{
		{workers: 1, room: 4, use: 0.9},
		{workers: 8, room: 8, use: 1},
		{workers: 8, room: 64, use: 1.2},
		{workers: 4, room: 1, use: 2},
	} {
		const mean = 4 * time.Millisecond
		load := tt.use * float64(tt.workers)
		arrive := load / mean.Seconds()
		r, err := measure(Config{
			Strategy: "fifo", Workers: tt.workers, Capacity: tt.room, Service: Exponential(mean),
			Warmup: 10 * time.Second, Duration: lasting(6e5, arrive), Seed: 1,
		}.asked(poisson(arrive)))
		require.NoError(t, err)
		require.InEpsilon(t, lost(tt.workers, tt.room, load), float64(r.Refused)/float64(r.Offered), tolerance, "%+v", tt)
		require.Equal(t, map[string]int64{"full": r.Refused}, r.Shed)
	}
}

// The mean waiting time of M/G/1 is that of Pollaczek and Khinchine, whatever the
// distribution of the service.
func TestRun_PollaczekKhinchine(t *testing.T) {
	t.Parallel()
	const mean = 4 * time.Millisecond
	for _, tt := range []struct {
		service Distribution
		cv2     float64 // the square of the coefficient of variation
	}{
		{Constant(mean), 0},
		{Exponential(mean), 1},
		{LogNormal{mean, 1.5}, 1.5 * 1.5},
		{Bimodal{Cheap: 2 * time.Millisecond, Expensive: 22 * time.Millisecond, Share: 0.1}, 36.0 / 16},
	} {
		const use = 0.5
		r, err := measure(Config{
			Strategy: "fifo", Workers: 1, Capacity: endless, Service: tt.service,
			Warmup: 10 * time.Second, Duration: lasting(1e6, use/mean.Seconds()), Seed: 2,
		}.asked(poisson(use / mean.Seconds())))
		require.NoError(t, err)
		want := use * mean.Seconds() * (1 + tt.cv2) / (2 * (1 - use))
		require.InEpsilon(t, want, r.MeanWait.Seconds(), tolerance, "%v", tt.service)
	}
}

// The order in which requests are taken does not change how long they wait in
// the mean, as long as it does not look at how much work they are.
func TestRun_MeanWaitIsThatOfAnyOrder(t *testing.T) {
	t.Parallel()
	var waits []float64
	for _, strategy := range []string{"fifo", "lifo", "mpmc", "unbounded"} {
		r, err := measure(Config{
			Strategy: strategy, Workers: 4, Capacity: 1 << 14, Service: Exponential(4 * time.Millisecond),
			Duration: lasting(2e5, 800), Seed: 3,
		}.asked(poisson(800)))
		require.NoError(t, err)
		require.Zero(t, r.Refused)
		waits = append(waits, r.MeanWait.Seconds())
	}
	for _, w := range waits {
		require.InEpsilon(t, waits[0], w, 2*tolerance)
	}
}

func TestDistributions_Means(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"4ms", "exp:4ms", "lognormal:4ms,1.5", "bimodal:1ms,50ms,0.05"} {
		d, err := ParseDistribution(text)
		require.NoError(t, err)
		require.Equal(t, text, d.(interface{ String() string }).String())
		random, sum := newRandom(1), 0.0
		const n = 1_000_000
		for range n {
			sum += float64(d.Draw(random))
		}
		require.InEpsilon(t, float64(d.Mean()), sum/float64(n), tolerance, text)
	}
	for _, text := range []string{"", "4", "-4ms", "0", "exp:", "exp:4ms,1", "lognormal:4ms", "bimodal:1ms,2ms,1.5", "gamma:4ms", "exp:2h", "4ms,5ms", "exp:NaN"} {
		_, err := ParseDistribution(text)
		require.ErrorContains(t, err, "is not a distribution of times", text)
	}
}
