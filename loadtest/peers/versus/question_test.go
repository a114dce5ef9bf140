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

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

// ask asks a question of servers that the test binary is.
func ask(t *testing.T, name string, quick bool) (*Question, lab.PairOptions) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	q, err := Ask(name, Setup{Service: self, Peer: self, Other: "old", Keys: 100, Large: 200_000, Quick: quick, Has: func(string) bool { return false }})
	require.NoError(t, err)
	return q, lab.PairOptions{
		Contestants: q.Contestants, Loads: q.Loads, Filler: self, Dir: filepath.Join(t.TempDir(), "stores"), Keys: 100,
		Rounds: 1, Passes: 1, Requests: 200, Duration: time.Millisecond, Progress: func(string) {},
	}
}

func TestQuestions_WhatIsMeasured(t *testing.T) {
	t.Parallel()
	getPut := []string{"GET, 64 connections", "PUT, 64 connections"}
	want := map[string]struct{ contestants, loads []string }{
		// Six ways to be loaded, each as fast as it goes and paced.
		"peers": {[]string{"bare", "plain", "nethttp", "limiter", "fifo", "sync", "mpmc"}, []string{
			"GET, 1 connection", "GET, 1 connection, 2000/s", "GET, 64 connections", "GET, 64 connections, 8000/s",
			"GET, 1024 connections", "GET, 1024 connections, 8000/s",
			"PUT, 1 connection", "PUT, 1 connection, 2000/s", "PUT, 64 connections", "PUT, 64 connections, 8000/s",
			"PUT, 1024 connections", "PUT, 1024 connections, 8000/s",
		}},
		// Every strategy there is, beside the two that goals are of.
		"pairs": {append([]string{"bare", "plain"}, strategies.Names()...), getPut},
		// Each strategy beside itself.
		"against": {[]string{"fifo-other", "fifo", "sync-other", "sync", "mpmc-other", "mpmc"}, getPut},
		"connections": {[]string{"plain", "fifo", "auto"}, []string{
			"GET, 1 connection", "GET, 8 connections", "GET, 64 connections", "GET, 512 connections", "GET, 4096 connections",
			"PUT, 1 connection", "PUT, 8 connections", "PUT, 64 connections", "PUT, 512 connections", "PUT, 4096 connections",
		}},
		"workers": {nil, getPut}, // by the machine
		"cpus":    {[]string{"plain-1", "fifo-1", "plain-2", "fifo-2", "plain-4", "fifo-4"}, getPut},
		"loops":   {nil, []string{"GET, 64 connections", "GET, a connection each, 512 at a time"}},
		"sync":    {[]string{"never", "always"}, []string{"PUT, 1 connection", "PUT, 64 connections", "PUT, 256 connections"}},
		"store":   {[]string{"fifo-small", "fifo-large"}, []string{"GET, 64 connections", "GET, zipf, 64 connections", "GET, absent, 64 connections"}},
		"keys":    {[]string{"10000 keys", "100000 keys", "1000000 keys", "10000000 keys"}, getPut},
		"idle":    {[]string{"fifo", "fifo-idle"}, getPut},
		"systems": {[]string{"spillway", "spillway, synced each second", "spillway, always synced"}, []string{
			"GET, 64 connections", "GET, 64 connections, half the rate", "PUT, 64 connections", "PUT, 64 connections, half the rate",
		}},
		"values": {[]string{"plain", "fifo"}, []string{
			"range of 11, 64 connections", "GET, 64 connections", "PUT, 64 connections",
			"GET of 10 kB, 64 connections", "PUT of 10 kB, 64 connections", "GET of 102 kB, 64 connections", "PUT of 102 kB, 64 connections",
			"GET of 1.0 MB, 64 connections", "PUT of 1.0 MB, 64 connections",
		}},
	}
	require.Len(t, Questions(), len(want)-varied)
	for name := range want {
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
	q, err := Ask("pairs", Setup{Peers: []string{"plain"}, Strategies: []string{"lifo", "edf"}})
	require.NoError(t, err)
	require.Len(t, q.Contestants, 3)
	require.Equal(t, "plain", q.Contestants[2].Base)
}

func TestQuestions_Settings(t *testing.T) {
	t.Parallel()
	with := func(question, contestant string) lab.Contestant {
		q, _ := ask(t, question, false)
		i := slices.IndexFunc(q.Contestants, func(c lab.Contestant) bool { return c.Name == contestant })
		require.GreaterOrEqual(t, i, 0, "%s among %v", contestant, q.Contestants)
		return q.Contestants[i]
	}
	last := func(c lab.Contestant) string { return c.Env[len(c.Env)-1] }
	require.Equal(t, "SPILLWAY_WORKERS=1024", last(with("workers", "workers-1024")))
	require.Equal(t, "SPILLWAY_ACCEPT_LOOPS=8", last(with("loops", "loops-8")))
	require.Equal(t, "GOMAXPROCS=4", last(with("cpus", "plain-4")))
	require.Equal(t, "GOMAXPROCS=4", last(with("cpus", "fifo-4")))
	require.Equal(t, "SPILLWAY_SYNC=always", last(with("sync", "always"))) // after never: the last counts
	require.Equal(t, "old", with("against", "sync-other").Binary)
	require.Equal(t, 10_000, with("idle", "fifo-idle").Idle)
	require.Equal(t, uint64(100), with("store", "fifo-large").Keys)
	require.Equal(t, uint64(10), with("store", "fifo-small").Keys)

	base := withDefault([]int{1, 2, 8}, 2*runtime.GOMAXPROCS(0))
	require.True(t, slices.IsSorted(base))
	require.Equal(t, []int{1, 2, 8}, withDefault([]int{1, 2, 8}, 2))
	require.Equal(t, []int{1, 2, 6, 8}, withDefault([]int{1, 2, 8}, 6))
}

// TestQuestions_Quick asks each that varies something, of small stores, and writes the
// answer down.
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
			// What takes the place of the service here knows no interval.
			q.Contestants = slices.DeleteFunc(q.Contestants, func(c lab.Contestant) bool { return slices.Contains(c.Env, "SPILLWAY_SYNC=interval:1s") })
			o.Contestants = q.Contestants
			r, err := lab.Pair(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, 1, r.Rounds())
			for l, load := range q.Loads {
				for c, contestant := range q.Contestants {
					metrics, what := r.Groups[q.group(l, c)].Metrics, load.String()+" to "+contestant.Name
					of := func(metric string) float64 { return metrics[metric].Median }
					if contestant.Idle == 0 {
						require.Zero(t, of(lab.IdleBytes), what)
					}
					if load.Op == workload.Scan {
						// Plain is not sent any, and what takes the place of the service
						// here knows none.
						require.Equal(t, contestant.NoRanges, of(refused.metric) == 0, what)
						require.Zero(t, of(rate.metric), what)
						continue
					}
					if load.Half {
						continue // a millisecond of it says nothing
					}
					require.Positive(t, of(rate.metric), what)
					require.Zero(t, of(refused.metric), what)
					switch {
					case load.Absent:
						require.Less(t, of(lab.FoundPercent), 5.0, what)
					case load.Op == workload.Get:
						require.Equal(t, 100.0, of(lab.FoundPercent), what)
					}
				}
			}
			var b strings.Builder
			require.NoError(t, q.Write(&b, r))
			require.Contains(t, b.String(), "# "+q.Asks)
			require.Contains(t, b.String(), "none is, as that takes 4 rounds")
			rows := b.String()[strings.Index(b.String(), "|---"):]
			closed := slices.DeleteFunc(slices.Clone(q.Loads), func(l lab.PairLoad) bool { return l.Half })
			require.Equal(t, 1+len(closed)*len(q.Contestants), strings.Count(rows, "\n"))
		})
	}
}
