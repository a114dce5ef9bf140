package versus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/machine"
)

// drawn is what four rounds of a question have found: of is by contestant and load.
// In the last round the machine is twice as slow, which no ratio should show.
func drawn(q *Question, of func(round, load, contestant int) map[string]float64) *lab.Comparison {
	c := &lab.Comparison{
		Machine: machine.Machine{CPUs: 2, CPU: "a processor", Kernel: "Linux", Go: "go1.26"},
		Started: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), Finished: time.Date(2026, 11, 21, 0, 1, 1, 0, time.UTC),
	}
	for load := range q.Loads {
		for contestant := range q.Contestants {
			g := lab.Group{Metrics: map[string]lab.Summary{}}
			for round, slow := range []float64{1, 1, 1, 2} {
				for metric, v := range of(round, load, contestant) {
					m := g.Metrics[metric]
					if m.Values = append(m.Values, v*slow); true {
						sorted := slices.Sorted(slices.Values(m.Values))
						m.Median, m.Low, m.High = sorted[(len(sorted)-1)/2], sorted[0], sorted[len(sorted)-1]
					}
					g.Metrics[metric] = m
				}
			}
			c.Groups = append(c.Groups, g)
		}
	}
	return c
}

// table returns the table of an answer alone.
func table(t *testing.T, q *Question, c *lab.Comparison) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, q.Write(&b, c))
	return b.String()[strings.Index(b.String(), "| load"):]
}

func TestQuestion_WritesPeers(t *testing.T) {
	t.Parallel()
	q, _ := ask(t, "peers", false)
	q.Contestants, q.Loads = q.Contestants[:3], q.Loads[1:3]
	q.Loads[0], q.Loads[1] = q.Loads[1], q.Loads[0] // 64 connections, and one at a fixed rate alone
	q.Loads[1].Connections = 64
	// The third costs as much as the second, or now and then more.
	noise := []float64{1, 1.1, 0.95, 1}
	got := drawn(q, func(round, _, contestant int) map[string]float64 {
		factor := []float64{1, 1.2, 1.2 * noise[round]}[contestant]
		return map[string]float64{
			"served_rps": 50e3 / factor, "server_cpu_served_us": 10 * factor, "server_allocs": factor - 1,
			"latency_p50_ms": 0.1, "latency_p99_ms": factor, "latency_p99_9_ms": 2 * factor, "non2xx_percent": []float64{0, 0, 25}[contestant],
		}
	})
	require.Equal(t, strings.TrimLeft(`
| load | | requests/s | CPU per request | allocations | CPU per request at that rate | p50 at that rate | p99 at that rate | p99.9 at that rate | refused |
|---|---|---|---|---|---|---|---|---|---|
| GET, 64 connections; or 2000/s | bare | 50.0 k | 10.0 µs | 0.00 | 10.0 µs | 0.10 ms | 1.00 ms | 2.00 ms | – |
|  | plain | 41.7 k, **0.83** (0.83–0.83) | 12.0 µs, **1.20** (1.20–1.20) | 0.20 | 12.0 µs, **1.20** (1.20–1.20) | 0.10 ms, 1.00 (1.00–1.00) | 1.20 ms, **1.20** (1.20–1.20) | 2.40 ms, **1.20** (1.20–1.20) | – |
|  | nethttp | 41.7 k, 0.83 (0.76–0.88) | 12.0 µs, 1.20 (1.14–1.32) | 0.20 | 12.0 µs, 1.20 (1.14–1.32) | 0.10 ms, 1.00 (1.00–1.00) | 1.20 ms, 1.20 (1.14–1.32) | 2.40 ms, 1.20 (1.14–1.32) | 25.0% |
`, "\n"), table(t, q, got))

	// A goal is reached only if that is proven.
	q, _ = ask(t, "pairs", false)
	q.Contestants, q.Loads = append(q.Contestants[:3:3], q.Contestants[3]), q.Loads[:1]
	require.Equal(t, strings.TrimLeft(`
| load | | CPU per request | CPU per request × plain, at most 1.03 (PUT), 1.03 (GET) | CPU per request × bare, at most 1.15 (PUT), 1.25 (GET) | refused |
|---|---|---|---|---|---|
| GET, 64 connections | bare | 10.0 µs | **0.83** (0.83–0.83) | – | – |
|  | plain | 12.0 µs | – | **1.20** (1.20–1.20) | – |
|  | adaptive-lifo | 12.0 µs | 1.00 (0.95–1.10): not proven | 1.20 (1.14–1.32): not proven | – |
|  | auto | 15.0 µs | **1.25** (1.25–1.25): missed | **1.50** (1.50–1.50): missed | – |
`, "\n"), table(t, q, drawn(q, func(round, _, contestant int) map[string]float64 {
		return map[string]float64{"served_rps": 1, "server_cpu_served_us": []float64{10, 12, 12 * noise[round], 15}[contestant], "non2xx_percent": 0}
	})))
}

// TestQuestion_WritesItsOwn: a request costs twice as much with each load, and
// auto refuses half over one connection.
func TestQuestion_WritesItsOwn(t *testing.T) {
	t.Parallel()
	q, _ := ask(t, "connections", false)
	q.Loads = q.Loads[1:3] // 8 and 64
	require.Equal(t, strings.TrimLeft(`
| load | | CPU per request | × its own at 64 connections | requests/s | refused |
|---|---|---|---|---|---|
| GET, 8 connections | plain | 10.0 µs | **0.50** (0.50–0.50) | 10.0 k | – |
|  | fifo | 12.0 µs, **1.20** (1.20–1.20) | **0.50** (0.50–0.50) | 10.0 k, 1.00 (1.00–1.00) | – |
|  | auto | 14.0 µs, **1.40** (1.40–1.40) | **0.50** (0.50–0.50) | 10.0 k, 1.00 (1.00–1.00) | 50.0% |
| GET, 64 connections | plain | 20.0 µs | – | 10.0 k | – |
|  | fifo | 24.0 µs, **1.20** (1.20–1.20) | – | 10.0 k, 1.00 (1.00–1.00) | – |
|  | auto | 28.0 µs, **1.40** (1.40–1.40) | – | 10.0 k, 1.00 (1.00–1.00) | – |
`, "\n"), table(t, q, drawn(q, func(_, load, contestant int) map[string]float64 {
		refusing := map[bool]float64{true: 50}[contestant == 2 && load == 0]
		return map[string]float64{"served_rps": 10e3, "server_cpu_served_us": float64((10 + 2*contestant) << load), "non2xx_percent": refusing}
	})))
}

func TestQuestion_WritesWhatOnlyOneHas(t *testing.T) {
	t.Parallel()
	q, _ := ask(t, "values", false)
	q.Loads = q.Loads[:1]
	require.Equal(t, strings.TrimLeft(`
| load | | MB/s | CPU per request | refused |
|---|---|---|---|---|
| range of 11, 64 connections | plain | – | – | – |
|  | fifo | 100.0 | 500.0 µs | – |
`, "\n"), table(t, q, drawn(q, func(_, _, contestant int) map[string]float64 {
		if contestant == 0 {
			return nil
		}
		return map[string]float64{"served_rps": 1000, lab.MegabytesPerSecond: 100, "server_cpu_served_us": 500, "non2xx_percent": 0}
	})))

	q, _ = ask(t, "sync", false)
	q.Loads = q.Loads[:1]
	require.Equal(t, strings.TrimLeft(`
| load | | requests/s | p50 | CPU per request | fsync, mean | fsync, median | refused |
|---|---|---|---|---|---|---|---|
| PUT, 1 connection | never | 20.0 k | 50.0 µs | 20.0 µs | – | – | – |
|  | always | 5.0 k, **0.25** (0.25–0.25) | 200.0 µs, **4.00** (4.00–4.00) | 40.0 µs, **2.00** (2.00–2.00) | 160.0 µs | 150.0 µs | – |
`, "\n"), table(t, q, drawn(q, func(_, _, contestant int) map[string]float64 {
		return []map[string]float64{
			{"served_rps": 20e3, "server_cpu_served_us": 20, "latency_p50_ms": 0.05, lab.FsyncMean: 0, lab.FsyncMedian: 0, "non2xx_percent": 0},
			{"served_rps": 5e3, "server_cpu_served_us": 40, "latency_p50_ms": 0.2, lab.FsyncMean: 160, lab.FsyncMedian: 150, "non2xx_percent": 0},
		}[contestant]
	})))
}

func TestQuestion_WritesConditions(t *testing.T) {
	t.Parallel()
	q, _ := ask(t, "idle", false)
	var b strings.Builder
	require.NoError(t, q.Write(&b, drawn(q, func(int, int, int) map[string]float64 { return map[string]float64{"served_rps": 1} })))
	require.Contains(t, b.String(), "# What do idle connections cost?\n\n2 CPUs (a processor), Linux, go1.26, the generator beside the servers; 2026-11-21, 2 minutes. A store of 100 values")
	require.Contains(t, b.String(), "Medians of 4 rounds, and the ratio to the same without them within a round")
}
