package versus

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spillway/loadtest"
)

// ask asks a question of servers that the test binary is.
func ask(t *testing.T, name string, quick bool) (*Question, Options) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	s := Setup{Service: self, Peer: self, Keys: 100, Large: 200_000, Quick: quick}
	q, err := Ask(name, s)
	require.NoError(t, err)
	o := q.Options(s)
	o.Dir, o.Progress = filepath.Join(t.TempDir(), "stores"), func(string) {}
	o.Rounds, o.Passes, o.Requests, o.Duration = 1, 1, 200, time.Millisecond
	return q, o
}

func TestQuestions_WhatIsMeasured(t *testing.T) {
	t.Parallel()
	getPut := []string{"GET, 64 connections", "PUT, 64 connections"}
	want := map[string]struct{ contestants, loads []string }{
		"connections": {[]string{"plain", "fifo", "auto"}, []string{
			"GET, 1 connection", "GET, 8 connections", "GET, 64 connections", "GET, 512 connections", "GET, 4096 connections",
			"PUT, 1 connection", "PUT, 8 connections", "PUT, 64 connections", "PUT, 512 connections", "PUT, 4096 connections",
		}},
		"workers": {nil, getPut}, // by the machine
		"cpus":    {[]string{"plain-1", "fifo-1", "plain-2", "fifo-2", "plain-4", "fifo-4"}, getPut},
		"loops":   {nil, []string{"GET, 64 connections", "GET, a connection each, 512 at a time"}},
		"sync":    {[]string{"never", "always"}, []string{"PUT, 1 connection", "PUT, 64 connections", "PUT, 256 connections"}},
		"store":   {[]string{"fifo-small", "fifo-large"}, []string{"GET, 64 connections", "GET, zipf, 64 connections", "GET, absent, 64 connections"}},
		"idle":    {[]string{"fifo", "fifo-idle"}, getPut},
		"values": {[]string{"plain", "fifo"}, []string{
			"range of 11, 64 connections", "GET, 64 connections", "PUT, 64 connections",
			"GET of 10KiB, 64 connections", "PUT of 10KiB, 64 connections", "GET of 100KiB, 64 connections", "PUT of 100KiB, 64 connections",
			"GET of 1MiB, 64 connections", "PUT of 1MiB, 64 connections",
		}},
	}
	require.Len(t, Questions(), len(want))
	for _, name := range Questions() {
		q, _ := ask(t, name, false)
		var contestants, loads []string
		for _, c := range q.Contestants {
			contestants = append(contestants, c.Name)
		}
		for _, l := range q.Loads {
			loads = append(loads, l.String())
		}
		require.Equal(t, want[name].loads, loads, name)
		if want[name].contestants != nil {
			require.Equal(t, want[name].contestants, contestants, name)
		}
		// Each is compared with one that is there.
		for _, c := range q.Contestants {
			require.Contains(t, contestants, c.Base, name)
		}
	}
	_, err := Ask("weather", Setup{})
	require.ErrorContains(t, err, `no question "weather", choose of connections, workers,`)
}

func TestQuestions_Settings(t *testing.T) {
	t.Parallel()
	with := func(question, contestant string) Contestant {
		q, _ := ask(t, question, false)
		i := slices.IndexFunc(q.Contestants, func(c Contestant) bool { return c.Name == contestant })
		require.GreaterOrEqual(t, i, 0, "%s among %v", contestant, q.Contestants)
		return q.Contestants[i]
	}
	last := func(c Contestant) string { return c.Env[len(c.Env)-1] }
	require.Equal(t, "SPILLWAY_WORKERS=1024", last(with("workers", "workers-1024")))
	require.Equal(t, "SPILLWAY_ACCEPT_LOOPS=8", last(with("loops", "loops-8")))
	require.Equal(t, "GOMAXPROCS=4", last(with("cpus", "plain-4")))
	require.Equal(t, "GOMAXPROCS=4", last(with("cpus", "fifo-4")))
	require.Equal(t, "SPILLWAY_SYNC=always", last(with("sync", "always"))) // after never: the last counts
	require.Equal(t, 10_000, with("idle", "fifo-idle").Idle)
	require.Equal(t, uint64(100), with("store", "fifo-large").Keys)
	require.Equal(t, uint64(10), with("store", "fifo-small").Keys)

	base := withDefault([]int{1, 2, 8}, 2*runtime.GOMAXPROCS(0))
	require.True(t, slices.IsSorted(base))
	require.Equal(t, []int{1, 2, 8}, withDefault([]int{1, 2, 8}, 2))
	require.Equal(t, []int{1, 2, 6, 8}, withDefault([]int{1, 2, 8}, 6))
}

// TestQuestions_Quick asks each, of small stores, and writes the answer down.
func TestQuestions_Quick(t *testing.T) {
	t.Parallel()
	names := Questions()
	if testing.Short() {
		names = []string{"store", "idle"}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, o := ask(t, name, true)
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			require.Len(t, r.Rounds, 1)
			for l, load := range q.Loads {
				for c, contestant := range q.Contestants {
					f, what := r.Rounds[0][l][c], load.String()+" to "+contestant.Name
					if contestant.Idle == 0 {
						require.Zero(t, f.IdleBytes, what)
					}
					if load.Op == loadtest.Scan {
						// Plain is not sent any, and what takes the place of the service
						// here knows none.
						require.Equal(t, contestant.NoRanges, f.Refused == 0, what)
						require.Zero(t, f.RPS, what)
						continue
					}
					require.Positive(t, f.RPS, what)
					require.Zero(t, f.Refused, what)
					switch {
					case load.Absent:
						require.Less(t, f.Found, 0.05, what)
					case load.Op == loadtest.Get:
						require.Equal(t, 1.0, f.Found, what)
					}
				}
			}
			var b strings.Builder
			require.NoError(t, q.Write(&b, r))
			require.Contains(t, b.String(), "# "+q.Asks)
			rows := b.String()[strings.Index(b.String(), "|---"):]
			require.Equal(t, 1+len(q.Loads)*len(q.Contestants), strings.Count(rows, "\n"))
		})
	}
}

// answer is a result of the question's contestants and loads: in every round the
// figures that of says.
func answer(q *Question, rounds int, of func(round, load, contestant int) Figures) *Result {
	r := made()
	r.Loads, r.Contestants, r.Rounds = q.Loads, nil, nil
	for _, c := range q.Contestants {
		r.Contestants = append(r.Contestants, c.Name)
	}
	for n := range rounds {
		loads := make([][]Figures, len(q.Loads))
		for l := range loads {
			for c := range q.Contestants {
				loads[l] = append(loads[l], of(n, l, c))
			}
		}
		r.Rounds = append(r.Rounds, loads)
	}
	return r
}

// table returns the table of an answer alone.
func table(t *testing.T, q *Question, r *Result) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, q.Write(&b, r))
	return b.String()[strings.Index(b.String(), "| load"):]
}

// TestQuestion_WritesConnections: a request costs twice as much with each load, and
// auto refuses half over one connection.
func TestQuestion_WritesConnections(t *testing.T) {
	t.Parallel()
	q, _ := ask(t, "connections", false)
	q.Loads = q.Loads[1:3] // 8 and 64
	r := answer(q, 3, func(round, load, contestant int) Figures {
		f := Figures{RPS: 10e3, CPUMicros: float64((10 + contestant*(1+round)) << load)}
		if contestant == 2 && load == 0 {
			f.Refused = 0.5
		}
		return f
	})
	require.Equal(t, strings.TrimLeft(`
| load | | CPU a request | × its own at 64 connections | requests/s | refused |
|---|---|---|---|---|---|
| GET, 8 connections | plain | 10.0 µs | **0.50** (0.50–0.50) | 10.0 k | – |
|  | fifo | 12.0 µs, **1.20** (1.10–1.30) | **0.50** (0.50–0.50) | 10.0 k, **1.00** (1.00–1.00) | – |
|  | auto | 14.0 µs, **1.40** (1.20–1.60) | **0.50** (0.50–0.50) | 10.0 k, **1.00** (1.00–1.00) | 50.0% |
| GET, 64 connections | plain | 20.0 µs | – | 10.0 k | – |
|  | fifo | 24.0 µs, **1.20** (1.10–1.30) | – | 10.0 k, **1.00** (1.00–1.00) | – |
|  | auto | 28.0 µs, **1.40** (1.20–1.60) | – | 10.0 k, **1.00** (1.00–1.00) | – |
`, "\n"), table(t, q, r))
}

func TestQuestion_WritesFsyncs(t *testing.T) {
	t.Parallel()
	q, _ := ask(t, "sync", false)
	q.Loads = q.Loads[:1]
	r := answer(q, 1, func(_, _, contestant int) Figures {
		if contestant == 0 {
			return Figures{RPS: 20e3, CPUMicros: 20, P50: 0.05, Grown: map[string]float64{fsyncs + "_count": 0}}
		}
		return Figures{RPS: 5e3, CPUMicros: 40, P50: 0.2, Grown: map[string]float64{
			fsyncs + "_count": 10, fsyncs + "_sum": 0.0016, fsyncs + `_bucket{le="0.0001"}`: 0, fsyncs + `_bucket{le="0.0002"}`: 10,
		}}
	})
	require.Equal(t, strings.TrimLeft(`
| load | | requests/s | p50 | CPU a request | fsync, mean | fsync, median | refused |
|---|---|---|---|---|---|---|---|
| PUT, 1 connection | never | 20.0 k | 50.0 µs | 20.0 µs | – | – | – |
|  | always | 5.0 k, **0.25** (0.25–0.25) | 200.0 µs, **4.00** (4.00–4.00) | 40.0 µs, **2.00** (2.00–2.00) | 160.0 µs | 150.0 µs | – |
`, "\n"), table(t, q, r))
}

func TestQuestion_WritesWhatOnlyOneHas(t *testing.T) {
	t.Parallel()
	q, _ := ask(t, "values", false)
	q.Loads = q.Loads[:1]
	require.Equal(t, strings.TrimLeft(`
| load | | MB/s | CPU a request | refused |
|---|---|---|---|---|
| range of 11, 64 connections | plain | – | – | – |
|  | fifo | 100.0 | 500.0 µs | – |
`, "\n"), table(t, q, answer(q, 1, func(_, _, contestant int) Figures {
		return [2]Figures{{}, {RPS: 1000, MBps: 100, CPUMicros: 500}}[contestant]
	})))

	q, _ = ask(t, "idle", false)
	q.Loads = q.Loads[:1]
	require.Equal(t, strings.TrimLeft(`
| load | | CPU a request | requests/s | memory of an idle connection | refused |
|---|---|---|---|---|---|
| GET, 64 connections | fifo | 10.0 µs | 50.0 k | – | – |
|  | fifo-idle | 11.0 µs, **1.10** (1.10–1.10) | 40.0 k, **0.80** (0.80–0.80) | 9.5 KiB | – |
`, "\n"), table(t, q, answer(q, 1, func(_, _, contestant int) Figures {
		return [2]Figures{{RPS: 50e3, CPUMicros: 10}, {RPS: 40e3, CPUMicros: 11, IdleBytes: 9728}}[contestant]
	})))

	q, _ = ask(t, "store", false)
	q.Loads = q.Loads[2:]
	require.Equal(t, strings.TrimLeft(`
| load | | requests/s | CPU a request | blocks read a request | found | refused |
|---|---|---|---|---|---|---|
| GET, absent, 64 connections | fifo-small | 50.0 k | 10.0 µs | 0.000 | 0.2% | – |
|  | fifo-large | 40.0 k, **0.80** (0.80–0.80) | 11.0 µs, **1.10** (1.10–1.10) | 0.012 | 0.2% | – |
`, "\n"), table(t, q, answer(q, 1, func(_, _, contestant int) Figures {
		return [2]Figures{
			{RPS: 50e3, CPUMicros: 10, Found: 0.002, Requests: 1000},
			{RPS: 40e3, CPUMicros: 11, Found: 0.002, Requests: 1000, Grown: map[string]float64{cacheMisses: 12}},
		}[contestant]
	})))
}

func TestLoad_Count(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		load Load
		want uint64
	}{
		{Load{Connections: 64}, 30_000},
		// A quarter over one connection.
		{Load{Connections: 1}, 7501},
		// Several times as many as the connections.
		{Load{Connections: 10_000}, 40_000},
		// No more bytes of values than 16 KiB for each of the requests.
		{Load{Connections: 64, ValueSize: 10 << 10}, 30_000},
		{Load{Connections: 64, ValueSize: 160 << 10}, 3001},
		{Load{Connections: 1, ValueSize: 100, Op: loadtest.Scan, ScanLimit: 16 << 10}, 76},
	} {
		require.Equal(t, row.want, row.load.count(30_000), "%+v", row.load)
	}
}

// TestIdlers_NoticeThatOneIsClosed: otherwise there would be fewer than are told.
func TestIdlers_NoticeThatOneIsClosed(t *testing.T) {
	t.Parallel()
	_, o := ask(t, "idle", true)
	o.Contestants, o.Loads = o.Contestants[1:], o.Loads[:1]
	o.Contestants[0].Idle = 3
	require.NoError(t, os.Mkdir(o.Dir, 0o755))
	filled, err := fillStores(t.Context(), &o)
	require.NoError(t, err)
	r, err := start(t.Context(), &o, &o.Contestants[0], filled[0])
	require.NoError(t, err)
	require.Len(t, r.idle, 3)
	resident, err := r.resident(t.Context())
	require.NoError(t, err)
	require.Greater(t, resident, 1e6)
	require.NoError(t, r.idle.ask(r.server.URL()))
	require.NoError(t, r.idle[1].Close())
	require.ErrorContains(t, r.idle.ask(r.server.URL()), "connection 2 of 3")
	require.NoError(t, r.stop())
}
