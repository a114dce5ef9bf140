package metrics

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// reference is the histogram of Prometheus' client library that counts the
// same.
func reference(classic []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Buckets: classic, NativeHistogramBucketFactor: 1.1})
}

func written(t testing.TB, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var out dto.Metric
	require.NoError(t, m.Write(&out))
	return out.Histogram
}

// native returns the counts of the native buckets by index.
func native(h *dto.Histogram) map[int32]int64 {
	counts := make(map[int32]int64)
	var index int32
	var count int64
	deltas := h.PositiveDelta
	for _, span := range h.PositiveSpan {
		index += span.GetOffset()
		for range span.GetLength() {
			count += deltas[0]
			deltas = deltas[1:]
			if count > 0 {
				counts[index] = count
			}
			index++
		}
	}
	return counts
}

func requireSame(t *testing.T, want, got *dto.Histogram) {
	t.Helper()
	require.Equal(t, want.GetSampleCount(), got.GetSampleCount())
	require.InEpsilon(t, 1+want.GetSampleSum(), 1+got.GetSampleSum(), 1e-9)
	require.Equal(t, want.GetSchema(), got.GetSchema())
	require.InDelta(t, want.GetZeroThreshold(), got.GetZeroThreshold(), 0)
	require.Equal(t, want.GetZeroCount(), got.GetZeroCount())
	require.Equal(t, native(want), native(got))
	require.Len(t, got.Bucket, len(want.Bucket))
	for i, b := range want.Bucket {
		require.InDelta(t, b.GetUpperBound(), got.Bucket[i].GetUpperBound(), 0)
		require.Equal(t, b.GetCumulativeCount(), got.Bucket[i].GetCumulativeCount(), b.GetUpperBound())
	}
}

// What is exported is what the client library's own histogram would export, of
// durations on bounds and beside them and of any others.
func TestHistogram_IsPrometheus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		classic []float64
		unit    float64
	}{
		"latency": {latencyBuckets, nanoseconds},
		"store":   {storeBuckets, nanoseconds},
		"batches": {batchBuckets, items},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			values := []int64{0, 0, 1, 2, 3, 4, 5, 7, 8, 9}
			for _, bound := range c.classic {
				v := int64(math.Round(bound / c.unit))
				values = append(values, v-1, v, v+1)
			}
			for range 20_000 {
				values = append(values, int64(math.Exp(random.Float64()*29))) // an hour in nanoseconds
			}
			h, want := newHistograms("x", "x", c.classic, c.unit).with(), reference(c.classic)
			requireSame(t, written(t, want), written(t, h))
			for _, v := range values {
				h.observe(v)
				if c.unit == nanoseconds {
					want.Observe(time.Duration(v).Seconds())
				} else {
					want.Observe(float64(v))
				}
			}
			requireSame(t, written(t, want), written(t, h))
			require.Equal(t, h.count(), written(t, h).GetSampleCount())
		})
	}
}

// Every value has the bin that holds it, the first and the last included.
func TestBins(t *testing.T) {
	t.Parallel()
	b := newBins(storeBuckets, nanoseconds)
	last := len(b.upper)
	check := func(v int64) {
		i := b.bin(v)
		require.True(t, i == last || v <= b.upper[i], v)
		require.True(t, i == 0 || v > b.upper[i-1], v)
	}
	for _, upper := range b.upper {
		check(max(1, upper))
		check(upper + 1)
	}
	check(math.MaxInt64)
	require.Len(t, b.class, last+1)
	require.Len(t, b.native, last+1)
}

func TestHistogram_Extremes(t *testing.T) {
	t.Parallel()
	h := newHistograms("x", "x", latencyBuckets, nanoseconds).with()
	h.observeDuration(-time.Second)
	h.observeDuration(math.MaxInt64)
	got := written(t, h)
	require.EqualValues(t, 2, got.GetSampleCount())
	require.EqualValues(t, 1, got.GetZeroCount(), "below zero counts as zero")
	require.EqualValues(t, 1, got.Bucket[len(got.Bucket)-1].GetCumulativeCount(), "beyond all bounds")
}

// The sum does not wrap: a month of ten thousand clients that wait is 800 years.
func TestHistogram_SumOfCenturies(t *testing.T) {
	t.Parallel()
	h := newHistograms("x", "x", latencyBuckets, nanoseconds).with()
	const years, each = 800, 365 * 24 * time.Hour
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range years / 4 {
				h.observeDuration(each)
			}
		})
	}
	wg.Wait()
	require.InEpsilon(t, years*each.Seconds(), written(t, h).GetSampleSum(), 1e-9)
}

func TestHistogram_Concurrent(t *testing.T) {
	t.Parallel()
	v := newHistograms("x", "x", latencyBuckets, nanoseconds, "label")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 5000 {
				v.with("a").observeDuration(time.Duration(i) * time.Microsecond)
			}
		})
	}
	for range 100 {
		h := written(t, v.with("a"))
		require.LessOrEqual(t, h.Bucket[len(h.Bucket)-1].GetCumulativeCount(), h.GetSampleCount())
	}
	wg.Wait()
	require.EqualValues(t, 20_000, v.with("a").count())
}

// What a request pays for each of its histograms, and what it would pay for the
// client library's.
func BenchmarkHistogram(b *testing.B) {
	h, library := newHistograms("x", "x", latencyBuckets, nanoseconds).with(), reference(latencyBuckets)
	for name, observe := range map[string]func(time.Duration){
		"own":     h.observeDuration,
		"library": func(d time.Duration) { library.Observe(d.Seconds()) },
	} {
		b.Run("histogram="+name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for d := time.Microsecond; pb.Next(); d += 77 {
					if d > time.Millisecond {
						d = time.Microsecond
					}
					observe(d)
				}
			})
		})
	}
}
