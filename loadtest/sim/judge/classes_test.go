//go:build !race

package judge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

// An experiment of a class is the same for a seed, and another for another.
func TestClasses_BySeed(t *testing.T) {
	t.Parallel()
	run := func(c judge.Class, seed uint64) sim.UnknownResult {
		u := c.Unknown(seed, 2)
		u.Warmup, u.Length, u.Limiter = 100, 1_000, &sim.Told{}
		for i := range u.Phases {
			u.Phases[i].For /= 10
		}
		return u.Run()
	}
	for _, c := range append(judge.Classes(), judge.Plain()) {
		require.Equal(t, run(c, 1), run(c, 1), c.Name)
		require.NotEqual(t, run(c, 1), run(c, 2), c.Name)
	}
}

// Those that are told share evenly, however many there are, and do as much as one.
func TestShared_Told(t *testing.T) {
	t.Parallel()
	for _, s := range judge.AllShared() {
		r := s.Run(1, 2, func() sim.Limiter { return &sim.Told{} })
		require.Len(t, r.Each, s.Learners)
		require.Greater(t, r.Ratio, 0.9, "%+v", s)
		require.Greater(t, r.Jain, 0.9, "%+v", s)
	}
	greedy := -1
	unfair := judge.Shared{Learners: 2}.Run(1, 2, func() sim.Limiter {
		greedy++
		return sim.Fixed(1 + 6*greedy)
	})
	require.Less(t, unfair.Jain, 0.7)
}

// One who knows the number serves all that can be served in the first 30 s.
func TestSlow_Told(t *testing.T) {
	t.Parallel()
	require.Greater(t, judge.Slow(100, sim.Constant(2*time.Second), 1, func() sim.Limiter { return sim.Fixed(100) }), 0.9)
	require.Less(t, judge.Slow(100, sim.Constant(2*time.Second), 1, func() sim.Limiter { return sim.Fixed(10) }), 0.2)
}
