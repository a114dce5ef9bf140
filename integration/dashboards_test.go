//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spillway/dashboards"
)

var (
	// fallback is what a query shows while nothing has happened.
	fallback = regexp.MustCompile(` or (on \(\) )?(vector\([01]\)|label_replace\(vector\(0\), .*\))$`)
	// placeholder is a label in a legend.
	placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// fill fills the variables of a query as Grafana does.
func fill(job, instance, strategy string) *strings.Replacer {
	return strings.NewReplacer("$__rate_interval", "5s", "$__range", "10m",
		"$job", job, "$instance", instance, "$strategy", strategy)
}

// Every query of every panel, annotation and variable has an answer, with the
// variables at All and with some of their values chosen.
func TestPrometheus_Dashboards(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	folder := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
	first := start(t, plain, folder)
	first.mixedLoad()
	first.stop() // so that there are tables, and the cache has something to do

	used := []string{"fifo", "lifo"}
	s := start(t, plain, folder, "SPILLWAY_STRATEGY="+used[0], "SPILLWAY_WORKERS=2", "SPILLWAY_QUEUE_CAPACITY=2", "SPILLWAY_STORE_DELAY=1ms")
	p := s.watch(func(rules string) string { return rules })
	everything := fill(".+", ".+", ".+")
	all, err := dashboards.Load()
	require.NoError(t, err)

	for _, d := range all {
		for _, q := range d.Queries() {
			if expr := everything.Replace(q.Expr); fallback.MatchString(expr) {
				p.awaitData("before any request: "+q.Where, expr, q.Instant, begin)
			}
		}
	}

	for _, strategy := range used {
		s.switchTo(strategy)
		p.awaitWork(s, strategy, begin)
	}
	p.eventually("the switch is scraped", func() string {
		return missing(p.query("changes(spillway_strategy_switches_total[1m]) > 0", true, begin))
	})

	escaped := strings.ReplaceAll(regexp.QuoteMeta(s.admin), `\`, `\\`)
	for name, filled := range map[string]*strings.Replacer{
		"all":    everything,
		"chosen": fill("spillway", escaped, "("+strings.Join(used, "|")+")"),
	} {
		for _, d := range all {
			for _, q := range d.Queries() {
				expr, where := filled.Replace(q.Expr), q.Where+", "+name
				p.query(expr, q.Instant, begin)
				// The fallback would hide that there is nothing else.
				found := p.awaitData(where, fallback.ReplaceAllString(expr, ""), q.Instant, begin)
				for _, label := range placeholder.FindAllStringSubmatch(q.Legend, -1) {
					require.NotEmpty(t, found.Metric[label[1]], "%s: the legend speaks of %s, the result has %v", where, label[1], found.Metric)
				}
			}
			for _, v := range d.Templating.List {
				selector, label, ok := v.LabelValues()
				if !ok {
					continue // the data source
				}
				var values []string
				p.ask("label/"+label+"/values", url.Values{"match[]": {filled.Replace(selector)}}, &values)
				require.NotEmpty(t, values, "%s: variable %s", d.File, v.Name)
				if v.Name == "strategy" {
					require.ElementsMatch(t, used, values)
				}
			}
		}
	}
	s.stop()
}

// awaitData waits until a query has a number for an answer, and returns the
// first such series.
func (p *prometheus) awaitData(where, expr string, instant bool, begin time.Time) series {
	p.t.Helper()
	var results []series
	p.eventually(fmt.Sprintf("there is data (%s) for %s", where, expr), func() string {
		results = p.query(expr, instant, begin)
		return missing(results)
	})
	for _, s := range results {
		if s.hasNumber() {
			return s
		}
	}
	return series{} // not reached
}

// awaitWork sends requests until Prometheus has seen that the strategy was at
// work, and turned some of them away.
func (p *prometheus) awaitWork(s *service, strategy string, begin time.Time) {
	p.t.Helper()
	label := strategyLabel(strategy)
	p.eventually(strategy+" is seen at work", func() string {
		s.mixedLoad()
		s.request(http.MethodGet, s.adminURL("/debug/pprof/heap?gc=1"), "")
		for _, growing := range []string{
			`min by (strategy) (increase(spillway_request_duration_seconds_count{outcome="ok", ` + label + `}[1m]))`,
			`sum(increase(spillway_shed_total{` + label + `}[1m]))`,
			`increase(spillway_commit_batch_size_count{` + label + `}[1m])`,
			`increase(go_gc_cycles_total_gc_cycles_total[1m])`,
			`increase(spillway_store_cache_hits_total[1m])`,
		} {
			if gap := missing(p.query(growing+" > 0", true, begin)); gap != "" {
				return growing + ": " + gap
			}
		}
		return ""
	})
}

// missing says what results lack to be an answer, or "".
func missing(results []series) string {
	for _, s := range results {
		if s.hasNumber() {
			return ""
		}
	}
	return fmt.Sprint(len(results), " series without a number")
}

// mixedLoad sends a little of everything, on more connections than a queue and
// workers of 2 hold.
func (s *service) mixedLoad() {
	s.t.Helper()
	require.NoError(s.t, concurrently(8, func(i int) error {
		c, err := dial(s.data)
		if err != nil {
			return err
		}
		defer c.close()
		for n := range 10 {
			key := entity(fmt.Sprint("k", i, "-", n))
			for _, r := range []struct{ method, target string }{
				{http.MethodPut, key},
				{http.MethodGet, key},
				{http.MethodHead, key},
				{http.MethodGet, entity("absent")},
				{http.MethodGet, "/v0/entities?start=k&limit=5"},
				{http.MethodDelete, key},
				{http.MethodPut, key},
				{http.MethodGet, "/v0/entity"}, // 400
			} {
				if _, err := c.do(r.method, r.target, strings.Repeat("v", 100)); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}
