package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

var update = flag.Bool("update", false, "write testdata/report.md anew")

// samples is the folder of results of all kinds: writing them takes longer than
// all that is tested with them.
var samples string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		samples, err = os.MkdirTemp("", "spillway-report-")
		if err == nil {
			defer func() { _ = os.RemoveAll(samples) }()
			err = errors.Join(writeMixes(filepath.Join(samples, "mixes")),
				writeRun(filepath.Join(samples, "run.json")),
				writeSaturation(filepath.Join(samples, "saturation.json")))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func load(t *testing.T) *Input {
	t.Helper()
	in, err := Load(filepath.Join(samples, "mixes"), filepath.Join(samples, "run.json"), filepath.Join(samples, "saturation.json"))
	require.NoError(t, err)
	return in
}

func rendered(t *testing.T, in *Input) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, HTML(&b, in))
	return b.String()
}

// dataOf returns what the page's script draws.
func dataOf(t *testing.T, page string) (d struct {
	Charts map[string]json.RawMessage
}) {
	t.Helper()
	found := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
	require.NotNil(t, found)
	require.NoError(t, json.Unmarshal([]byte(found[1]), &d))
	return d
}

func TestMarkdown_SaysWhatWasFound(t *testing.T) {
	t.Parallel()
	in := load(t)
	in.Comparisons[0].Partial = "interrupted after 30 of 32 runs"
	var b bytes.Buffer
	require.NoError(t, Markdown(&b, in))

	requireAgreed(t, "report.md", b.String())
}

// requireAgreed compares a text with a file of testdata.
func requireAgreed(t *testing.T, file, text string) {
	t.Helper()
	golden := filepath.Join("testdata", file)
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "if this is as it should be: go test ./loadtest/report -update")
}

// A column stands where one of its rows has a figure: of other loads, or of latencies that no run could tell, there is none.
// Figures beside each other are of the same runs.
func TestStudy_HasNoEmptyColumns(t *testing.T) {
	t.Parallel()
	busy := group("fifo", "get=100, 8 connections", 50, 4)
	busy.Metrics[result.SentGoodput] = lab.Summary{Median: 90, Values: []float64{90, 90, 90, 90}}
	delete(busy.Metrics, result.ServedP99)
	idle := group("fifo", "get=100, 9 connections", 50, 4)
	delete(idle.Metrics, result.ServedP99)
	idle.Metrics["served_p50_ms"] = lab.Summary{Median: 5, Low: 5, High: 5, Values: []float64{5, 5, 5, 5}}
	idle.Metrics["served_p99_9_ms"] = lab.Summary{Median: 4, Low: 4, High: 4, Values: []float64{4, 4}, Repetitions: []int{0, 2}}
	c := &lab.Comparison{Groups: []lab.Group{busy, idle}}
	for _, load := range []string{"get=100, 8 connections", "get=100, 9 connections"} {
		c.Groups = append(c.Groups, lab.Group{Combination: scenario.Combination{Strategy: "none"}, Workload: load})
		lifo := group("lifo", load, 50, 4)
		delete(lifo.Metrics, result.ServedP99)
		c.Groups = append(c.Groups, lifo)
	}
	s := newStudy(&Comparison{Comparison: c, Runs: make([][]*Run, len(c.Groups))}).section(newData())
	require.NotNil(t, s.Verdicts)
	require.NotContains(t, s.Verdicts.Head, "p99, ms")
	require.Len(t, s.Tables, 2)
	require.Contains(t, s.Tables[0].Head, "goodput, as the service sees it, /s")
	require.NotContains(t, s.Tables[1].Head, "goodput, as the service sees it, /s")
	for _, table := range append(s.Tables, *s.Verdicts) {
		for column, head := range table.Head {
			require.True(t, slices.ContainsFunc(table.Rows, func(r row) bool { return r.Cells[column].Text != "–" && r.Cells[column].Text != "" }), "%s: %s", table.Caption, head)
		}
	}
	served := slices.Index(s.Tables[1].Head, "served p50 / p99.9, ms")
	require.Positive(t, served, s.Tables[1].Head)
	require.Equal(t, "5 / –", s.Tables[1].Rows[0].Cells[served].Text)
}

// What the runs could have told is said once.
func TestStudy_SaysOneThing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		goodput float64
		runs    int
		told    string
	}{
		"the same":     {1000, 4, ""},
		"too few runs": {500, 3, ""},
		"different":    {500, 4, "These 4 runs tell goodput apart that differs by 2% or more."},
	} {
		c := &lab.Comparison{Groups: []lab.Group{group("fifo", "get=100", 1000, tt.runs), group("lifo", "get=100", tt.goodput, tt.runs)}}
		s := newStudy(&Comparison{Comparison: c, Runs: make([][]*Run, 2)}).section(newData())
		require.NotEmpty(t, s.Headline)
		require.Equal(t, tt.told, s.Told, "%s: %s", name, s.Headline)
		require.Empty(t, s.Cautions, "%s: %s", name, s.Headline)
	}
}

// What only some loads have stands in the tables where it was measured.
func TestMarkdown_ShowsRetries(t *testing.T) {
	t.Parallel()
	in := load(t)
	metrics := in.Comparisons[0].Groups[1].Metrics
	for name, v := range map[string]float64{"retries_per_request": 2.25, "errors_percent": 0} {
		metrics[name] = lab.Summary{Median: v, Low: v, High: v, Values: []float64{v}}
	}
	var b bytes.Buffer
	require.NoError(t, Markdown(&b, in))
	require.Contains(t, b.String(), "| retries per request |\n", "zeros are left out")
	require.Contains(t, b.String(), "| 2.25 |\n")
	require.Contains(t, b.String(), " | – |\n")
}

func TestHTML_IsWholeInItself(t *testing.T) {
	t.Parallel()
	in := load(t)
	in.Comparisons[0].Partial = "interrupted after 30 of 32 runs"
	page := rendered(t, in)

	require.Contains(t, page, `http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;;`)
	for _, load := range regexp.MustCompile(`(?i)(src|href|action|data|poster)\s*=\s*["']([^"']*)|url\(([^)]*)|@import`).FindAllStringSubmatch(page, -1) {
		target := load[2] + load[3]
		require.True(t, strings.HasPrefix(target, "#") || target == "data:,", load[0])
	}
	for _, said := range []string{
		"A pool of workers, or none?", "A pool served up to 18% more PUT", "Example 9000", "loadtest compare pool-or-not.yaml",
		"spillway v0.3.0", "interrupted after 30 of 32 runs", "loadtest run --rate 39000",
	} {
		require.Contains(t, page, said)
	}
	d := dataOf(t, page)
	require.Len(t, d.Charts, 9)
	require.NotContains(t, page, "ZgotmplZ", "html/template found something where it cannot stand")
	require.Less(t, len(page), 250_000)
}

func TestHTML_EscapesWhatItIsGiven(t *testing.T) {
	t.Parallel()
	const hostile = `</script><script>alert(1)</script><img src=x onerror=alert(1)>"'&{{.}}` + "\u2028`"
	in := load(t)
	c := in.Comparisons[0]
	c.Command, c.Partial, c.Notes, c.Version = hostile, hostile, []string{hostile}, hostile
	c.Scenario.Title, c.Scenario.Question, c.Scenario.Expectation = hostile, hostile, hostile
	for i := range c.Groups {
		g := &c.Groups[i]
		g.Label, g.Workload, g.Load = hostile, g.Workload+", "+hostile, hostile
		g.Combination.Strategy += hostile
	}
	in.Runs[0].Status[hostile], in.Runs[0].Name = 1, hostile

	page := rendered(t, in)
	require.Equal(t, 2, strings.Count(page, "<script"), "the data and the script")
	require.Equal(t, 2, strings.Count(page, "</script"))
	require.NotContains(t, page, "<img")
	require.NotContains(t, page, "onerror=alert(1)>\"")
	require.NotEmpty(t, dataOf(t, page).Charts)

	var b bytes.Buffer
	require.NoError(t, Markdown(&b, in))
	for line := range strings.Lines(b.String()) {
		if !strings.Contains(line, "| command |") { // in a code span
			require.NotContains(t, line, "<script>")
		}
	}
}

func TestHTML_ShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]*Input{
		"nothing":                    {},
		"a comparison without runs":  {Comparisons: []*Comparison{{Comparison: &lab.Comparison{Partial: "interrupted"}}}},
		"a saturation without steps": {Saturations: []*Saturation{{new(lab.Saturation), "s.json"}}},
		"a run without an answer":    {Runs: []*Run{{Result: &result.Result{Partial: "the server is gone"}, Name: "r.json"}}},
	} {
		page := rendered(t, in)
		require.NotContains(t, page, "NaN", name)
		require.NoError(t, Markdown(&bytes.Buffer{}, in), name)
	}
}

func TestLoad_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, broken := filepath.Join(dir, "other.json"), filepath.Join(dir, "broken.json")
	require.NoError(t, os.WriteFile(other, []byte(`{"a":1}`), 0o644))
	require.NoError(t, os.WriteFile(broken, []byte(`{"a":`), 0o644))
	for path, want := range map[string]string{
		filepath.Join(dir, "none.json"): "no such file",
		dir:                             dir + ": has no comparison.json: name a folder that loadtest compare or simulate has written, or a file of run or saturate",
		other:                           "other.json: holds no result of loadtest run, saturate or compare",
		broken:                          "broken.json: unexpected end of JSON input",
	} {
		_, err := Load(path)
		require.ErrorContains(t, err, want)
	}
}

func TestLoad_NotesMissingRuns(t *testing.T) {
	t.Parallel()
	mixes := t.TempDir()
	require.NoError(t, os.CopyFS(mixes, os.DirFS(filepath.Join(samples, "mixes"))))
	require.NoError(t, os.Remove(filepath.Join(mixes, "runs/0-1.json")))
	in, err := Load(filepath.Join(mixes, "comparison.json"))
	require.NoError(t, err)
	require.Len(t, in.Comparisons[0].Runs[0], repetitions-1)
	p, _ := newPage(in)
	require.Len(t, p.Sections[0].Notes, 1, p.Sections[0].Notes)
	require.Contains(t, p.Sections[0].Notes[0], "0-1.json")
}

func TestCurve_EndsWhereItWouldBeAGuess(t *testing.T) {
	t.Parallel()
	h := hdrhistogram.New(1, 1e9, 3)
	for i := range int64(100_000) {
		require.NoError(t, h.RecordValue(i+1))
	}
	points := curve(h)
	require.Len(t, points, 4*perDecade+1, "with ten requests beyond the last")
	for i, p := range points[1:] {
		require.Greater(t, p[0], points[i][0])
		require.GreaterOrEqual(t, p[1], points[i][1])
	}
	require.InEpsilon(t, 50, float64(points[4][1]), 0.1) // 1/(1-p) is a little above 2
	last := points[len(points)-1]
	require.InEpsilon(t, 10_000, float64(last[0]), 0.001)
	require.InEpsilon(t, 99.99, float64(last[1]), 0.001)
	require.Empty(t, curve(hdrhistogram.New(1, 1e9, 3)))
}

func TestRun_IsShownInFewMoments(t *testing.T) {
	t.Parallel()
	r := &Run{Result: new(result.Result)}
	for i := range 1000 {
		r.Timeline = append(r.Timeline, result.Interval{Good: 2, P99: float64(i)})
	}
	good := r.rate(func(i result.Interval) int64 { return i.Good })
	p99 := r.largest(func(i result.Interval) float64 { return i.P99 })
	for _, points := range [][][]num{good, p99} {
		require.LessOrEqual(t, len(points), maxMoments)
		require.Greater(t, len(points), maxMoments/2)
	}
	require.InDelta(t, 2, float64(good[0][1]), 1e-9)
	require.Equal(t, num(999), p99[len(p99)-1][1])
}

func TestRun_ShowsRatesASecond(t *testing.T) {
	t.Parallel()
	r := &Run{Result: &result.Result{Seconds: 1.1, TimelineStep: 0.5, Timeline: []result.Interval{{Good: 50}, {Good: 100}, {Good: 10}}}}
	good := func(i result.Interval) int64 { return i.Good }
	require.Equal(t, "0.5 s", r.interval())
	points := r.rate(good)
	for i, want := range [][]float64{{0.25, 100}, {0.75, 200}, {1.05, 100}} {
		require.InDelta(t, want[0], float64(points[i][0]), 1e-9)
		require.InDelta(t, want[1], float64(points[i][1]), 1e-6)
	}
	require.Equal(t, num(1.1), window(r).End)

	r.Seconds = 1.001 // the rest of the window is too short
	require.Len(t, r.rate(good), 2)

	r.Seconds, r.TimelineStep = 3, 0
	require.Equal(t, [][]num{{0.5, 50}, {1.5, 100}, {2.5, 10}}, r.rate(good))
	require.Equal(t, "second", r.interval())
}

func TestCosts(t *testing.T) {
	t.Parallel()
	run := &Run{Result: &result.Result{Seconds: 1, CompletedRPS: 10, CPUByPart: profiles.Costs{profiles.Work: 60_000, profiles.GC: 20_000}}}
	got, some := costs([]string{"fifo", "lifo", "sync"}, [][]*Run{{run}, {run, run}, {{Result: new(result.Result)}}})
	require.True(t, some)
	require.Equal(t, []string{"", "network and HTTP", "queue and hand-over", "executor and store", "garbage collection", "scheduler", "other"}, got.Head)
	require.Len(t, got.Rows, 2, "of one there is no profile")
	for i, name := range []string{"fifo", "lifo"} {
		require.Equal(t, []cell{{Text: name}, {Text: "0"}, {Text: "0"}, {Text: "6"}, {Text: "2"}, {Text: "0"}, {Text: "0"}}, got.Rows[i].Cells)
	}
}

func TestRun_SaysThatTheGeneratorWasLate(t *testing.T) {
	t.Parallel()
	r := &Run{Result: &result.Result{Latency: result.Percentiles{P99: 20}, Lateness: result.Percentiles{P99: 3}}, Name: "r.json"}
	in := &Input{Runs: []*Run{r}}
	var b bytes.Buffer
	require.NoError(t, Markdown(&b, in))
	const said = "The generator was late itself, by 3 ms at p99"
	require.Contains(t, b.String(), said)
	require.Contains(t, rendered(t, in), said)

	s := newStudy(&Comparison{Comparison: &lab.Comparison{Groups: make([]lab.Group, 1)}, Runs: [][]*Run{{r, {Result: new(result.Result)}}}})
	require.Equal(t, "In 1 of 2 runs the generator was late itself: part of the latency is its own.", s.lateness())

	r.Latency.P99 = 1000
	require.Empty(t, r.section(newData()).Cautions)
	require.Empty(t, s.lateness())
}

// Trials too short for a p99 show a p90.
func TestSaturation_NoEmptyColumn(t *testing.T) {
	t.Parallel()
	for requests, want := range map[int64]string{300: "p90, ms", 3000: "p99, ms"} {
		step := lab.Step{Rate: 100, Latency: result.Percentiles{P90: 20, P99: 30, Count: requests}}
		s := &Saturation{Saturation: &lab.Saturation{Steps: []lab.Step{step}}, Name: "s.json"}
		require.Equal(t, want, s.section().Tables[0].Head[6])
	}
}

func TestSaturation_SaysThatTheGeneratorWasLate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps []lab.Step
		want  []string
	}{
		{"it was not", []lab.Step{{Rate: 100, Sustained: true}, {Rate: 200}}, nil},
		{"it was once", []lab.Step{{Rate: 120, Sustained: true}, {Rate: 100, GeneratorLate: true}}, []string{
			"The generator did not keep up in 1 of 2 trials: they say little of the server.",
		}},
		{"connections were busy", []lab.Step{{Rate: 120, Sustained: true, ConnectionsBusy: true}, {Rate: 200, ConnectionsBusy: true}}, []string{
			"In 1 of 2 trials all connections were busy, and requests waited for one: if clients have more, raise --connections.",
		}},
		{"there are none", nil, nil},
	} {
		require.Equal(t, c.want, (&lab.Saturation{Steps: c.steps}).Cautions(), c.name)
	}
}

func TestNum_IsJSON(t *testing.T) {
	t.Parallel()
	out, err := json.Marshal([]num{1.0 / 3, 123456789, num(math.NaN()), num(math.Inf(1)), 0, 1e-7})
	require.NoError(t, err)
	require.JSONEq(t, `[0.33333,123460000,null,null,0,0.0000001]`, string(out))
}

// Percentiles that rest on fewer than ten requests beyond them are not shown.
func TestRun_ShowsNoGuesses(t *testing.T) {
	t.Parallel()
	p := result.Percentiles{Mean: 1.1, P50: 2.2, P90: 3.3, P99: 4.4, P999: 5.5, P9999: 6.6, Max: 7.7, Count: 999}
	r := &Run{Name: "r.json", Result: &result.Result{
		Requests: 999, Seconds: 2, Latency: p, ServedLatency: p, UncorrectedLatency: p, Lateness: p,
		TimelineStep: 1, Timeline: []result.Interval{{Offered: 999, P50: 2.2, P99: 4.4, Max: 7.7}},
	}}
	html := rendered(t, &Input{Runs: []*Run{r}})
	for _, shown := range []string{"1.1", "2.2", "3.3", "7.7", "too few"} {
		require.Contains(t, html, shown)
	}
	for _, guess := range []string{"4.4", "5.5", "6.6"} {
		require.NotContains(t, html[strings.Index(html, "<body"):], guess)
	}
	require.Equal(t, [][]num{{2, 2.2}, {10, 3.3}}, points(p, r.Requests))
	enough := lab.Step{Rate: 2, Latency: result.Percentiles{P99: 9.9, Count: 5000}}
	s := &Saturation{Saturation: &lab.Saturation{Steps: []lab.Step{{Rate: 1, Latency: p}, enough}}, Name: "s.json"}
	html = rendered(t, &Input{Saturations: []*Saturation{s}})
	require.Contains(t, html, "too few")
	require.NotContains(t, html[strings.Index(html, "<body"):], "4.4")
}

// Each target has a row, which stands in no other table again.
func TestRun_ShowsTargets(t *testing.T) {
	t.Parallel()
	p := result.Percentiles{P50: 2.2, P99: 4.4, Count: 5000}
	share := result.Share{Requests: 5000, Served: 4900, Good: 4000}
	r := &Run{Name: "r.json", Result: &result.Result{
		Requests: 5000, Seconds: 2, Good: "2xx,3xx", Operations: map[string]int64{"GET /x": 5000}, Shares: map[string]result.Share{"GET /x": share},
		Targets: []result.TargetResult{{Target: "GET /x", Share: share, Errors: 7, Latency: p, ServedLatency: p}},
	}}
	var b bytes.Buffer
	require.NoError(t, Markdown(&b, &Input{Runs: []*Run{r}}))
	require.Contains(t, b.String(), "| GET /x | 5,000 | 80 | 7 | 2.2 | 4.4 | 4.4 |\n")
	require.Equal(t, 1, strings.Count(b.String(), "GET /x"))
	require.Contains(t, b.String(), "(2xx,3xx within ")
	require.NotContains(t, b.String(), "404 to a GET")
}
