//go:build !race

package judge_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// untold is a law that hears nothing of the objective.
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
	without, unfair := mean(func() sim.Limiter {
		law, err := concurrency.New(concurrency.Options{})
		require.NoError(t, err)
		return untold{judge.Learned{Law: law}}
	})
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

// From the first request on, before a resource that does few at once: what a start gives it that is too much holds up all
// that come later, and over few connections nothing waits any more that would show it. Most of what could be done
// in the first four seconds is good all the same, whether the objective is known or not.
func TestStarts_FewAtOnce(t *testing.T) {
	t.Parallel()
	const mean = 20 * time.Millisecond
	for name, work := range map[string]func() sim.Distribution{
		"constant":    func() sim.Distribution { return sim.Constant(mean) },
		"exponential": func() sim.Distribution { return sim.Exponential(mean) },
		"slow first":  func() sim.Distribution { return &slowFirst{sim.Constant(mean), 12} },
	} {
		for _, hands := range []int{4, 8} {
			for _, connections := range []int{64, 2000} {
				for _, load := range []float64{1.2, 2, 5} {
					share := func(limiter func() sim.Limiter) (share float64) {
						const seeds, length = 16, 4 * time.Second
						for seed := range uint64(seeds) {
							u := sim.Unknown{
								Resource: sim.Resource{Work: work(), Hands: hands}, Seed: seed, Limiter: limiter(),
								Clients: sim.Clients{Connections: connections}, Objective: 200 * time.Millisecond,
								Phases: []sim.Phase{{For: length, Wide: 1, Load: load}},
							}
							r := u.Run()
							share += r.Goodput / r.Rate / seeds
						}
						return share
					}
					told := share(func() sim.Limiter { return sim.Fixed(hands) })
					for of, limiter := range map[string]func() sim.Limiter{
						"the objective is known":     func() sim.Limiter { return judge.NewLearned() },
						"the objective is not known": func() sim.Limiter { return unaimed{untold{judge.NewLearned()}} },
					} {
						require.Greater(t, share(limiter), 0.75*told, "%s, %d hands, %d connections, %vx, %s", name, hands, connections, load, of)
					}
				}
			}
		}
	}
}

// unaimed is a law that knows that there is an objective, and not which.
type unaimed struct{ untold }

func (u unaimed) Aim(time.Duration) { u.law.Aim(0) }

// slowFirst takes twice as long for the first, as a process that has just begun does.
type slowFirst struct {
	sim.Distribution
	first int
}

func (s *slowFirst) Draw(random *rand.Rand) time.Duration {
	if s.first--; s.first >= 0 {
		return 2 * s.Distribution.Draw(random)
	}
	return s.Distribution.Draw(random)
}
