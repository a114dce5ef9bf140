package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// standIn stands in for generator.Run.
type standIn struct {
	t *testing.T
	// sent are the loads so far, without those that fill or measure capacity.
	sent     []workload.Options
	services []string // the strategies of their services
	fills    int
	capacity int
	// before, if set, is called before a load is sent.
	before func(o *workload.Options)
	// instead, if set, takes the place of a load.
	instead Runner
}

func (g *standIn) run(ctx context.Context, o workload.Options) (*result.Result, error) {
	r := &result.Result{URL: o.URL, Started: time.Unix(1, 0), Seconds: 2, Seed: o.Seed, TargetRPS: o.Rate}
	switch {
	case o.Count > 0:
		g.fills++
		r.Status = map[string]int64{"201": int64(o.Count)}
		return r, nil
	case o.Duration == capacityTime:
		// 900, 1000 and 1100 a second, and many that are shed.
		g.capacity++
		r.Status, r.Misses = map[string]int64{"200": int64(1500 + 200*g.capacity), "404": 100, "503": 5000}, 100
		return r, nil
	}
	if g.before != nil {
		g.before(&o)
	}
	if g.instead != nil {
		return g.instead(ctx, o)
	}
	g.sent = append(g.sent, o)
	g.services = append(g.services, strategyAt(g.t, o.Admin))
	o.Progress(workload.Progress{Done: 0.5})
	r.Requests = 100
	r.OfferedRPS, r.CompletedRPS, r.GoodputRPS = o.Rate, o.Rate, o.Rate-float64(len(g.sent))
	r.Status = map[string]int64{"200": 100}
	return r, nil
}

// strategyAt asks a fake service for its strategy, or which peer it is.
func strategyAt(t *testing.T, admin string) string {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, admin+"/environment", nil)
	require.NoError(t, err)
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	var settings []string
	require.NoError(t, json.Unmarshal(body, &settings))
	for _, s := range settings {
		if name, ok := strings.CutPrefix(s, "SPILLWAY_STRATEGY="); ok {
			return name
		}
	}
	return ""
}

func question() scenario.Scenario {
	return scenario.Scenario{
		Name: "test", Title: "Which?", Duration: 5 * time.Second, Warmup: time.Second, Repetitions: 2, Seed: 10,
		Combinations: []scenario.Combination{
			{Strategy: "fifo", Connections: 8, Rate: "0.5x"},
			{Strategy: "lifo", Connections: 8, Rate: "0.5x"},
			{Strategy: "fifo", Connections: 8, Rate: "2000"},
		},
	}
}

func (g *standIn) options(dir string, t *testing.T) CompareOptions {
	return CompareOptions{Binary: fakeBinary(t, serves), Dir: dir, Command: "loadtest compare", Run: g.run}
}

func TestCompare_MakesAllRunsAndKeepsThem(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "reports", "test")
	g := &standIn{t: t}
	o := g.options(dir, t)
	var progress []Progress
	o.Progress = func(p Progress) { progress = append(progress, p) }
	c, err := Compare(t.Context(), question(), o)
	require.NoError(t, err)
	require.Empty(t, c.Partial)
	require.Equal(t, 1, g.fills, "all combinations need the same store")
	require.Equal(t, 3, g.capacity, "and have the same load")
	require.Equal(t, map[string]float64{"8 connections": 1000}, c.Capacity, "the median of what was served")
	require.Equal(t, "spillway v0 (a fake)", c.Version)
	require.Positive(t, c.Machine.CPUs)

	// Repetitions are outermost, and each is sent the same.
	var strategies []string
	for repetition, order := range c.Order {
		for i, group := range order {
			strategies = append(strategies, c.Groups[group].Combination.Strategy)
			sent := g.sent[repetition*len(order)+i]
			require.Equal(t, uint64(10+repetition), sent.Seed)
			require.Equal(t, map[bool]float64{false: 500, true: 2000}[group == 2], sent.Rate)
			require.Equal(t, uint64(100_000), sent.Keys)
		}
	}
	require.Equal(t, strategies, g.services)

	for i, group := range c.Groups {
		require.Len(t, group.Runs, 2)
		for repetition, run := range group.Runs {
			r, err := result.Load(filepath.Join(dir, run))
			require.NoError(t, err)
			require.Equal(t, group.Metrics["goodput_rps"].Values[repetition], r.GoodputRPS)
		}
		require.Equal(t, question().Combinations[i], group.Combination)
	}
	require.Equal(t, "runs/002-lifo-0.5x-r1.json", c.Groups[1].Runs[0])

	loaded, err := LoadComparison(dir)
	require.NoError(t, err)
	require.Equal(t, c.Groups, loaded.Groups)
	require.Empty(t, loaded.Partial)
	require.NoDirExists(t, filepath.Join(dir, "stores"))
	last := progress[len(progress)-1]
	require.Equal(t, Progress{Doing: last.Doing, Done: 5, Total: 6, Left: last.Left}, last)

}

// What a multiple of the capacity is does not depend on what is compared first: a
// strategy without a queue, least of all, whose work waits elsewhere.
func TestCompare_CapacityIsThatOfFifo(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"sync", "fifo"}, {"fifo", "sync"}, {"sync"}, {"caller-runs", "unbounded"}} {
		var probes []string
		g := &standIn{t: t}
		o := g.options(t.TempDir(), t)
		o.Run = func(ctx context.Context, load workload.Options) (*result.Result, error) {
			if load.Duration == capacityTime {
				probes = append(probes, strategyAt(t, load.Admin))
			}
			return g.run(ctx, load)
		}
		s := question()
		s.Combinations = nil
		for _, strategy := range order {
			s.Combinations = append(s.Combinations, scenario.Combination{Strategy: strategy, Rate: "0.9x"})
		}
		_, err := Compare(t.Context(), s, o)
		require.NoError(t, err)
		require.Equal(t, []string{"fifo", "fifo", "fifo"}, probes, order)
	}
}

// Clients that try again do so in the runs, and not where the capacity is measured.
func TestCompare_Retries(t *testing.T) {
	t.Parallel()
	g := &standIn{t: t}
	o := g.options(t.TempDir(), t)
	retries := workload.Retries{Attempts: 4, Backoff: 10 * time.Millisecond, Budget: 0.1}
	o.Run = func(ctx context.Context, o workload.Options) (*result.Result, error) {
		if o.Duration == capacityTime {
			require.Zero(t, o.Retries)
		}
		r, err := g.run(ctx, o)
		if o.Retries == retries {
			again := int64(25)
			r.Retries = &again
		}
		return r, err
	}
	s := question()
	s.Combinations = s.Combinations[:2]
	s.Combinations[1].Retries = "4,10ms,0.1"
	c, err := Compare(t.Context(), s, o)
	require.NoError(t, err)
	require.Empty(t, c.Partial)
	require.Equal(t, 3, g.capacity, "is measured once, so that both are offered the same")
	require.Equal(t, c.Capacity[c.Groups[0].Load], c.Capacity[c.Groups[1].Load])
	require.Len(t, c.Capacity, 2)
	require.NotContains(t, c.Groups[0].Metrics, "retries_per_request")
	require.Equal(t, 0.25, c.Groups[1].Metrics["retries_per_request"].Median)
}

// What is several services, or one of another speed, is never run as if it were one.
func TestCompare_Fleets(t *testing.T) {
	t.Parallel()
	for _, fleet := range []scenario.Combination{{Nodes: 2, Balance: "random"}, {SlowNode: 0.5}} {
		s := question()
		fleet.Strategy, fleet.Rate = "fifo", "2x"
		s.Combinations = []scenario.Combination{s.Combinations[0], fleet}
		_, err := Compare(t.Context(), s, (&standIn{t: t}).options(t.TempDir(), t))
		require.ErrorContains(t, err, "combination 2: nodes behind a load balancer are only simulated (loadtest simulate)")
	}
}

// The service would refuse it at the first run.
func TestCompare_StoreParallelNeedsADelay(t *testing.T) {
	t.Parallel()
	s := question()
	s.Combinations[0].StoreParallel = 8
	_, err := Compare(t.Context(), s, (&standIn{t: t}).options(t.TempDir(), t))
	require.ErrorContains(t, err, "combination 1: store_parallel bounds a delayed store: say store_delay as well")
}

func TestCompare_KeepsWhatWasRunBeforeAnInterruption(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := &standIn{t: t}
	first.before = func(*workload.Options) {
		if len(first.sent) == 2 {
			first.instead = func(context.Context, workload.Options) (*result.Result, error) {
				cancel()
				return &result.Result{Partial: "interrupted 1.0 s after its start"}, nil
			}
		}
	}
	o := first.options(dir, t)
	c, err := Compare(ctx, question(), o)
	require.NoError(t, err)
	require.Equal(t, "interrupted after 2 of 6 runs", c.Partial)
	before, err := LoadComparison(dir)
	require.NoError(t, err)
	require.Equal(t, c.Partial, before.Partial)
	require.Equal(t, map[string]float64{"8 connections": 1000}, before.Capacity)
	require.NoDirExists(t, filepath.Join(dir, "stores"))
	runs := 0
	for _, g := range before.Groups {
		runs += len(g.Runs)
		for _, run := range g.Runs {
			_, err := result.Load(filepath.Join(dir, run))
			require.NoError(t, err)
		}
	}
	require.Equal(t, 2, runs)
}

func TestCompare_EstimatesTheTimeThatIsLeft(t *testing.T) {
	t.Parallel()
	s := question()
	var left time.Duration
	l := &comparing{
		s: &s, c: &Comparison{}, groups: make([]grouping, len(s.Combinations)),
		o: CompareOptions{Progress: func(p Progress) { left = p.Left }},
	}
	l.tell("first")
	require.Equal(t, 6*7*time.Second, left, "as long as they are to take")
	l.c.Groups, l.took = []Group{{Runs: []string{"one", "two"}}}, 20*time.Second
	l.tell("between runs")
	require.Equal(t, 40*time.Second, left, "as long as the others took")
	l.begun = time.Now().Add(-4 * time.Second)
	l.tell("within a run")
	require.LessOrEqual(t, left, 36*time.Second)
	require.GreaterOrEqual(t, left, 30*time.Second)
	l.begun = time.Now().Add(-time.Hour)
	l.tell("a run that takes long")
	require.Equal(t, 30*time.Second, left)
}

func TestCompare_RefusesTheResultsOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := &standIn{t: t}
	o := g.options(dir, t)
	_, err := Compare(t.Context(), question(), o)
	require.NoError(t, err)

	other := question()
	other.Duration++
	_, err = Compare(t.Context(), other, o)
	require.ErrorContains(t, err, dir+" holds a comparison: --out chooses another folder, --restart discards")

	// The first answer stands.
	before, err := LoadComparison(dir)
	require.NoError(t, err)
	for _, g := range before.Groups {
		for _, run := range g.Runs {
			require.FileExists(t, filepath.Join(dir, run))
		}
	}

	sent := len(g.sent)
	o.Restart = true
	c, err := Compare(t.Context(), other, o)
	require.NoError(t, err)
	require.Len(t, g.sent, 2*sent)
	require.Equal(t, other.Duration, c.Scenario.Duration)
}

// Neither a folder of which comparison.json is missing nor a comparison that cannot begin loses
// what was measured before.
func TestCompare_DestroysNoMeasurements(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := &standIn{t: t}
	o := g.options(dir, t)
	c, err := Compare(t.Context(), question(), o)
	require.NoError(t, err)
	stand := func() {
		for _, g := range c.Groups {
			for _, run := range g.Runs {
				require.FileExists(t, filepath.Join(dir, run))
			}
		}
	}
	larger := question()
	larger.Combinations[0].Fill, larger.Combinations[0].ValueSize = 1e14, "10KB"
	o.Restart = true
	_, err = Compare(t.Context(), larger, o)
	require.ErrorContains(t, err, "MB are missing")
	stand()
	require.FileExists(t, filepath.Join(dir, comparisonFile))

	o.Restart = false
	require.NoError(t, os.Remove(filepath.Join(dir, comparisonFile)))
	_, err = Compare(t.Context(), question(), o)
	require.ErrorContains(t, err, dir+" holds a comparison: --out chooses another folder, --restart discards")
	stand()
}

func TestCompare_EndsWithOneLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		kind    string
		instead Runner
		say     string
	}{
		{
			"a service that dies", panics,
			func(ctx context.Context, o workload.Options) (*result.Result, error) {
				_ = ask(o.URL + "/die")
				<-ctx.Done()
				return &result.Result{Partial: "ended 1.0 s after its start"}, nil
			},
			"run 1 of 6 (%s, repetition 1): the service died (exit status 3), its last log line: panic: something is wrong",
		},
		{
			"a service that the generator misses first", serves,
			func(_ context.Context, o workload.Options) (*result.Result, error) {
				return nil, ask(o.URL + "/die")
			},
			"run 1 of 6 (%s, repetition 1): the service died (exit status 3), its last log line: listening",
		},
		{
			"a generator that cannot", serves,
			func(context.Context, workload.Options) (*result.Result, error) {
				return nil, errors.New("too many open files")
			},
			"run 1 of 6 (%s, repetition 1): too many open files",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			g := &standIn{t: t}
			g.instead = tt.instead
			o := g.options(dir, t)
			o.Binary = fakeBinary(t, tt.kind)
			c, err := Compare(t.Context(), question(), o)
			require.NoError(t, err)
			label := c.Groups[c.Order[0][0]].Label
			require.Equal(t, fmt.Sprintf(tt.say, label), c.Partial)
			loaded, err := LoadComparison(dir)
			require.NoError(t, err)
			require.Equal(t, c.Partial, loaded.Partial)
			for _, g := range loaded.Groups {
				require.Empty(t, g.Runs)
			}
		})
	}
}

func TestCompare_SurvivesADiskThatIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := &standIn{t: t}
	g.before = func(*workload.Options) {
		if len(g.sent) == 3 {
			// From now on no result can be written.
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "runs")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "runs"), nil, 0o644))
		}
	}
	c, err := Compare(t.Context(), question(), g.options(dir, t))
	require.NoError(t, err)
	require.Contains(t, c.Partial, "run 4 of 6")
	require.Len(t, g.sent, 4, "it does not go on")
	loaded, err := LoadComparison(dir)
	require.NoError(t, err)
	require.Equal(t, c.Partial, loaded.Partial)
}

func TestCompare_RefusesWhatCannotBegin(t *testing.T) {
	t.Parallel()
	tests := []struct {
		say    string
		change func(*scenario.Scenario, *CompareOptions)
	}{
		{"0 combinations", func(s *scenario.Scenario, _ *CompareOptions) { s.Combinations = nil }},
		{"0 repetitions", func(s *scenario.Scenario, _ *CompareOptions) { s.Repetitions = 0 }},
		{"combination 2: rate", func(s *scenario.Scenario, _ *CompareOptions) { s.Combinations[1].Rate = "fast" }},
		{"combination 3: mix", func(s *scenario.Scenario, _ *CompareOptions) { s.Combinations[2].Mix = "eat=1" }},
		{"the service's binary", func(_ *scenario.Scenario, o *CompareOptions) { o.Binary += "-absent" }},
		{"MB are missing", func(s *scenario.Scenario, _ *CompareOptions) {
			s.Combinations[0].Fill, s.Combinations[0].ValueSize = 1e14, "10KB"
		}},
	}
	for _, tt := range tests {
		t.Run(tt.say, func(t *testing.T) {
			t.Parallel()
			g := &standIn{t: t}
			s, o := question(), g.options(t.TempDir(), t)
			s.Combinations = slices.Clone(s.Combinations)
			tt.change(&s, &o)
			_, err := Compare(t.Context(), s, o)
			require.ErrorContains(t, err, tt.say)
			require.Empty(t, g.sent)
		})
	}
	// A service that does not start leaves a comparison that says so.
	g := &standIn{t: t}
	o := g.options(t.TempDir(), t)
	o.Binary = fakeBinary(t, refuses)
	c, err := Compare(t.Context(), question(), o)
	require.NoError(t, err)
	require.Equal(t, "fill a store with 100000 values of 100 bytes: the service did not start (exit status 2), its last log line: spillway: SPILLWAY_WORKERS: -1 is not at least 1", c.Partial)
}

func TestStores_AreClonedByLinks(t *testing.T) {
	t.Parallel()
	s := stores{dir: t.TempDir(), fill: func(_ context.Context, dir string, _ filling) error {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "000001.sst"), []byte("table"), 0o644))
		return os.WriteFile(filepath.Join(dir, "sub", "000002.log"), []byte("log"), 0o644)
	}}
	f := filling{1000, workload.Sizes{Min: 100, Max: 200}}
	require.NoError(t, s.prepare(t.Context(), []filling{f}))
	s.fill = nil // it is there
	require.NoError(t, s.prepare(t.Context(), []filling{f}))

	for range 2 {
		dir, err := s.clone(f)
		require.NoError(t, err)
		same := func(name string) bool {
			a, err := os.Stat(filepath.Join(s.filled(f), name))
			require.NoError(t, err)
			b, err := os.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			return os.SameFile(a, b)
		}
		require.True(t, same("000001.sst"))
		require.False(t, same("sub/000002.log"))
		// What a run does to its clone is gone with it.
		require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "000002.log"), []byte("changed"), 0o644))
		require.NoError(t, os.Remove(filepath.Join(dir, "000001.sst")))
	}
	content, err := os.ReadFile(filepath.Join(s.filled(f), "sub", "000002.log"))
	require.NoError(t, err)
	require.Equal(t, "log", string(content))

	// A store that could not be filled is not taken for one that was.
	other := filling{2000, f.sizes}
	s.fill = func(_ context.Context, dir string, _ filling) error {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		return errors.New("disk full")
	}
	require.ErrorContains(t, s.prepare(t.Context(), []filling{other}), "disk full")
	require.NoDirExists(t, s.filled(other))

	require.NoError(t, s.close())
	require.NoDirExists(t, s.dir)
}
