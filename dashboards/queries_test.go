package dashboards

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/metrics/metricstest"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// exported are the metrics that the service exports, with their labels. A
// histogram is there as its three parts.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	m := metrics.New(metrics.Options{Version: "v", Commit: "c", Store: "s"})
	m.Watch(metrics.Sources{
		Gauge: func() dispatch.Gauge {
			return dispatch.Gauge{Strategy: "x", Capacity: 1, Limit: 1, Pace: 1, Learned: &dispatch.Learned{Limit: 1}}
		},
		Upstreams:    func() []metrics.Upstream { return []metrics.Upstream{{Name: "u"}} },
		Connections:  func() int { return 0 },
		Writable:     func() error { return errors.New("no") },
		Dropped:      func() uint64 { return 5 },
		ReloadFailed: func() bool { return false }, AccessDropped: func() uint64 { return 1 }, SpansDropped: func() uint64 { return 1 },
		Store: func() metrics.StoreStats { return metrics.StoreStats{Levels: make([]metrics.StoreLevel, 1)} },
	})
	queue := m.Queue(strategies.Spec{Name: "x"})
	queue.Submitted()
	queue.Started(0)
	queue.Shed(strategies.ReasonFull)
	m.Committed("x", 1)
	m.Answered("x", http.MethodGet, http.StatusOK, served.OK, 0)

	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	known := map[string][]string{"up": nil} // Prometheus's own
	samples, err := metricstest.Read(answer.Body.String())
	require.NoError(t, err)
	for _, sample := range samples {
		var labels []string
		for label := range sample.Metric {
			if label != model.MetricNameLabel {
				labels = append(labels, string(label))
			}
		}
		known[string(sample.Metric[model.MetricNameLabel])] = labels
	}
	return known
}

var (
	inCode        = regexp.MustCompile("`([a-z_]+)`")
	histogramPart = regexp.MustCompile(`_(bucket|sum|count)$`)

	quoted   = regexp.MustCompile(`"[^"]*"`)
	selector = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}(\[[^\]]*\])?`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)("[^"]*")`)
	grouping = regexp.MustCompile(`\b(?:by|on|group_left|group_right|without|ignoring)(?: \(([^)]*)\))`)
	// word is what may be a metric, once strings, ranges and groupings are gone.
	word      = regexp.MustCompile(`\b[a-zA-Z_][a-zA-Z0-9_:]*(?:\s*\()?`)
	operators = []string{"and", "or", "unless", "offset", "by", "on", "group_left"}
	// accumulating are the names of what only grows, and so says nothing as it
	// is.
	accumulating = regexp.MustCompile(`_(total|bucket|sum|count)$`)
	// reading are the functions that make something of it.
	reading = regexp.MustCompile(`\b(rate|increase|changes)\($`)
)

// named returns the metrics that a query names, with those that have no
// selector.
func named(expr string) []string {
	expr = quoted.ReplaceAllString(expr, `""`)
	expr = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]`).ReplaceAllString(expr, "")
	expr = grouping.ReplaceAllString(expr, "")
	var names []string
	for _, w := range word.FindAllString(expr, -1) {
		if !strings.HasSuffix(w, "(") && !slices.Contains(operators, w) {
			names = append(names, w)
		}
	}
	return names
}

// requireReadRight asserts that a query names metrics that exist, and reads
// those that only grow by how much they do.
func requireReadRight(t *testing.T, expr string, known map[string][]string) {
	t.Helper()
	names := named(expr)
	require.NotEmpty(t, names, expr)
	for _, name := range names {
		_, exists := known[name]
		require.True(t, exists, "the service does not export %s, and no rule above records it", name)
		if !accumulating.MatchString(name) {
			continue
		}
		for _, at := range regexp.MustCompile(`\b`+name+`\b`).FindAllStringIndex(expr, -1) {
			require.True(t, reading.MatchString(expr[:at[0]]), "%s only grows: take its rate or increase", name)
		}
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		expr string
		want []string
	}{
		{`up`, []string{"up"}},
		{`sum by (job) (rate(a_total{x="by (b)"}[5m])) / on (job) group_left (s) c:d:rate5m > 0.1`, []string{"a_total", "c:d:rate5m"}},
		{`label_replace(count_values by (job) ("le", last_over_time(a[5m])), "le", "$1.0", "le", "(.*)") or on () vector(0)`, []string{"a"}},
		{`histogram_quantile(0.99, sum by (le, s) (rate(h_bucket{job=~"$job"}[$__rate_interval]))) and b unless c`, []string{"h_bucket", "b", "c"}},
	} {
		require.Equal(t, test.want, named(test.expr), test.expr)
	}
}

// Everything that the service exports is listed where operators look, and
// nothing else.
func TestMetrics_Documented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Metrics\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string // with the labels
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, name := range inCode.FindAllStringSubmatch(cells[1], -1) {
				documented = append(documented, name[1])
			}
		}
	}
	exists := make(map[string]bool)
	for name, labels := range exported(t) {
		name, ours := strings.CutPrefix(name, "spillway_")
		if !ours {
			continue
		}
		name = histogramPart.ReplaceAllString(name, "")
		require.Contains(t, documented, name)
		exists[name] = true
		for _, label := range labels {
			exists[label] = true
		}
	}
	for _, name := range documented {
		require.True(t, exists[name], "%s is not exported", name)
	}
}

func TestDashboards_Queries(t *testing.T) {
	t.Parallel()
	known := exported(t)
	for _, name := range recorded(t) {
		known[name] = nil
	}
	for _, d := range load(t) {
		for _, q := range d.Queries() {
			t.Run(q.Where, func(t *testing.T) {
				t.Parallel()
				requireReadRight(t, q.Expr, known)
				selectors := selector.FindAllStringSubmatch(q.Expr, -1)
				require.Len(t, selectors, len(named(q.Expr)), "every metric is narrowed to the job and the instance")
				for _, s := range selectors {
					name, within := s[1], s[3]
					labels := known[name]
					matchers := make(map[string]string)
					for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
						matchers[m[1]] = m[2] + m[3]
						if m[1] != "job" && m[1] != "instance" {
							require.Contains(t, labels, m[1], "%s has no such label", name)
						}
					}
					require.Equal(t, `=~"$job"`, matchers["job"], name)
					require.Equal(t, `=~"$instance"`, matchers["instance"], name)
					if slices.Contains(labels, "strategy") && !q.Event {
						require.Equal(t, `=~"$strategy"`, matchers["strategy"], name)
					}
					switch {
					case q.Event:
						require.Contains(t, []string{"", "[75s]"}, within, "longer than a step, so that nothing falls between two")
					case q.Instant:
						require.Contains(t, []string{"", "[$__range]"}, within)
					default:
						require.Contains(t, []string{"", "[$__rate_interval]"}, within)
					}
				}
				for _, g := range grouping.FindAllStringSubmatch(q.Expr, -1) {
					for label := range strings.SplitSeq(g[1], ",") {
						label = strings.TrimSpace(label)
						require.True(t, slices.Contains([]string{"", "job", "instance", "le"}, label) ||
							slices.ContainsFunc(selectors, func(s []string) bool { return slices.Contains(known[s[1]], label) }),
							"nothing in the query has the label %s", label)
					}
				}
			})
		}
	}
}

func recorded(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, g := range rules(t) {
		for _, r := range g.Rules {
			if r.Record != "" {
				names = append(names, r.Record)
			}
		}
	}
	return names
}
