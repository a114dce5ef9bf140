package result

import (
	"bytes"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Against the percentiles of the sorted values themselves.
func TestPercentiles_AreThoseOfTheValues(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	h := newHistogram(fine)
	values := make([]float64, 200_000)
	var sum float64
	for i := range values {
		d := time.Duration(math.Exp(random.NormFloat64()*2) * float64(time.Millisecond))
		record(h, d)
		values[i] = milliseconds(d)
		sum += values[i]
	}
	slices.Sort(values)
	at := func(p float64) float64 { return values[int(math.Round(p/100*float64(len(values))))-1] }
	p := percentiles(h)
	for got, want := range map[float64]float64{
		p.Mean: sum / float64(len(values)), p.P50: at(50), p.P90: at(90), p.P99: at(99), p.P999: at(99.9), p.P9999: at(99.99), p.Max: at(100),
	} {
		require.InEpsilon(t, want, got, 0.002) // three digits, and the microsecond below 1 ms
	}
}

func TestPercentiles_OfNothingAreZero(t *testing.T) {
	t.Parallel()
	require.Zero(t, percentiles(newHistogram(fine)))
}

func TestRecord_KeepsWhatIsOutOfBounds(t *testing.T) {
	t.Parallel()
	h := newHistogram(fine)
	record(h, -time.Second)
	record(h, math.MaxInt64)
	require.EqualValues(t, 2, h.TotalCount())
	require.EqualValues(t, 0, h.Min())
	require.InEpsilon(t, longest.Microseconds(), h.Max(), 0.001)
}

func TestHistogram_IsTheSameOnceDecoded(t *testing.T) {
	t.Parallel()
	h, served := newHistogram(fine), newHistogram(fine)
	for i := range 10_000 {
		record(h, time.Duration(i*i)*time.Microsecond)
		record(served, time.Duration(i)*time.Microsecond)
	}
	r := &Result{LatencyHDR: encodeHistogram(h), ServedHDR: encodeHistogram(served)}
	again, err := r.Histogram()
	require.NoError(t, err)
	require.True(t, h.Equals(again))
	again, err = r.ServedHistogram()
	require.NoError(t, err)
	require.True(t, served.Equals(again))
	require.NotPanics(t, func() { again.Merge(h) })

	for _, text := range []string{"", "x", "HISTFAAAAA==", r.LatencyHDR[:len(r.LatencyHDR)/2]} {
		r := &Result{LatencyHDR: text, ServedHDR: text}
		_, err := r.Histogram()
		require.ErrorContains(t, err, "latency_hdr", "%q", text)
		_, err = r.ServedHistogram()
		require.ErrorContains(t, err, "served_latency_hdr", "%q", text)
		require.Error(t, r.WriteHDR(&bytes.Buffer{}))
	}
}

// The text is the one that HdrHistogram's tools plot, in milliseconds.
func TestResult_WriteHDR(t *testing.T) {
	t.Parallel()
	h := newHistogram(fine)
	for i := range 1000 {
		record(h, time.Duration(i+1)*time.Millisecond)
	}
	var out bytes.Buffer
	require.NoError(t, (&Result{LatencyHDR: encodeHistogram(h)}).WriteHDR(&out))
	text := out.String()
	require.Regexp(t, `^ *Value\s+Percentile\s+TotalCount\s+1/\(1-Percentile\)\n\n`, text)
	require.Regexp(t, regexp.MustCompile(`(?m)^ +500\.\d{3} +0\.500000 +500 +2\.00$`), text)
	require.Regexp(t, regexp.MustCompile(`(?m)^ +1000\.\d{3} +1\.000000 +1000 +inf$`), text)
	require.Regexp(t, regexp.MustCompile(`(?m)^#\[Mean +=`), text)
	require.Regexp(t, regexp.MustCompile(`(?m)^#\[Max +=.*Total count += +1000\]$`), text)

	out.Reset()
	require.NoError(t, (&Result{LatencyHDR: encodeHistogram(newHistogram(fine))}).WriteHDR(&out))
	require.NotEmpty(t, out.String())
}
