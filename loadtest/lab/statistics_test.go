package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
)

func TestFamily_Compare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name               string
		values             [][]float64
		median, low, high  float64
		significant, apart bool
	}{
		{
			"a machine that drifts by much more than they differ",
			[][]float64{{100, 120, 80, 150}, {95, 114.2, 75.9, 142.4}}, 0.9497, 0.9488, 0.9517, true, false,
		},
		{
			"nor is it known what would have been without the drift", // sorted, they are the same
			[][]float64{{100, 120, 80, 150}, {150, 100, 120, 80}}, 1.1667, 0.5333, 1.5, false, false,
		},
		{"three prove nothing", [][]float64{{1785, 1790, 1788}, {1, 1, 1}}, 0.00056, 0.00055, 0.00057, false, true},
		{"four do", [][]float64{{1785, 1790, 1788, 1789}, {1, 1, 1, 1}}, 0.00056, 0.00055, 0.00057, true, true},
		{"nothing is less than something", [][]float64{{1785, 1790, 1788, 1789}, {0, 0, 0, 0}}, 0, 0, 0, true, true},
		{"all the same", [][]float64{{5, 5, 5, 5}, {5, 5, 5, 5}}, 1, 1, 1, false, false},
		{"all nothing", [][]float64{{0, 0, 0, 0}, {0, 0, 0, 0}}, 1, 1, 1, false, false},
		{"of nothing there is no ratio", [][]float64{{0, 0, 0, 0}, {5, 6, 5, 6}}, 0, 0, 0, true, true},
		{"what figures resolve", [][]float64{{5, 5, 5, 5}, {5.001, 5.001, 5.001, 5.001}}, 1.0002, 1.0002, 1.0002, false, true},
		{"no repetition in which both were measured", [][]float64{nil, nil}, 0, 0, 0, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newFamily(tt.values, drawingOf(len(tt.values))).Compare(0, 1)
			require.InDelta(t, tt.median, c.Ratio.Median, 5e-5)
			require.InDelta(t, tt.low, c.Ratio.Low, 5e-5)
			require.InDelta(t, tt.high, c.Ratio.High, 5e-5)
			require.Equal(t, tt.significant, c.Significant())
			require.Equal(t, tt.significant, c.Low > 1 || c.High < 1, "as its bounds say: %v to %v", c.Low, c.High)
			back := newFamily(tt.values, drawingOf(len(tt.values))).Compare(1, 0)
			require.Equal(t, c.P, back.P)
			if c.P < 1 {
				require.InEpsilon(t, c.Low, 1/back.High, 1e-9)
			}
		})
	}
}

// noises are how figures vary within a repetition: as they are taken to, and not.
var noises = map[string]func(random *rand.Rand, group int) float64{
	"normal":      func(random *rand.Rand, _ int) float64 { return math.Exp(0.01 * random.NormFloat64()) },
	"exponential": func(random *rand.Rand, _ int) float64 { return random.ExpFloat64() },
	"a stray run in ten": func(random *rand.Rand, _ int) float64 {
		return math.Exp(0.01*random.NormFloat64()) * (1 - 0.3*math.Floor(random.Float64()+0.1))
	},
	"one of two values": func(random *rand.Rand, _ int) float64 { return 1 + 0.01*float64(random.IntN(2)) },
	"a third ten times as wild": func(random *rand.Rand, group int) float64 {
		return math.Exp(math.Pow(10, -2+float64(max(0, group%3-1))) * random.NormFloat64())
	},
}

// drifting draws a comparison whose repetitions differ by a tenth, of groups that
// differ by factors alone.
func drifting(random *rand.Rand, factors []float64, repetitions int, noise func(*rand.Rand, int) float64) *Comparison {
	c := &Comparison{Groups: make([]Group, len(factors))}
	for _, metric := range []string{Goodput, ServedP99} {
		values := make([][]float64, len(factors))
		for range repetitions {
			machine := 1000 * math.Exp(0.1*random.NormFloat64())
			for g, factor := range factors {
				values[g] = append(values[g], machine*factor*noise(random, g))
			}
		}
		for g := range values {
			if c.Groups[g].Metrics == nil {
				c.Groups[g].Metrics = map[string]Summary{}
			}
			c.Groups[g].Metrics[metric] = summary(values[g])
		}
	}
	return c
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// fewer draws fewer families than real verdicts do, as there are many verdicts, and
// other ones each time.
func fewer(random *rand.Rand) func(int) drawing {
	return func(int) drawing { return drawing{99, random} }
}

// At most one verdict in twenty names a difference between settings of which there
// is none, however many there are, and whatever their noise is like, if it is like
// that of the others.
func TestVerdict_NamesNoDifferenceWhereThereIsNone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		noise                 string
		settings, repetitions int
		most                  float64
	}{
		{"normal", 15, 4, Alpha}, {"normal", 15, 9, Alpha}, {"normal", 2, 4, Alpha}, {"normal", 5, 5, Alpha},
		{"exponential", 15, 4, Alpha}, {"exponential", 2, 4, Alpha},
		{"a stray run in ten", 15, 4, Alpha}, {"one of two values", 15, 4, Alpha},
		{"a third ten times as wild", 15, 4, 0.08},
	} {
		t.Run(fmt.Sprintf("%s/%dx%d", tt.noise, tt.settings, tt.repetitions), func(t *testing.T) {
			t.Parallel()
			verdicts := 1500 / tt.settings // as few take a moment, and are nearer to the limit
			random := rand.New(rand.NewPCG(5, 6))
			equal := slices.Repeat([]float64{1}, tt.settings)
			wrong := 0
			for range verdicts {
				v := drifting(random, equal, tt.repetitions, noises[tt.noise]).verdict(indices(tt.settings), fewer(random))
				if len(v.Top) < tt.settings {
					wrong++
				}
			}
			require.LessOrEqual(t, float64(wrong), tt.most*float64(verdicts))
		})
	}
}

// What is 5% less is found in most cases, though from one repetition to the next the
// machine changes by more.
func TestVerdict_FindsADifference(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ settings, repetitions int }{{2, 4}, {3, 4}, {15, 4}, {15, 9}} {
		t.Run(fmt.Sprintf("%dx%d", size.settings, size.repetitions), func(t *testing.T) {
			t.Parallel()
			const verdicts = 100
			random := rand.New(rand.NewPCG(3, 4))
			factors := slices.Repeat([]float64{1}, size.settings)
			factors[1] = 0.95
			found := 0
			for range verdicts {
				v := drifting(random, factors, size.repetitions, noises["normal"]).verdict(indices(size.settings), fewer(random))
				if slices.ContainsFunc(v.Less, func(d Difference) bool { return d.B == 1 }) {
					found++
				}
			}
			require.Greater(t, found, verdicts*8/10)
		})
	}
}

func TestSummary_IsTheMedianAndTheSpread(t *testing.T) {
	t.Parallel()
	require.Equal(t, Summary{Median: 7, Low: 7, High: 7, Values: []float64{7}}, summary([]float64{7}))
	require.Equal(t, Summary{Median: 2.5, Low: 1, High: 9, Values: []float64{9, 1, 2, 3}}, summary([]float64{9, 1, 2, 3}))
	require.Equal(t, Summary{Median: 2, Low: 1, High: 9, Values: []float64{9, 1, 2}}, summary([]float64{9, 1, 2}))
}

func TestMetrics_AreTakenFromResults(t *testing.T) {
	t.Parallel()
	cpu, served := 12.5, 16.0
	r := &result.Result{
		OfferedRPS: 1000, CompletedRPS: 900, ServedRPS: 850, GoodputRPS: 800, SentGoodputRPS: 840, Requests: 200,
		Status:          map[string]int64{"200": 40, "201": 50, "304": 10, "404": 20, "503": 60, "504": 10, "400": 2},
		Misses:          15, // of the 404: the others are to puts
		Shed:            map[string]int64{"full": 60, "expired": 10},
		Errors:          map[result.ErrorKind]int64{result.ErrorTimeout: 8},
		Latency:         result.Percentiles{P50: 1, P99: 2, P999: 3},
		ServedLatency:   result.Percentiles{P50: 4, P99: 5, P999: 6},
		ServerCPUMicros: &cpu, ServerCPUServedMicros: &served,
		Lateness: result.Percentiles{P99: 0.5},
	}
	got := map[string]float64{}
	for name, s := range Summarize([]*result.Result{r}) {
		got[name] = s.Median
	}
	require.Equal(t, map[string]float64{
		"offered_rps": 1000, "completed_rps": 900, "served_rps": 850, "goodput_rps": 800, "sent_goodput_rps": 840,
		"latency_p50_ms": 1, "latency_p99_ms": 2, "latency_p99_9_ms": 3,
		"served_p50_ms": 4, "served_p99_ms": 5, "served_p99_9_ms": 6,
		"server_cpu_us": 12.5, "server_cpu_served_us": 16, "non2xx_percent": 38.5, "shed_percent": 35, "errors_percent": 4,
		"generator_late_p99_ms": 0.5,
	}, got)

	// What was not served has no latency, rather than the best.
	none := Summarize([]*result.Result{{Requests: 5, Status: map[string]int64{"503": 5}}, nil, r})
	require.Len(t, none["served_p99_ms"].Values, 1)
	require.Equal(t, []int{2}, none["served_p99_ms"].Repetitions)
	require.Len(t, none["latency_p99_ms"].Values, 2)
	require.Equal(t, []int{0, 2}, none["latency_p99_ms"].Repetitions)
	require.Nil(t, Summarize([]*result.Result{r, nil})["latency_p99_ms"].Repetitions)
	p99 := none["latency_p99_ms"]
	_, ok := p99.of(1)
	require.False(t, ok)
	v, ok := p99.of(2)
	require.True(t, ok)
	require.Equal(t, 2.0, v)

	// A percentile with fewer than ten requests beyond it is a guess.
	guesses := Summarize([]*result.Result{{
		Requests: 999, Status: map[string]int64{"200": 999},
		Latency: result.Percentiles{P50: 1, P99: 2, P999: 3, Count: 1000}, ServedLatency: result.Percentiles{P50: 1, P99: 2, P999: 3, Count: 999},
	}})
	require.Contains(t, guesses, "latency_p99_ms")
	require.NotContains(t, guesses, "latency_p99_9_ms")
	require.Contains(t, guesses, "served_p50_ms")
	require.NotContains(t, guesses, "served_p99_ms")

	for _, m := range Metrics {
		found, ok := MetricNamed(m.Name)
		require.True(t, ok)
		require.Equal(t, m.Title, found.Title)
	}
	_, ok = MetricNamed("beauty")
	require.False(t, ok)
}
