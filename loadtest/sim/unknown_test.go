//go:build !race

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
)

func TestResource_Best(t *testing.T) {
	t.Parallel()
	ms := sim.Constant(time.Millisecond)
	for _, tt := range []struct {
		resource sim.Resource
		n        int
		rate     float64
	}{
		{sim.Resource{Work: ms, Hands: 8}, 8, 8_000},
		{sim.Resource{Work: ms, Cores: 3}, 3, 3_000},
		{sim.Resource{Work: ms, Hands: 8, Cores: 3}, 3, 3_000},
		{sim.Resource{Work: ms, Crosstalk: 1. / 100}, 10, 10_000 / 1.9},
		{sim.Resource{Work: ms, Hands: 4, Aside: 0.5}, 4, 8_000},
	} {
		n, rate := tt.resource.Best()
		require.Equal(t, tt.n, n, tt.resource)
		require.InDelta(t, tt.rate, rate, 1, tt.resource)
	}
}

func TestRandomResource_IsTheSameForASeed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for seed := range uint64(100) {
		r := sim.RandomResource(seed)
		require.Equal(t, r, sim.RandomResource(seed))
		n, rate := r.Best()
		require.Positive(t, n)
		require.Positive(t, rate)
		require.Positive(t, r.Objective())
		seen[r.String()] = true
	}
	require.Len(t, seen, 100)
}

// What a resource does with a fixed number is known: less than it could with too few,
// all of it with enough, and less again with too many if they hinder each other.
func TestUnknown_Fixed(t *testing.T) {
	t.Parallel()
	exp := sim.Exponential(time.Millisecond)
	for _, tt := range []struct {
		resource sim.Resource
		n        int
		load     float64
		goodput  float64 // of what it can do
	}{
		{sim.Resource{Work: exp, Hands: 8}, 4, 2, 0.5},
		{sim.Resource{Work: exp, Hands: 8}, 8, 2, 1},
		{sim.Resource{Work: exp, Hands: 8}, 16, 2, 1},
		{sim.Resource{Work: exp, Hands: 8}, 100, 0.5, 0.5},
		{sim.Resource{Work: exp, Cores: 8}, 4, 2, 0.5},
		{sim.Resource{Work: exp, Cores: 8}, 16, 2, 1},
		{sim.Resource{Work: exp, Crosstalk: 1. / 100}, 10, 2, 1},
		{sim.Resource{Work: exp, Crosstalk: 1. / 100}, 40, 2, 40 / (1 + 40.*39/100) / (10 / 1.9)},
		{sim.Resource{Work: exp, Hands: 8, Change: sim.Change{Kind: sim.Faster, Factor: 2}}, 8, 2, 1.5},
		{sim.Resource{Work: exp, Hands: 8, Change: sim.Change{Kind: sim.Wider, Factor: 0.5}}, 8, 2, 0.75},
	} {
		u := sim.Unknown{Resource: tt.resource, Load: tt.load, Limiter: sim.Fixed(tt.n), Seed: 1}
		r := u.Run()
		require.InDelta(t, tt.goodput, r.Goodput/r.Rate, 0.03, "%v, %d at %gx", tt.resource, tt.n, tt.load)
		require.Equal(t, r, u.Run(), "the same seed gives the same")
	}
}

// One who is told runs the best number, before a step and after it.
func TestUnknown_Told(t *testing.T) {
	t.Parallel()
	run := func(change sim.Change, limiter sim.Limiter) float64 {
		return sim.Unknown{
			Resource: sim.Resource{Work: sim.Exponential(time.Millisecond), Crosstalk: 1. / 64, Change: change},
			Load:     2, Seed: 1, Limiter: limiter,
		}.Run().Goodput
	}
	require.InEpsilon(t, run(sim.Change{}, sim.Fixed(8)), run(sim.Change{}, &sim.Told{}), 0.01)
	wider := sim.Change{Kind: sim.Wider, Factor: 2}
	require.Greater(t, run(wider, &sim.Told{}), 1.05*run(wider, sim.Fixed(8)))
	require.Greater(t, run(wider, &sim.Told{}), 1.05*run(wider, sim.Fixed(16)))
}

// Orphans go on in the resource although nobody waits: those of time-outs do harm.
func TestUnknown_Timeouts(t *testing.T) {
	t.Parallel()
	r := sim.Resource{Work: sim.Constant(time.Millisecond), Cores: 4, Timeout: 3 * time.Millisecond}
	good := func(n int) float64 {
		u := sim.Unknown{Resource: r, Load: 2, Limiter: sim.Fixed(n), Seed: 1}
		res := u.Run()
		return res.Goodput / res.Rate
	}
	require.InDelta(t, 1, good(4), 0.01)
	require.Less(t, good(40), 0.1)
	r.Orphans = true
	require.InDelta(t, 1, good(4), 0.01)
	require.Less(t, good(40), 0.1)
}

func ExampleUnknown() {
	u := sim.Unknown{
		Resource: sim.Resource{Work: sim.Exponential(4 * time.Millisecond), Hands: 8},
		Load:     2, Limiter: sim.Fixed(8), Seed: 1,
	}
	r := u.Run()
	fmt.Printf("it can do %.0f a second, and %.0f %% of that was good\n", r.Rate, 100*r.Goodput/r.Rate)
	// Output: it can do 2000 a second, and 99 % of that was good
}
