package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
)

// group returns one with the same goodput and latency in all of its runs but for
// a little.
func group(series, workload string, goodput float64, runs int) lab.Group {
	values := make([]float64, runs)
	for i := range values {
		values[i] = goodput + float64(i)
	}
	return lab.Group{
		Series: series, Workload: workload,
		Metrics: map[string]lab.Summary{
			"goodput_rps":    {Median: goodput, Low: goodput - 5, High: goodput + 5, Values: values},
			"non2xx_percent": {Median: 2.5, Low: 2.49, High: 2.51, Values: []float64{2.49, 2.5, 2.51}},
			"served_p99_ms":  {Median: 1.5, Low: 1, High: 2, Values: []float64{1, 1.3, 1.7, 2}},
		},
	}
}

func TestSummarize_TellsDifferencesFromNoise(t *testing.T) {
	t.Parallel()
	one := group("fifo, 6 connections", "get=100, 6 connections", 7, 1)
	one.Metrics["goodput_rps"] = lab.Summary{Median: 7, Low: 7, High: 7, Values: []float64{7}}
	slow := group("slow, 8 connections", "get=100, 8 connections", 1001, 4)
	slow.Metrics["served_p99_ms"] = lab.Summary{Median: 3, Low: 3, High: 3.3, Values: []float64{3, 3.1, 3.2, 3.3}}
	never := lab.Group{Series: "none, 8 connections", Workload: "get=100, 8 connections"}
	c := &lab.Comparison{Groups: []lab.Group{
		group("fifo, 8 connections", "get=100, 8 connections", 1000, 4),
		group("fifo, 9 connections", "get=100, 9 connections", 50, 3),
		slow,
		group("lifo, 8 connections", "get=100, 8 connections", 1001, 4),
		group("sync, 8 connections", "get=100, 8 connections", 500, 4),
		never,
		group("sync, 9 connections", "get=100, 9 connections", 40, 3),
		group("fifo, 7 connections", "get=100, 7 connections", 1000, 4),
		group("lifo, 7 connections", "get=100, 7 connections", 1001, 4),
		one,
	}}
	c.Groups[1].Metrics["sent_goodput_rps"] = lab.Summary{Median: 60, Low: 60, High: 60}
	var out bytes.Buffer
	s := session{out: &out}
	s.summarize(c)
	require.Equal(t, `By goodput fifo is unbeaten under 3 of 3 loads.
get=100, 8 connections
        against the best      goodput/s        served p99 ms     non-2xx %
  fifo  p99 −53%, not proven  1000 (995–1005)  1.50 (1.00–2.00)  2.5
  slow  highest goodput       1001 (996–1006)  3.00 (3.00–3.30)  2.5
  lifo  p99 −53%, not proven  1001 (996–1006)  1.50 (1.00–2.00)  2.5
  sync  −50%                  500 (495–505)    1.50 (1.00–2.00)  2.5
  none  not run               –                –                 –
  4 runs tell goodput apart that differs by 2% or more
get=100, 9 connections
        against the best  goodput/s   as the service sees it  served p99 ms     non-2xx %
  fifo  highest goodput   50 (45–55)  60                      1.50 (1.00–2.00)  2.5
  sync  −20%, not proven  40 (35–45)  –                       1.50 (1.00–2.00)  2.5
  nothing could be told: 3 runs are fewer than 4
get=100, 7 connections
        against the best  goodput/s        served p99 ms     non-2xx %
  fifo  the same          1000 (995–1005)  1.50 (1.00–2.00)  2.5
  lifo  best              1001 (996–1006)  1.50 (1.00–2.00)  2.5
  4 runs tell goodput apart that differs by 2% or more
get=100, 6 connections
        goodput/s  served p99 ms     non-2xx %
  fifo  7          1.50 (1.00–2.00)  2.5
`, out.String())
}
