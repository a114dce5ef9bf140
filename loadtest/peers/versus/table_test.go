package versus

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spillway/loadtest"
	"spillway/loadtest/lab"
)

// made is a result of three rounds: bare takes 10 us, plain 12, and fifo 1.0, 1.1
// and 1.2 times as much as plain; in the last round the machine is twice as slow,
// which no ratio should show.
func made() *Result {
	r := &Result{
		Machine: loadtest.Machine{CPUs: 2, CPU: "a processor", Kernel: "Linux", Go: "go1.26"},
		Started: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), Seconds: 61, Keys: 1000,
		Contestants: []string{"bare", "plain", "fifo"},
		Loads: []Load{
			{Op: loadtest.Put, Name: "PUT", Connections: 1},
			{Op: loadtest.Put, Name: "PUT", Connections: 1, Rate: 2000},
			{Op: loadtest.Get, Name: "GET", Connections: 64},
		},
	}
	for n, slow := range []float64{1, 1, 2} {
		figures := func(factor float64) Figures {
			return Figures{
				RPS: 50e3 / factor / slow, CPUMicros: 10 * factor * slow, Mallocs: factor - 1,
				P50: 0.1 * slow, P99: factor * slow, P999: 2 * factor * slow,
			}
		}
		load := []Figures{figures(1), figures(1.2), figures(1.2 * (1 + float64(n)/10))}
		refusing := append([]Figures(nil), load...)
		refusing[2].Refused = 0.25
		r.Rounds = append(r.Rounds, [][]Figures{load, load, refusing})
	}
	return r
}

func TestResult_Table(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, made().WriteTable(&b, "bare"))
	require.Equal(t, strings.TrimLeft(`
| load | | requests/s | CPU a request | allocations | CPU a request at that rate | p50 at that rate | p99 at that rate | p99.9 at that rate | refused |
|---|---|---|---|---|---|---|---|---|---|
| PUT, 1 connection; or 2000/s | bare | 50.0 k | 10.0 µs | 0.00 | 10.0 µs | 0.10 ms | 1.00 ms | 2.00 ms | – |
|  | plain | 41.7 k, **0.83** (0.83–0.83) | 12.0 µs, **1.20** (1.20–1.20) | 0.20 | 12.0 µs, **1.20** (1.20–1.20) | 0.10 ms, **1.00** (1.00–1.00) | 1.20 ms, **1.20** (1.20–1.20) | 2.40 ms, **1.20** (1.20–1.20) | – |
|  | fifo | 37.9 k, **0.76** (0.69–0.83) | 13.2 µs, **1.32** (1.20–1.44) | 0.32 | 13.2 µs, **1.32** (1.20–1.44) | 0.10 ms, **1.00** (1.00–1.00) | 1.32 ms, **1.32** (1.20–1.44) | 2.64 ms, **1.32** (1.20–1.44) | – |
| GET, 64 connections | bare | 50.0 k | 10.0 µs | 0.00 | – | – | – | – | – |
|  | plain | 41.7 k, **0.83** (0.83–0.83) | 12.0 µs, **1.20** (1.20–1.20) | 0.20 | – | – | – | – | – |
|  | fifo | 37.9 k, **0.76** (0.69–0.83) | 13.2 µs, **1.32** (1.20–1.44) | 0.32 | – | – | – | – | 25.0% |
`, "\n"), b.String())
	require.ErrorContains(t, made().WriteTable(&b, "nginx"), "nginx")
}

func TestResult_Goals(t *testing.T) {
	t.Parallel()
	r := made()
	r.Contestants = append(r.Contestants, "lifo") // as cheap as plain
	for _, round := range r.Rounds {
		for i := range round {
			round[i] = append(round[i], round[i][1])
		}
	}
	var b strings.Builder
	require.NoError(t, r.WriteGoals(&b, []string{"bare", "plain"}))
	require.Equal(t, strings.TrimLeft(`
| load | | CPU a request | × plain, at most 1.03 | | × bare, at most 1.15 (PUT), 1.25 (GET) | |
|---|---|---|---|---|---|---|
| PUT, 1 connection | bare | 10.0 µs | **0.83** (0.83–0.83) | | – | |
|  | plain | 12.0 µs | – | | **1.20** (1.20–1.20) | |
|  | fifo | 13.2 µs | **1.10** (1.00–1.20) | missed | **1.32** (1.20–1.44) | missed |
|  | lifo | 12.0 µs | **1.00** (1.00–1.00) | reached | **1.20** (1.20–1.20) | missed |
| GET, 64 connections | bare | 10.0 µs | **0.83** (0.83–0.83) | | – | |
|  | plain | 12.0 µs | – | | **1.20** (1.20–1.20) | |
|  | fifo | 13.2 µs | **1.10** (1.00–1.20) | missed | **1.32** (1.20–1.44) | missed |
|  | lifo | 12.0 µs | **1.00** (1.00–1.00) | reached | **1.20** (1.20–1.20) | reached |
`, "\n"), b.String())
	r.Contestants[1] = "nethttp"
	require.ErrorContains(t, r.WriteGoals(&b, nil), "plain and bare must be among")
}

func TestResult_Conditions(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, made().WriteConditions(&b, "*bare*"))
	require.Contains(t, b.String(), "2 CPUs (a processor), Linux, go1.26")
	require.Contains(t, b.String(), "2026-11-21, 2 minutes. A store of 1000 values")
	require.Contains(t, b.String(), "Medians of 3 rounds; **bold** is the ratio to *bare* within")
}

func TestResult_Builds(t *testing.T) {
	t.Parallel()
	r := made()
	r.Contestants = []string{"lifo", "fifo-other", "fifo"}
	var b strings.Builder
	require.NoError(t, r.WriteBuilds(&b))
	require.Equal(t, strings.TrimLeft(`
| load | | CPU a request, other build | this build | requests/s, other build | this build |
|---|---|---|---|---|---|
| PUT, 1 connection | fifo | 12.0 µs | 13.2 µs, **1.10** (1.00–1.20) | 41.7 k | 37.9 k, **0.91** (0.83–1.00) |
| GET, 64 connections | fifo | 12.0 µs | 13.2 µs, **1.10** (1.00–1.20) | 41.7 k | 37.9 k, **0.91** (0.83–1.00) |
`, "\n"), b.String())
}

// TestResult_RatioOfNothing: what cannot be divided by has no ratio.
func TestResult_RatioOfNothing(t *testing.T) {
	t.Parallel()
	_, ok := made().ratio(0, 1, 0, mallocs)
	require.False(t, ok)
	got, ok := made().ratio(0, 2, 1, mallocs)
	require.True(t, ok)
	require.InDelta(t, 1.6, got.Median, 1e-9)
	require.IsType(t, lab.Summary{}, got)
}
