//go:build !race

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Past what replicas can do together, one queue does as much as the best balancer with a queue and a law for each
// replica, but for a little chance, and more than all of them where all are alike, or one is slow.
func TestOneQueue_DoesAtLeastAsMuch(t *testing.T) {
	t.Parallel()
	one := ways[slices.IndexFunc(ways, func(w way) bool { return w.learned && w.strategy == "auto" && w.balance == "" })]
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			mine := s.run(one, 1.2, 1)
			require.Greater(t, mine.goodput, 0.95)
			for _, w := range ways {
				if w.balance == "" || !w.learned {
					continue
				}
				other := s.run(w, 1.2, 1)
				require.Greater(t, mine.goodput, other.goodput-0.005, w.name)
				if i < 2 {
					require.Greater(t, mine.goodput, other.goodput+0.005, w.name)
				}
			}
		})
	}
}

// A queue in each replica leaves nothing in time past what they can do.
func TestReplicas_QueuesInEach(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		if w.strategy == "unbounded" {
			require.Less(t, scenarios[0].run(w, 1.2, 1).goodput, 0.05, w.name)
		}
	}
}

func TestReplica_Took(t *testing.T) {
	t.Parallel()
	r := replica{hands: 4, stops: span{10 * s, 20 * s}}
	for now, want := range map[time.Duration]time.Duration{
		8 * s: s, 9*s + 500*ms: 11 * s, 10 * s: 11 * s, 15 * s: 6 * s, 20 * s: s,
	} {
		require.Equal(t, want, r.took(now, 1, s), now)
	}
	require.Zero(t, r.capacity(12*s))
	require.InDelta(t, 400, r.capacity(9*s), 1e-9)
}

// What holds beside the figures that dialogue publishes.
func TestPublished(t *testing.T) {
	t.Parallel()
	all := map[string]published{}
	for _, p := range allPublished {
		all[p.name] = p
	}
	for seed := range uint64(3) {
		for _, name := range []string{
			"simplest_possible_case", "slow_503s_then_revert", "fast_503s_then_revert", "drastic_slowdown", "black_hole", "short_outage_on_one_node",
		} {
			p := all[name]
			mine, theirs := p.run(seed), p.theirs[0]
			require.Greater(t, mine.success, theirs.success-0.007, name) // those are sent again there
			if name != "black_hole" {
				require.Less(t, mine.mean, theirs.mean*1.01, name)
				require.Less(t, mine.client, theirs.client*1.01, name)
			}
		}
		require.Greater(t, all["live_reloading"].run(seed).success, 0.99)
		require.InDelta(t, 0.5, all["all_nodes_500"].run(seed).success, 0.01)
	}
}
