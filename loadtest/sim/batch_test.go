//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inside returns the mean number of requests in a server that works at up to so many at once, by
// the birth-death process: with n of them one ends at the rate n / (work · (1 + serial·(n-1))).
func inside(rate, work, serial float64, hands int) float64 {
	state, sum, weighted := 1.0, 1.0, 0.0
	for n := 1; n < 100_000 && state > 1e-15*sum; n++ {
		at := float64(min(n, hands))
		state *= rate * work * (1 + serial*(at-1)) / at
		sum += state
		weighted += state * float64(n)
	}
	return weighted / sum
}

// A step that slows with the batch is processor sharing at a pace that depends on how many there
// are. Its mean sojourn is known: whatever the distribution of the work if all are worked at, and
// for exponential work also where the hands are fewer. The store of a service and a resource of
// which nobody told anything follow one law.
func TestRun_StepsThatSlowWithTheBatch(t *testing.T) {
	t.Parallel()
	const work = 40 * time.Millisecond
	for _, tt := range []struct {
		name   string
		work   Distribution
		hands  int
		serial float64
		use    float64 // of what it can do
	}{
		{"exponential", Exponential(work), 8, 0.05, 0.7},
		{"one hand", Exponential(work), 1, 0.5, 0.6},
		{"no slowdown to speak of", Exponential(work), 8, 1e-9, 0.7},
		{"all at once, exponential", Exponential(work), 0, 0.02, 0.6},
		{"all at once, constant", Constant(work), 0, 0.02, 0.6},
		{"all at once, log-normal", LogNormal{work, 1.5}, 0, 0.02, 0.6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hands, can := 1<<20, 1/tt.serial/work.Seconds()
			if tt.hands > 0 {
				hands, can = tt.hands, Config{Workers: tt.hands, Serial: tt.serial, Service: tt.work}.ServiceRate()
				require.InEpsilon(t, float64(hands)/work.Seconds()/(1+tt.serial*float64(hands-1)), can, 1e-9)
			}
			rate := tt.use * can
			want := inside(rate, work.Seconds(), tt.serial, hands) / rate
			r, err := measure(Config{
				Strategy: "sync", Parallel: tt.hands, Serial: tt.serial, Service: tt.work,
				Warmup: 20 * time.Second, Duration: lasting(1e6, rate), Seed: 1,
			}.asked(poisson(rate)))
			require.NoError(t, err)
			require.InEpsilon(t, want, r.MeanSojourn.Seconds(), 2*tolerance)

			if tt.hands > 0 { // what waits inside slows a resource as well
				return
			}
			resource := Resource{Work: tt.work, Serial: tt.serial}
			_, best := resource.Best()
			u := Unknown{Resource: resource, Load: rate / best, Limiter: Fixed(1 << 20), Objective: time.Minute, Length: 500_000, Seed: 1}
			require.InEpsilon(t, want, u.Run().Latency.Seconds(), 2*tolerance)
		})
	}
}
