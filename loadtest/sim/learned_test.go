//go:build !race

package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

// Each row is a failure of limits that learn, as their users have told it.
func TestLearned_HasNoneOfTheKnownFailures(t *testing.T) {
	t.Parallel()
	exp := sim.Exponential(4 * time.Millisecond)
	for name, tt := range map[string]struct {
		resource sim.Resource
		load     float64
		share    float64 // of the best fixed number's goodput
	}{
		"envoy#8337: looking for the least time leaves 1": {
			sim.Resource{Work: exp, Hands: 16}, 2, 0.9,
		},
		"envoy#11579, Netflix#165: what is normal creeps up": {
			sim.Resource{Work: exp, Hands: 16, Change: sim.Change{Kind: sim.Drifting, Factor: 2}}, 2, 0.85,
		},
		"envoy#8557: health checks, or whatever costs nothing, are measured": {
			sim.Resource{Work: exp, Hands: 16, Aside: 0.3}, 2, 0.85,
		},
		"envoy#46532: one setting for the probe and the floor": {
			sim.Resource{Work: exp, Hands: 2}, 2, 0.85,
		},
		"Netflix#137: blind to time-outs that are always the same": {
			sim.Resource{Work: exp, Cores: 16, Timeout: 60 * time.Millisecond}, 2, 0.85,
		},
		"a long incident ruins what was learnt": {
			sim.Resource{Work: exp, Hands: 16, Change: sim.Change{Kind: sim.Cold, Factor: 6}}, 2, 0.85,
		},
		"aegis#18, #50: quotas of CPU are not what CPUs say": {
			sim.Resource{Work: exp, Cores: 3}, 2, 0.85,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := sim.Unknown{Resource: tt.resource, Load: tt.load, Seed: 1}
			n, _ := tt.resource.Best()
			u.Limiter = sim.Fixed(n)
			fixed := u.Run()
			law := judge.NewLearned()
			u.Limiter = law
			learned := u.Run()
			require.GreaterOrEqual(t, learned.Goodput, tt.share*fixed.Goodput,
				"of %.0f a second, %.0f with %d, mean limit %.1f; now %d: %s", fixed.Rate, fixed.Goodput, n, learned.Limit, law.Limit(), law.Why())
		})
	}
}

// What refuses whatever is more than it can do at once, and soon, gets about as many as
// that. If a refusal counted as a fast request, the worst were 0.74 of what is good with as
// many; it is 0.82.
func TestLearned_FindsHowManyAreNotRefused(t *testing.T) {
	t.Parallel()
	for _, hands := range []int{4, 8, 16, 64} {
		for _, load := range []float64{2, 5} {
			for _, refusal := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
				u := sim.Unknown{
					Resource: sim.Resource{Work: sim.Constant(20 * time.Millisecond), Hands: hands, Refusal: refusal},
					Load:     load, Limiter: sim.Fixed(hands), Seed: 1,
				}
				fixed := u.Run()
				law := judge.NewLearned()
				u.Limiter = law
				learned := u.Run()
				require.GreaterOrEqual(t, learned.Goodput, 0.8*fixed.Goodput,
					"%v at %vx: of %.0f with as many, mean limit %.1f; now %d: %s", u.Resource, load, fixed.Goodput, learned.Limit, law.Limit(), law.Why())
			}
		}
	}
}

// Below what the resource can do, it is as if there were no limit.
func TestLearned_BelowCapacity(t *testing.T) {
	t.Parallel()
	exp := sim.Exponential(4 * time.Millisecond)
	for _, r := range []sim.Resource{{Work: exp, Hands: 16}, {Work: exp, Cores: 16}, {Work: exp, Crosstalk: 1. / 400}} {
		u := sim.Unknown{Resource: r, Load: 0.5, Limiter: sim.Fixed(1 << 20), Seed: 1}
		free := u.Run()
		u.Limiter = judge.NewLearned()
		learned := u.Run()
		require.LessOrEqual(t, learned.Latency, free.Latency*105/100, r)
	}
}
