//go:build !race

package workload

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requests returns a function that yields the requests that o asks for.
func requests(o Options) func() Request {
	o = o.WithDefaults()
	s := NewStream(&o)
	return func() (r Request) {
		s.Next(&r)
		return r
	}
}

// take returns the first n requests that o asks for.
func take(o Options, n int) []Request {
	next, taken := requests(o), make([]Request, n)
	for i := range taken {
		taken[i] = next()
	}
	return taken
}

// requireShares checks counts against the probabilities of their outcomes, by
// Pearson's chi-square test. The statistic has a mean of k-1 and a variance of
// 2(k-1); five standard deviations above it, the fault is not in the seed.
func requireShares(t *testing.T, shares []float64, counts []int) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	var statistic float64
	freedom := -1.0
	for i, share := range shares {
		if share == 0 {
			require.Zero(t, counts[i], "outcome %d", i)
			continue
		}
		expected := share * float64(total)
		require.Greater(t, expected, 5.0, "too few draws to test outcome %d", i)
		statistic += (float64(counts[i]) - expected) * (float64(counts[i]) - expected) / expected
		freedom++
	}
	require.Less(t, statistic, freedom+5*math.Sqrt(2*freedom)+5, "chi-square of %v against %v", counts, shares)
}

func TestStream_IsTheSameForTheSameSeed(t *testing.T) {
	t.Parallel()
	for _, d := range []Distribution{Uniform, Zipf, Sequential, Latest} {
		o := Options{
			Rate: 1000, Seed: 7, Distribution: d, ValueSize: Sizes{1, 1000},
			Priority: Priorities{1, 1}, Mix: Mix{Put: 1, Get: 2, Delete: 3, Scan: 4},
		}
		first := take(o, 1000)
		require.Equal(t, first, take(o, 1000))
		o.Seed = 8
		require.NotEqual(t, first, take(o, 1000))
	}
}

// What is not changed stays as it was, request by request.
func TestStream_DrawsEachThingByItself(t *testing.T) {
	t.Parallel()
	base := Options{Rate: 1000, Seed: 7, Distribution: Zipf, Mix: Mix{Put: 1, Get: 1}, ValueSize: Sizes{1, 1000}, Priority: Priorities{1, 1}}
	for name, change := range map[string]struct {
		change func(*Options)
		forget func(*Request)
	}{
		"rate":     {func(o *Options) { o.Rate = 5 }, func(r *Request) { r.At = 0 }},
		"arrivals": {func(o *Options) { o.Arrivals = Constant }, func(r *Request) { r.At = 0 }},
		"closed":   {func(o *Options) { o.Rate = 0 }, func(r *Request) { r.At = 0 }},
		"keys":     {func(o *Options) { o.Distribution = Uniform }, func(r *Request) { r.Key = 0 }},
		"sizes":    {func(o *Options) { o.ValueSize = Sizes{5, 5} }, func(r *Request) { r.Size = 0 }},
		"priority": {func(o *Options) { o.Priority = Priorities{} }, func(r *Request) { r.Priority = 0 }},
		"mix":      {func(o *Options) { o.Mix = Mix{Put: 1, Scan: 5} }, func(r *Request) { r.Op, r.Size = 0, 0 }},
	} {
		o := base
		change.change(&o)
		want, got := take(base, 500), take(o, 500)
		require.NotEqual(t, want, got, name)
		for i := range want {
			change.forget(&want[i])
			change.forget(&got[i])
		}
		require.Equal(t, want, got, name)
	}
}

func TestStream_FollowsItsWeights(t *testing.T) {
	t.Parallel()
	operations, priorities := make([]int, len(opNames)), make([]int, 8)
	for _, r := range take(Options{Mix: Mix{Put: 50, Get: 45, Scan: 5}, Priority: Priorities{0: 10, 3: 90}}, 100_000) {
		operations[r.Op]++
		priorities[r.Priority]++
	}
	requireShares(t, []float64{0.5, 0.45, 0, 0.05}, operations)
	requireShares(t, []float64{0.1, 0, 0, 0.9, 0, 0, 0, 0}, priorities)
	for _, r := range take(Options{Mix: Mix{Scan: 1}}, 100) {
		require.Equal(t, Scan, r.Op)
		require.EqualValues(t, -1, r.Priority, "no header")
	}
}

func TestStream_DrawsSizesEvenly(t *testing.T) {
	t.Parallel()
	counts := make([]int, 5)
	for _, r := range take(Options{Mix: Mix{Put: 1, Get: 1}, ValueSize: Sizes{3, 7}}, 50_000) {
		if r.Op != Put {
			require.Zero(t, r.Size)
			continue
		}
		counts[r.Size-3]++
	}
	requireShares(t, []float64{0.2, 0.2, 0.2, 0.2, 0.2}, counts)
}

func TestSchedule_Constant(t *testing.T) {
	t.Parallel()
	// A third of a second is no whole number of nanoseconds, nor of microseconds:
	// errors would add up.
	for i, r := range take(Options{Rate: 3, Arrivals: Constant}, 300_001) {
		if r.Seq != uint64(i) || math.Abs(float64(i)/3*1e9-float64(r.At)) > 20 {
			t.Fatalf("request %d is number %d, at %v", i, r.Seq, r.At)
		}
	}
	for _, r := range take(Options{}, 10) {
		require.Zero(t, r.At, "a closed loop")
	}
}

func TestSchedule_Poisson(t *testing.T) {
	t.Parallel()
	const n, rate = 200_000, 50_000.0
	requests := take(Options{Rate: rate, Seed: 1}, n)
	// The n-th arrival of a Poisson process is at n/rate, give or take its square
	// root.
	require.InDelta(t, n/rate, requests[n-1].At.Seconds(), 5*math.Sqrt(n)/rate)
	// Gaps are exponential: each tenth of their distribution gets a tenth of them.
	gaps := make([]int, 10)
	// So many arrive in each interval of the mean gap, as Poisson's law says.
	perInterval := make([]int, int(n*1.05))
	before := time.Duration(0)
	for _, r := range requests {
		if r.At < before {
			t.Fatalf("request %d at %v comes before the last, at %v", r.Seq, r.At, before)
		}
		gap := (r.At - before).Seconds() * rate
		gaps[min(9, int(10*(1-math.Exp(-gap))))]++
		perInterval[int(r.At.Seconds()*rate)]++
		before = r.At
	}
	requireShares(t, slices.Repeat([]float64{0.1}, 10), gaps)
	counts := make([]int, 6)
	for _, k := range perInterval[:int(n*0.95)] {
		counts[min(k, 5)]++
	}
	shares, rest, share := make([]float64, 6), 1.0, math.Exp(-1)
	for k := range 5 {
		shares[k] = share
		rest -= share
		share /= float64(k + 1)
	}
	shares[5] = rest
	requireShares(t, shares, counts)
}

func TestSchedule_ARateNearZeroNeverOverflows(t *testing.T) {
	t.Parallel()
	for _, a := range []Arrivals{Poisson, Constant} {
		before := time.Duration(0)
		for _, r := range take(Options{Rate: 1e-12, Arrivals: a}, 100) {
			require.GreaterOrEqual(t, r.At, before)
			before = r.At
		}
		require.Equal(t, Never, before)
	}
}

func TestStream_Allocs(t *testing.T) {
	for _, d := range []Distribution{Uniform, Zipf, Sequential, Latest} {
		o := Options{Rate: 1000, Distribution: d, Mix: Mix{1, 1, 1, 1}, ValueSize: Sizes{1, 10}, Priority: Priorities{1, 1}, TimeoutHeader: true}.WithDefaults()
		s := NewStream(&o)
		var r Request
		require.Zero(t, testing.AllocsPerRun(1000, func() { s.Next(&r) }), "distribution %v", d)
	}
}

func BenchmarkStream(b *testing.B) {
	for _, d := range []Distribution{Uniform, Zipf, Sequential, Latest} {
		b.Run(fmt.Sprintf("distribution=%v", d), func(b *testing.B) {
			o := Options{Rate: 50_000, Distribution: d}.WithDefaults()
			s := NewStream(&o)
			var r Request
			for b.Loop() {
				s.Next(&r)
			}
		})
	}
}
