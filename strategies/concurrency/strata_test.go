package concurrency

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// mixed returns service times of two kinds, of which a tenth are long.
func mixed(r *rand.Rand) float64 {
	if r.Float64() < 0.1 {
		return 3e7
	}
	return 1e6
}

func TestStrata_PartsShortFromLong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		took      func(*rand.Rand) float64
		from, to  float64 // between which the cut is
		none      bool
		requests  int
		afterward int // requests of 1 ms, which make it forget
	}{
		{name: "two kinds", took: mixed, from: 4e6, to: 8e6, requests: 500},
		{name: "two kinds that vary", took: func(r *rand.Rand) float64 { return mixed(r) * (1 + r.Float64()) }, from: 4e6, to: 12e6, requests: 500},
		{name: "too near", took: func(r *rand.Rand) float64 { return 1e6 + 1e6*float64(r.IntN(2)) }, none: true, requests: 500},
		{name: "too few are long", took: func(r *rand.Rand) float64 { return mixed(r) }, none: true, requests: 8},
		{name: "no longer", took: mixed, none: true, requests: 500, afterward: 1 << 20},
		{name: "constant", took: func(*rand.Rand) float64 { return 1e6 }, none: true, requests: 500},
		{name: "exponential", took: func(r *rand.Rand) float64 { return 1e6 * r.ExpFloat64() }, none: true, requests: 500},
		{name: "log-normal", took: func(r *rand.Rand) float64 { return 1e6 * math.Exp(1.2*r.NormFloat64()) }, none: true, requests: 500},
		{name: "no time", took: func(*rand.Rand) float64 { return 0 }, none: true, requests: 500},
		{name: "for ever", took: func(*rand.Rand) float64 { return math.MaxInt64 }, none: true, requests: 500},
		{name: "nothing", none: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			var s strata
			for range c.requests {
				s.add(c.took(r))
			}
			for i := range c.afterward {
				s.add(1e6)
				if i%64 == 0 {
					s.split()
				}
			}
			require.Equal(t, !c.none, s.split())
			if c.none {
				require.Zero(t, s.cut)
				return
			}
			require.Greater(t, s.cut, c.from)
			require.Less(t, s.cut, c.to)
		})
	}
}

// How many of a block are long says nothing of the resource; that all take longer does.
func TestNoise_StrataDoNotCountHowManyAreLong(t *testing.T) {
	t.Parallel()
	const cut = 1e7
	fill := func(short, long int, slower float64) *block {
		b := &block{cut: cut}
		for range short {
			b.request(cut, 1, 1e6*slower, false)
		}
		for range long {
			b.request(cut, 1, 3e7*slower, false)
		}
		return b
	}
	var all noise
	all.add(fill(900, 100, 1))
	require.Equal(t, apart, all.clearest())
	first := all.figures(fill(27, 3, 1))
	for _, c := range []struct {
		name   string
		b      *block
		slower float64
		within float64
	}{
		{"as many", fill(27, 3, 1), 1, 1e-9},
		{"more of them long", fill(20, 10, 1), 1, 1e-9},
		{"none of them long", fill(30, 0, 1), 1, 1e-9},
		{"slower", fill(27, 3, 1.5), 1.5, 1e-9},
		{"slower, more of them long", fill(20, 10, 1.5), 1.5, 1e-9},
		{"slower, none of them long", fill(30, 0, 1.5), 1.5, 1e-9},
	} {
		f := all.figures(c.b)
		d := all.difference(&f, &first)
		require.Equal(t, apart, d.by, c.name)
		require.InDelta(t, math.Log(c.slower), d.rise, c.within, c.name)
		require.Positive(t, d.before, c.name)
		require.Positive(t, d.then, c.name)
	}
	unknown := all.figures(&block{})
	require.False(t, unknown.stratified, "a block that began before the two were told apart")

	// Thirty in a row are hardly long by chance. All take 30 times as long.
	f := all.figures(fill(0, 30, 1))
	d := all.difference(&f, &first)
	require.NotEqual(t, apart, d.by, "all of them long")
	require.Greater(t, d.rise, math.Log(5), "all of them long")
}

// A limit under which all requests take long is no kind of requests.
func TestNoise_ALimitIsNoStratum(t *testing.T) {
	t.Parallel()
	const cut = 3e6
	var all noise
	for i := range 100 {
		b := block{cut: cut}
		for range 20 {
			if i%5 == 0 {
				b.request(cut, 2, 1e7, false)
			} else {
				b.request(cut, 1, 1e6, false)
			}
		}
		all.add(&b)
	}
	require.NotEqual(t, apart, all.clearest())
}
