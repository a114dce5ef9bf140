//go:build !race

package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// tails agrees with the tables of Student's t.
func TestTails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		freedom int
		t, p    float64
	}{{3, 3.182, 0.05}, {3, 5.841, 0.01}, {4, 2.776, 0.05}, {5, 4.032, 0.01}, {8, 2.306, 0.05}, {8, 5.041, 0.001}, {15, 2.947, 0.01}} {
		require.InEpsilon(t, row.p, tails(row.t, row.freedom), 2e-3)
	}
	require.Zero(t, tails(math.Inf(1), 3))
	require.Equal(t, 1.0, tails(0, 8))
}

func TestContrast(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		a, b         []float64
		median       float64
		same, proven bool
	}{
		{"a machine that drifts by much more than they differ", []float64{100, 120, 80, 150}, []float64{95, 114.2, 75.9, 142.4}, 0.9497, false, true},
		{"nor is it known what would have been without the drift", []float64{100, 120, 80, 150}, []float64{150, 100, 120, 80}, 1.1667, true, false},
		{"three prove nothing", []float64{1785, 1790, 1788}, []float64{1, 1, 1}, 0.00056, false, false},
		{"four do", []float64{1785, 1790, 1788, 1789}, []float64{1, 1, 1, 1}, 0.00056, false, true},
		{"nothing is less than something", []float64{1785, 1790, 1788, 1789}, []float64{0, 0, 0, 0}, 0, false, true},
		{"next to nothing is, wild as it is", []float64{1000, 1010, 990, 1000}, []float64{1, 9, 3, 0}, 0.002, false, true},
		{"of nothing there is no ratio", []float64{0, 0, 0, 0}, []float64{5, 6, 5, 6}, 0, false, true},
		{"all nothing", []float64{0, 0, 0, 0}, []float64{0, 0, 0, 0}, 0, true, false},
		{"less than 2% is the same, however sure", []float64{500, 500, 500, 500}, []float64{509, 509, 509, 509}, 1.018, true, true},
		{"more is not", []float64{500, 500, 500, 500}, []float64{511, 511, 511, 511}, 1.022, false, true},
		{"no repetition in which both were measured", nil, nil, 0, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := contrastOf(tt.a, tt.b)
			ratio, some := Ratio(Summary{Values: tt.b}, Summary{Values: tt.a})
			require.Equal(t, tt.median > 0 || len(tt.a) > 0 && tt.a[0] > 0, some)
			require.InDelta(t, tt.median, ratio.Median, 5e-4)
			require.Equal(t, tt.same, c.same())
			require.Equal(t, tt.proven, c.p(1) < Alpha)
			require.Equal(t, tt.proven, math.Abs(c.mean) > c.margin(1), "the margin says the same")
			back := contrastOf(tt.b, tt.a)
			require.InDelta(t, c.p(1), back.p(1), 1e-9)
		})
	}
}

// noises are how figures vary within a repetition; all have the same mean. Every other
// setting may be wilder than the rest.
var noises = []struct {
	name string
	of   func(random *rand.Rand, setting int) float64
}{
	{"equal spreads", func(r *rand.Rand, _ int) float64 { return 1 + 0.02*r.NormFloat64() }},
	{"half 30 times as wild", func(r *rand.Rand, s int) float64 { return max(0, 1+wild(s, 0.01, 0.3)*r.NormFloat64()) }},
	{"half 10 times as wild", func(r *rand.Rand, s int) float64 { return math.Exp(wild(s, 0.01, 0.1) * r.NormFloat64()) }},
	{"all skewed to the right", func(r *rand.Rand, _ int) float64 { return 0.4 + 0.6*r.ExpFloat64() }},
	{"half skewed to the right", func(r *rand.Rand, s int) float64 {
		if s%2 == 0 {
			return 1 + 0.02*r.NormFloat64()
		}
		return 0.4 + 0.6*r.ExpFloat64()
	}},
	{"half skewed to the left", func(r *rand.Rand, s int) float64 {
		if s%2 == 0 {
			return 1 + 0.01*r.NormFloat64()
		}
		return max(0, 1.3-0.3*r.ExpFloat64())
	}},
	{"half log-normal", func(r *rand.Rand, s int) float64 {
		if s%2 == 0 {
			return 1 + 0.02*r.NormFloat64()
		}
		return math.Exp(0.55*r.NormFloat64() - 0.55*0.55/2)
	}},
}

func wild(setting int, tame, wild float64) float64 {
	if setting%2 == 0 {
		return tame
	}
	return wild
}

// drawn is a comparison whose repetitions differ by a tenth, of settings that differ by
// factors of goodput alone. Metrics that are not noisy are constant.
func drawn(random *rand.Rand, factors []float64, loads, repetitions int, noise func(*rand.Rand, int) float64, noisy ...string) *Comparison {
	c := new(Comparison)
	for load := range loads {
		values := map[string][][]float64{}
		for _, metric := range []string{result.Goodput, result.ServedP99} {
			values[metric] = make([][]float64, len(factors))
			for range repetitions {
				machine := math.Exp(0.1 * random.NormFloat64())
				for s, factor := range factors {
					v := 1000 * machine
					if slices.Contains(noisy, metric) {
						v *= noise(random, s)
					}
					if metric == result.Goodput {
						v *= factor
					}
					values[metric][s] = append(values[metric][s], v)
				}
			}
		}
		for s := range factors {
			g := Group{Combination: scenario.Combination{Strategy: fmt.Sprint(s)}, Workload: fmt.Sprint(load), Metrics: map[string]Summary{}}
			for metric, of := range values {
				g.Metrics[metric] = Spread(of[s])
			}
			c.Groups = append(c.Groups, g)
		}
	}
	return c
}

// names reports whether any verdict of a comparison names a difference.
func names(verdicts []Verdict) bool {
	return slices.ContainsFunc(verdicts, func(v Verdict) bool {
		return len(v.Top) < len(v.Measured) || slices.ContainsFunc(v.Others, func(d Difference) bool { return d.Proven() })
	})
}

// At most one report in twenty names any difference between settings that have the same
// mean, however many settings, loads and runs it has, and whatever their spreads are.
func TestVerdicts_NameNoDifferenceWhereThereIsNone(t *testing.T) {
	t.Parallel()
	for at, noise := range noises {
		for _, settings := range []int{2, 3, 8, 15} {
			for _, loads := range []int{1, 2, 16} {
				for _, noisy := range [][]string{{result.Goodput, result.ServedP99}, {result.ServedP99}} {
					t.Run(fmt.Sprintf("%s/settings=%d/loads=%d/noisy=%d", noise.name, settings, loads, len(noisy)), func(t *testing.T) {
						t.Parallel()
						random := rand.New(rand.NewPCG(uint64(at), uint64(settings*100+loads)))
						reports := min(4000, 60_000/(settings*settings*loads))
						if testing.Short() {
							reports = min(60, 1000/(settings*settings*loads))
						}
						wrong, all := 0, 0
						for i := range max(reports, 2) {
							repetitions := 4 + i%6
							all++
							if names(drawn(random, slices.Repeat([]float64{1}, settings), loads, repetitions, noise.of, noisy...).Verdicts()) {
								wrong++
							}
						}
						// Chance makes it more in a few of so many trials.
						most := Alpha*float64(all) + 2*math.Sqrt(Alpha*float64(all))
						t.Logf("%d of %d reports are wrong: %.1f%%", wrong, all, 100*float64(wrong)/float64(all))
						require.LessOrEqual(t, float64(wrong), most)
					})
				}
			}
		}
	}
}

// What is 5% less is found in at least 80% of reports of two settings, one load and nine
// runs, though from one repetition to the next the machine changes by more.
func TestVerdicts_FindADifference(t *testing.T) {
	t.Parallel()
	const reports = 500
	random := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range reports {
		v := drawn(random, []float64{1, 0.95}, 1, 9, noises[0].of, result.Goodput).Verdicts()[0]
		if len(v.Top) == 1 && v.Top[0] == 0 {
			found++
		}
	}
	t.Logf("%d of %d", found, reports)
	require.GreaterOrEqual(t, found, reports*8/10)

	// What half of it is cannot be told with four runs, in a report of many: it says so.
	many := drawn(random, slices.Repeat([]float64{1}, 8), 16, 4, noises[0].of, result.Goodput).Verdicts()
	require.Greater(t, many[0].Tells, 0.3)
	few := drawn(random, []float64{1, 0.1}, 1, 3, noises[0].of, result.Goodput).Verdicts()[0]
	require.Equal(t, math.Inf(1), few.Tells)
	require.Len(t, few.Top, 2)
	require.False(t, few.Others[0].Proven())
}

// A setting without any good answer differs from all others by as much in every run. That makes
// the others look no steadier than they are.
func TestVerdicts_SettingsWithoutGoodputSayNothingOfTheOthers(t *testing.T) {
	t.Parallel()
	variances := func(without int) map[[2]int][]contrast {
		random := rand.New(rand.NewPCG(5, 6))
		c := drawn(random, []float64{1, 1, 1}, 2, 4, noises[1].of, result.Goodput)
		for load := range 2 {
			for i := range without {
				c.Groups = append(c.Groups, Group{
					Combination: scenario.Combination{Strategy: fmt.Sprint("none", i)}, Workload: fmt.Sprint(load),
					Metrics: map[string]Summary{result.Goodput: Spread([]float64{0, 0, 0, 0}), result.ServedP99: Spread([]float64{9, 9, 9, 9})},
				})
			}
		}
		r := judge(c)
		require.Greater(t, r.pairs[[2]int{1, 0}][0].variance, resolution)
		return r.pairs
	}
	alone := variances(0)
	for pair, among := range variances(12) {
		if of, ok := alone[pair]; ok {
			require.Equal(t, of, among, pair)
		}
	}

	// Among them no more differences are named by chance than in a report of their own.
	const good, reports = 4, 400
	for at, noise := range noises {
		random, wrong := rand.New(rand.NewPCG(uint64(at), 7)), 0
		for range reports {
			v := drawn(random, append(slices.Repeat([]float64{1}, good), 0, 0, 0), 1, 4, noise.of, result.Goodput, result.ServedP99).Verdicts()[0]
			if len(v.Top) < good || slices.ContainsFunc(v.Others, func(d Difference) bool { return d.B < good && d.Proven() }) {
				wrong++
			}
		}
		t.Logf("%s: %d of %d reports are wrong", noise.name, wrong, reports)
		require.LessOrEqual(t, wrong, int(Alpha*reports), noise.name)
	}
}

func TestSummary_IsTheMedianAndTheSpread(t *testing.T) {
	t.Parallel()
	require.Equal(t, Summary{Median: 7, Low: 7, High: 7, Values: []float64{7}}, Spread([]float64{7}))
	require.Equal(t, Summary{Median: 2.5, Low: 1, High: 9, Values: []float64{9, 1, 2, 3}}, Spread([]float64{9, 1, 2, 3}))
	require.Equal(t, Summary{Median: 2, Low: 1, High: 9, Values: []float64{9, 1, 2}}, Spread([]float64{9, 1, 2}))
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

	// The least important class is none of the important ones.
	classes := Summarize([]*result.Result{{Requests: 30, Shares: map[string]result.Share{
		"priority 0": {Requests: 10, Good: 10}, "priority 3": {Requests: 10, Good: 5}, "priority 7": {Requests: 10}, "get": {Requests: 30},
	}}})
	require.Equal(t, 75.0, classes[result.ImportantGood].Median)
	require.NotContains(t, Summarize([]*result.Result{{Shares: map[string]result.Share{"priority 3": {Requests: 10}}}}), result.ImportantGood)

	for _, f := range result.Figures {
		require.Equal(t, f.Title, result.FigureNamed(f.Name).Title)
	}
}
