package lab

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"spillway/loadtest"
)

func TestComparison_TellsDifferencesFromNoise(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		a, b        []float64
		ratio, p    float64
		significant bool
		tooFew      bool
	}{
		// The least that the test can say of 4 against 4: 2 of 70 orders.
		{"four that do not overlap", []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.6, 2.0 / 70, true, false},
		{"the same, in another order", []float64{4, 1, 3, 2}, []float64{8, 5, 7, 6}, 2.6, 2.0 / 70, true, false},
		{"one overlaps", []float64{1, 2, 3, 5}, []float64{4, 6, 7, 8}, 2.6, 4.0 / 70, false, false},
		{"three that do not overlap", []float64{1, 2, 3}, []float64{5, 6, 7}, 3, 0.1, false, true},
		{"three against four", []float64{1, 2, 3}, []float64{5, 6, 7, 8}, 3.25, 2.0 / 35, false, true},
		{"three against five", []float64{1, 2, 3}, []float64{5, 6, 7, 8, 9}, 3.5, 2.0 / 56, true, false},
		// R: wilcox.test(c(0.80,0.83,1.89,1.04,1.45,1.38,1.91,1.64,0.73,1.46),
		// c(1.15,0.88,0.90,0.74,1.21)) has W = 35 and p = 0.2544.
		{
			"Hollander and Wolfe's permeability", []float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46},
			[]float64{1.15, 0.88, 0.90, 0.74, 1.21}, 0.90 / 1.415, 0.2544, false, false,
		},
		{"all the same", []float64{5, 5, 5, 5}, []float64{5, 5, 5, 5}, 1, 1, false, false},
		{"all zero", []float64{0, 0, 0, 0}, []float64{0, 0, 0, 0}, 1, 1, false, false},
		{"from zero", []float64{0, 0, 0, 0}, []float64{1, 2, 3, 4}, 0, 2.0 / 70, true, false},
		{"not measured", nil, []float64{1, 2, 3, 4}, 0, 1, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &Comparison{Groups: make([]Group, 2)}
			for i, values := range [][]float64{tt.a, tt.b} {
				if values != nil {
					c.Groups[i].Metrics = map[string]Summary{"m": summary(values)}
				}
			}
			d := c.Compare("m", 0, 1)
			require.InDelta(t, tt.ratio, d.Ratio, 1e-9)
			require.InDelta(t, tt.p, d.P, 5e-5)
			require.Equal(t, tt.significant, d.Significant)
			require.Equal(t, tt.tooFew, d.TooFew)
			require.Equal(t, d.P, c.Compare("m", 1, 0).P)
			if tt.a != nil {
				require.Equal(t, tt.a, c.Groups[0].Metrics["m"].Values, "the order of the runs")
			}
		})
	}
}

// Of groups between which there is no difference, one pair in twenty at most is
// told apart.
func TestComparison_IsRightNineteenTimesOfTwenty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() Group {
		values := make([]float64, 9)
		for i := range values {
			values[i] = random.ExpFloat64()
		}
		return Group{Metrics: map[string]Summary{"m": summary(values)}}
	}
	const pairs = 2000
	wrong := 0
	for range pairs {
		c := &Comparison{Groups: []Group{draw(), draw()}}
		if c.Compare("m", 0, 1).Significant {
			wrong++
		}
	}
	require.LessOrEqual(t, wrong, pairs/20+pairs/100)
	require.Greater(t, wrong, pairs/50)
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
	r := &loadtest.Result{
		OfferedRPS: 1000, CompletedRPS: 900, ServedRPS: 850, GoodputRPS: 800, Requests: 200,
		Status:          map[string]int64{"200": 50, "201": 50, "404": 20, "503": 60, "504": 10, "400": 2},
		Shed:            map[string]int64{"full": 60, "expired": 10},
		Errors:          map[loadtest.ErrorKind]int64{loadtest.ErrorTimeout: 8},
		Latency:         loadtest.Percentiles{P50: 1, P99: 2, P999: 3},
		ServedLatency:   loadtest.Percentiles{P50: 4, P99: 5, P999: 6},
		ServerCPUMicros: &cpu, ServerCPUServedMicros: &served,
	}
	got := map[string]float64{}
	for name, s := range summarize([]*loadtest.Result{r}) {
		got[name] = s.Median
	}
	require.Equal(t, map[string]float64{
		"offered_rps": 1000, "completed_rps": 900, "served_rps": 850, "goodput_rps": 800,
		"latency_p50_ms": 1, "latency_p99_ms": 2, "latency_p99_9_ms": 3,
		"served_p50_ms": 4, "served_p99_ms": 5, "served_p99_9_ms": 6,
		"server_cpu_us": 12.5, "server_cpu_served_us": 16, "non2xx_percent": 36, "shed_percent": 35, "errors_percent": 4,
	}, got)

	// What was not served has no latency, rather than the best.
	none := summarize([]*loadtest.Result{r, {Requests: 5, Status: map[string]int64{"503": 5}}})
	require.Len(t, none["served_p99_ms"].Values, 1)
	require.Len(t, none["latency_p99_ms"].Values, 2)

	for _, m := range Metrics {
		found, ok := MetricNamed(m.Name)
		require.True(t, ok)
		require.Equal(t, m.Title, found.Title)
	}
	_, ok := MetricNamed("beauty")
	require.False(t, ok)
}
