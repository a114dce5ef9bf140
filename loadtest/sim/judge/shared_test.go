//go:build !race

package judge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

// untold is a law that nobody tells of the objective.
type untold struct{ law judge.Learned }

func (u untold) Limit() int        { return u.law.Limit() }
func (u untold) Ended(e sim.Ended) { u.law.Ended(e) }

// Eight that come one after the other take from each other as long as they do not know within
// which time answers should come. If they do, they leave each other room.
func TestShared_TheObjectiveLeavesRoom(t *testing.T) {
	t.Parallel()
	mean := func(limiter func() sim.Limiter) (ratio, jain float64) {
		const seeds = 6
		for seed := range uint64(seeds) {
			r := judge.Shared{Learners: 8, Late: true}.Run(seed+1, 2, limiter)
			ratio, jain = ratio+r.Ratio/seeds, jain+r.Jain/seeds
		}
		return ratio, jain
	}
	ratio, jain := mean(func() sim.Limiter { return judge.NewLearned() })
	without, unfair := mean(func() sim.Limiter { return untold{judge.NewLearned()} })
	t.Logf("told of the objective %.2f, Jain's index %.2f; not told %.2f, %.2f", ratio, jain, without, unfair)
	require.Greater(t, ratio, 0.6)
	require.Greater(t, ratio, without+0.2)
}

// From a cold start with requests of 2 s, of which some tens can run, much of what could be served
// in the first 30 s is: three times as many run in each service time, while that is no longer than before.
func TestSlow_Learned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		hands int
		share float64 // with three times as many in each service time 0.86 could be
	}{{20, 0.8}, {50, 0.8}, {100, 0.8}} {
		for _, work := range []sim.Distribution{sim.Constant(2 * time.Second), sim.Exponential(2 * time.Second)} {
			for seed := range uint64(8) {
				share := judge.Slow(tt.hands, work, 1+seed, func() sim.Limiter { return judge.NewLearned() })
				require.GreaterOrEqual(t, share, tt.share, "%d hands, %v, seed %d", tt.hands, work, 1+seed)
			}
		}
	}
}
