//go:build !race

package health_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever happens: one is well; only members that are not rest, for 1 to 30 s; each may run a power of two;
// only a probe ends a rest; and whoever is told of no change has missed none.
func TestSet_Properties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		b := newBench(t, 1+random.IntN(6))
		fails := make([]float64, 64)
		began := make([]int64, 64)
		for step := range 2_000 {
			if step%200 == 0 {
				for i := range fails {
					fails[i] = []float64{0, 0, 0.01, 0.5, 1}[random.IntN(5)]
				}
			}
			b.now += random.Int64N(second / 10)
			before, i := b.figures(), random.IntN(len(b.members))
			m := b.members[i]
			rested, probed := m.Allowed() == 0, false
			var changed bool
			what := random.IntN(100)
			switch {
			case what == 0 && len(b.members) < 8:
				b.members = append(b.members, b.set.Add())
				continue
			case what == 1 && len(b.members) > 1:
				b.set.Remove(m)
				b.members = append(b.members[:i:i], b.members[i+1:]...)
				changed = true
			case what < 10:
				due := rested && b.now >= m.ProbeAt()
				probed = m.Probe(b.now)
				require.Equal(t, due, probed)
				changed = probed
			case what < 15:
				began[i] = b.now
				continue
			case what < 20 && random.Float64() < fails[i]:
				changed = m.Unreached(began[i], b.now)
			default:
				changed = m.Ended(max(began[i], b.now-random.Int64N(second)), b.now, 1+random.IntN(40), random.Float64() < fails[i])
			}
			if !changed && before != b.figures() {
				require.Equal(t, before, b.figures())
			}
			if rested && what > 1 && !probed {
				require.Zero(t, m.Allowed())
			}
			well := 0
			for _, m := range b.members {
				allowed := m.Allowed()
				if allowed == math.MaxInt {
					well++
				} else {
					require.True(t, allowed&(allowed-1) == 0 && allowed <= 64, allowed)
				}
				at := m.ProbeAt()
				require.True(t, (allowed == 0) == (at != 0) && at <= b.now+30*second, at)
			}
			require.Positive(t, well, before)
		}
	}
}
