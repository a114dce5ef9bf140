package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// group returns one with the same goodput and latency in all of its runs but for
// a little.
func group(strategy, load string, goodput float64, runs int) lab.Group {
	values := make([]float64, runs)
	for i := range values {
		values[i] = goodput + float64(i)
	}
	return lab.Group{
		Combination: scenario.Combination{Strategy: strategy}, Workload: load, Runs: make([]string, runs),
		Metrics: map[string]lab.Summary{
			"goodput_rps":      {Median: goodput, Low: goodput - 5, High: goodput + 5, Values: values},
			"sent_goodput_rps": {Median: goodput, Low: goodput - 5, High: goodput + 5, Values: values},
			"offered_rps":      {Median: 2 * goodput, Low: 2 * goodput, High: 2 * goodput, Values: values},
			"non2xx_percent":   {Median: 2.5, Low: 2.49, High: 2.51, Values: []float64{2.49, 2.5, 2.51}},
			"served_p99_ms":    {Median: 1.5, Low: 1, High: 2, Values: []float64{1, 1.3, 1.7, 2}},
		},
	}
}

// requireText compares what a terminal shows with a file of testdata.
func requireText(t *testing.T, file string, in *Input) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Text(&out, in))
	requireAgreed(t, file, out.String())
}

func TestText_TellsDifferencesFromNoise(t *testing.T) {
	t.Parallel()
	slow := group("slow", "get=100, 8 connections", 1001, 4)
	slow.Metrics["served_p99_ms"] = lab.Summary{Median: 3, Low: 3, High: 3.3, Values: []float64{3, 3.1, 3.2, 3.3}}
	one := group("fifo", "get=100, 6 connections", 7, 1)
	one.Metrics["goodput_rps"] = lab.Summary{Median: 7, Low: 7, High: 7, Values: []float64{7}}
	c := &lab.Comparison{Groups: []lab.Group{
		group("fifo", "get=100, 8 connections", 1000, 4),
		group("fifo", "get=100, 9 connections", 50, 3),
		slow,
		group("lifo", "get=100, 8 connections", 1001, 4),
		group("sync", "get=100, 8 connections", 500, 4),
		{Combination: scenario.Combination{Strategy: "none"}, Workload: "get=100, 8 connections"},
		group("sync", "get=100, 9 connections", 40, 3),
		group("fifo", "get=100, 7 connections", 1000, 4),
		group("lifo", "get=100, 7 connections", 1001, 4),
		one,
	}}
	c.Groups[1].Metrics["sent_goodput_rps"] = lab.Summary{Median: 60, Low: 60, High: 60, Values: []float64{60, 60, 60}}
	requireText(t, "comparison.txt", &Input{Comparisons: []*Comparison{{Comparison: c, Runs: make([][]*Run, len(c.Groups))}}})
}

// Whatever there is to say of a run is said, and nothing of what there is not.
func TestText_Run(t *testing.T) {
	t.Parallel()
	in := load(t)
	in.Runs[0].Unseen = "the admin plane fell silent"
	requireText(t, "run.txt", &Input{Runs: in.Runs})
	retries := int64(450)
	full := &result.Result{
		URL: "http://localhost:80", Seconds: 1, OfferedRPS: 1000, CompletedRPS: 1000, GoodputRPS: 100, SentGoodputRPS: 900, SLOMillis: 0.5,
		Keys: 100_000, ValueSize: workload.Sizes{Min: 100, Max: 200}, Requests: 1000, Operations: map[string]int64{"get": 800, "put": 200},
		Misses: 401, Status: map[string]int64{"200": 399, "404": 401, "201": 200}, Retries: &retries, ClientCPUMicros: 4, TargetRPS: 1000,
		Engine: workload.Epoll, Protocols: map[string]int64{"HTTP/1.1": 1000}, Waited: 931, Connections: 64, Partial: "interrupted 1.0 s after its start",
		Latency: result.Percentiles{Mean: 1, P50: 1, P90: 1, P99: 1, P999: 1, P9999: 1, Max: 1, Count: 1000}, Lateness: result.Percentiles{P99: 3.1, Max: 5, Count: 1000},
		ConnectionWait: result.Percentiles{P50: 9400.31, Count: 1000},
	}
	full.LatencyHDR, full.ServedHDR = in.Runs[0].LatencyHDR, in.Runs[0].ServedHDR
	requireText(t, "busy.txt", &Input{Runs: []*Run{{Result: full}}})
	requireText(t, "saturation.txt", &Input{Saturations: in.Saturations})
}
