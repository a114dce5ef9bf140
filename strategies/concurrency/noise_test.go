package concurrency

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A resource that does one at a time, so that each waits for as many as run: single requests are
// as many times less spread than their mean is noisy. With as many hands as run they are not.
func TestGenerations_Excess(t *testing.T) {
	t.Parallel()
	const ends = 200_000
	for _, n := range []int{1, 4, 8} {
		for _, hands := range []bool{false, true} {
			random := rand.New(rand.NewPCG(uint64(n), 4))
			var g generations
			g.begin(0, n)
			now, busy := 0., make([]float64, n)
			for i := range busy {
				busy[i] = random.ExpFloat64() * 1e6
			}
			for i := range ends {
				if hands {
					next := 0
					for j := range busy {
						if busy[j] < busy[next] {
							next = j
						}
					}
					now = busy[next]
					busy[next] += random.ExpFloat64() * 1e6
				} else {
					now += random.ExpFloat64() * 1e6
				}
				g.end(int64(now))
				if i%100 == 99 {
					g.begin(int64(now), n)
				}
			}
			want, spread := float64(n), 1/math.Sqrt(float64(n)) // of the sum of n
			if hands {
				want, spread = 1, 1
			}
			require.InEpsilon(t, want, g.excess(spread), 0.4, "%d at once, as many hands: %v", n, hands)
		}
	}
}

// Before there is something to tell by, noise is thought to be much; and what changes is not
// taken for noise.
func TestGenerations_Changes(t *testing.T) {
	t.Parallel()
	var g generations
	g.begin(0, 4)
	require.Greater(t, g.excess(1), 2.)
	now := int64(0)
	for block := range 1000 {
		limit := 2 + block%3
		for range 40 {
			now += 1e6 * int64(1+block%7) // another rate in each
			g.end(now)
		}
		g.begin(now, limit)
	}
	require.Equal(t, 1., g.excess(1))

	for block := range 100 {
		for range 20 + block%20 {
			now += 1e6
			g.end(now)
		}
		now += 1e12 // the time jumps
		g.void()
		for range 40 {
			now += 1e6
			g.end(now)
		}
		g.begin(now, 2)
	}
	require.Equal(t, 1., g.excess(1))
	require.Equal(t, float64(generationsMost), (&generations{variance: 1e9, freedom: 1}).excess(1e-3), "no more than that")
}

// Only where the share of long ones is the same however many run are they compared apart.
func TestMix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		share func(n float64) float64
		n     []float64
		each  float64
		same  bool
	}{
		{"the same", func(float64) float64 { return 0.2 }, []float64{1, 2, 3, 4}, 200, true},
		{"behind a long one", func(n float64) float64 { return 1 - math.Pow(0.8, n) }, []float64{1, 2, 3, 4}, 200, false},
		{"too few to say", func(float64) float64 { return 0.2 }, []float64{1, 2}, 1, false},
		{"as many each time", func(float64) float64 { return 0.2 }, []float64{4}, 1e4, false},
		{"none is long", func(float64) float64 { return 0 }, []float64{1, 2}, 100, false},
	} {
		var m mix
		require.False(t, m.same())
		for range 20 {
			for _, n := range c.n {
				long := c.share(n) * c.each
				m.add(math.Log(n), &[2]stratum{{n: c.each - long}, {n: long}})
			}
		}
		require.Equal(t, c.same, m.same(), c.name)
	}
}

// Blocks that are all the same, without one long request, tell of no change, however long ago the
// last long one was.
func TestNoise_NoLongOneForLong(t *testing.T) {
	t.Parallel()
	fill := func(short, long int) *block {
		b := &block{cut: 1e7}
		for range short {
			b.request(b.cut, 1, 1e6, false)
		}
		for range long {
			b.request(b.cut, 1, 3e7, false)
		}
		return b
	}
	var o noise
	o.add(fill(9, 1))
	last, compared := o.figures(fill(10, 0)), 0
	for range 60 {
		b := fill(10, 0)
		o.add(b)
		f := o.figures(b)
		if d := o.difference(&f, &last); d.by == apart {
			compared++
			require.InDelta(t, 0, d.rise, 1e-9)
		}
		last = f
	}
	require.Positive(t, compared)
}
