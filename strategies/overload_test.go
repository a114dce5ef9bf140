//go:build !race

package strategies_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// TestStrategies_Goodput finds what the strategies say of themselves, in
// simulations that are the same each time: 8 workers, 4 ms of exponential
// service, a queue of 256, an objective of 100 ms.
func TestStrategies_Goodput(t *testing.T) {
	t.Parallel()
	const service = 4 * time.Millisecond
	for _, tc := range []struct {
		strategy string
		load     float64 // of the capacity
		// Goodput as a share of the load or, past the capacity, of the capacity.
		least, most float64
		p99         time.Duration // of what is served, at most; 0 for any
	}{
		// Below the capacity all serve nearly everybody in time.
		{"hybrid", 0.95, 0.99, 1.03, 0},
		{"adaptive-lifo", 0.95, 0.99, 1.03, 75 * time.Millisecond},
		{"codel", 0.95, 0.98, 1.03, 40 * time.Millisecond},
		// Past it, half of what hybrid serves comes too late, until the oldest are
		// displaced soon enough.
		{"hybrid", 1.1, 0.45, 0.55, 0},
		{"hybrid", 4, 0.97, 1.03, 0},
		// Newest first while a queue stands serves nearly all in time.
		{"adaptive-lifo", 1.1, 0.97, 1.03, 0},
		{"adaptive-lifo", 2, 0.98, 1.03, 0},
		{"adaptive-lifo", 10, 0.98, 1.03, 0},
		// Controlled delay does so in the order of arrival.
		{"codel", 1.1, 0.97, 1.03, 45 * time.Millisecond},
		{"codel", 2, 0.98, 1.03, 40 * time.Millisecond},
		{"codel", 10, 0.98, 1.03, 40 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s at %v", tc.strategy, tc.load), func(t *testing.T) {
			t.Parallel()
			const objective, length = 100 * time.Millisecond, 10 * time.Second
			var served []time.Duration
			require.NoError(t, sim.Run(t.Context(), sim.Config{
				Strategy: tc.strategy, Workers: 8, Capacity: 256,
				Requests: poisson(tc.load * 8 / service.Seconds()), Service: sim.Exponential(service),
				Objective: objective, Warmup: 2 * time.Second, Duration: length, Seed: 1,
				Observe: func(r sim.Record) {
					if r.Measured && r.Outcome == sim.Served {
						served = append(served, r.Latency)
					}
				},
			}))
			slices.Sort(served)
			good, _ := slices.BinarySearch(served, objective+1)
			goodput := float64(good) / length.Seconds() / (min(tc.load, 1) * 8 / service.Seconds())
			require.GreaterOrEqual(t, goodput, tc.least)
			require.LessOrEqual(t, goodput, tc.most)
			if tc.p99 != 0 {
				require.LessOrEqual(t, served[len(served)*99/100], tc.p99)
			}
		})
	}
}

// poisson returns requests of many clients who know nothing of each other: so many
// a second, with exponential gaps.
func poisson(rate float64) func() func() (sim.Request, bool) {
	return func() func() (sim.Request, bool) {
		random, at := rand.New(rand.NewPCG(1, 0)), 0.0
		return func() (sim.Request, bool) {
			at += random.ExpFloat64() / rate
			return sim.Request{At: time.Duration(at * float64(time.Second))}, true
		}
	}
}
