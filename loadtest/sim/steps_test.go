//go:build !race

package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

// A capacity that steps is followed: 200 service times after each step, as many requests
// are good as the resource can do, but for some. The goal is 0.95; the test leaves a
// margin.
func TestLearned_FollowsSteps(t *testing.T) {
	t.Parallel()
	for _, s := range judge.AllSteps() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			good := s.Settled(3, func() sim.Limiter { return judge.NewLearned() })
			for i, g := range good {
				require.GreaterOrEqual(t, g, 0.8, "of what %v times as many can do; all: %.2f", s.Wide[i], good)
			}
		})
	}
}

// Below what it can do, a limit that was never full stays near what runs, so that an
// overload finds it small.
func TestLearned_StaysNearWhatRuns(t *testing.T) {
	t.Parallel()
	for _, r := range []sim.Resource{
		{Work: sim.Exponential(40 * time.Millisecond), Hands: 4},
		{Work: sim.Constant(40 * time.Millisecond), Hands: 4},
	} {
		for seed := range uint64(4) {
			law := judge.NewLearned()
			sim.Unknown{
				Resource: r, Limiter: law, Seed: seed + 1,
				Phases: []sim.Phase{{For: time.Minute, Wide: 1, Load: 0.8}},
			}.Run()
			require.LessOrEqual(t, law.Limit(), 20, "%v: %s", r, law.Why())
		}
	}
}
