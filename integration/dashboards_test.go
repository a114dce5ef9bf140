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

	"github.com/spillway-go/spillway/dashboards"
)

var (
	// fallback is what a query shows while nothing has happened.
	fallback = regexp.MustCompile(` or on \(\) (\((1 \+ )?0 \* count\(spillway_build_info\{[^}]*\}\)\)|label_replace\(vector\(0\), .*\))$`)
	// placeholder is a label in a legend.
	placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// variables returns the values of each variable of a dashboard, asked for in
// their order, as Grafana does: those above narrow the ones below, with all that
// they have or with the last alone.
func (p *prometheus) variables(d dashboards.Dashboard, all bool) (*strings.Replacer, map[string][]string) {
	p.t.Helper()
	fill := []string{"$__rate_interval", "5s", "$__range", "10m"}
	found := make(map[string][]string)
	for _, v := range d.Templating.List {
		selector, label, ok := v.LabelValues()
		if !ok {
			continue // the data source
		}
		var values []string
		p.ask("label/"+label+"/values", url.Values{"match[]": {strings.NewReplacer(fill...).Replace(selector)}}, &values)
		found[v.Name] = values
		switch {
		case all:
			fill = append(fill, "$"+v.Name, v.InterpolateAll(values))
		case len(values) == 0:
			fill = append(fill, "$"+v.Name, "")
		default:
			fill = append(fill, "$"+v.Name, v.Interpolate(values[len(values)-1:]))
		}
	}
	return strings.NewReplacer(fill...), found
}

// Every query of every panel, annotation and variable has an answer, with the
// variables at All, and with one value of each chosen.
func TestPrometheus_Dashboards(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	used := []string{"fifo", "lifo"}
	// Each of the two is at work under both strategies, so that there is data for
	// whichever is chosen.
	var services []*service
	for range 2 {
		folder := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
		before := start(t, plain, folder)
		before.mixedLoad()
		before.stop() // so that there are tables, and the cache has something to do
		services = append(services, start(t, plain, folder, "SPILLWAY_STRATEGY="+used[0],
			"SPILLWAY_WORKERS=2", "SPILLWAY_QUEUE_CAPACITY=2", "SPILLWAY_STORE_DELAY=1ms", "SPILLWAY_MAX_CONNECTIONS=16"))
	}
	p := services[0].watch(func(rules string) string { return rules }, services[1])
	all, err := dashboards.Load()
	require.NoError(t, err)
	p.eventually("both are scraped", func() string {
		return missing(p.query("count(spillway_build_info) == 2", true, begin))
	})

	for _, d := range all {
		filled, _ := p.variables(d, true)
		for _, q := range d.Queries() {
			if expr := filled.Replace(q.Expr); fallback.MatchString(expr) {
				p.awaitData("before any request: "+q.Where, expr, q.Instant, begin)
			}
		}
	}

	for _, strategy := range used {
		for _, s := range services {
			s.switchTo(strategy)
			p.awaitWork(s, strategy, begin)
		}
	}
	p.eventually("the switches are scraped", func() string {
		return missing(p.query("count(spillway_strategy_switches_total > 0) == 2", true, begin))
	})

	for name, everything := range map[string]bool{"all": true, "chosen": false} {
		for _, d := range all {
			filled, values := p.variables(d, everything)
			require.Equal(t, []string{"spillway"}, values["job"], d.File)
			require.ElementsMatch(t, []string{services[0].admin, services[1].admin}, values["instance"], d.File)
			if strategies, has := values["strategy"]; has {
				require.ElementsMatch(t, used, strategies, d.File)
			}
			for _, q := range d.Queries() {
				expr, where := filled.Replace(q.Expr), q.Where+", "+name
				require.NotRegexp(t, `\$[a-z_{]`, expr, where)
				p.query(expr, q.Instant, begin)
				if strings.Contains(expr, "spillway_concurrency_") || strings.Contains(expr, "spillway_upstream_") {
					continue // only a number of workers that is learned has them, or a proxy
				}
				// The fallback would hide that there is nothing else.
				found := p.awaitData(where, fallback.ReplaceAllString(expr, ""), q.Instant, begin)
				for _, label := range placeholder.FindAllStringSubmatch(q.Legend, -1) {
					require.NotEmpty(t, found.Metric[label[1]], "%s: the legend speaks of %s, the result has %v", where, label[1], found.Metric)
				}
			}
		}
	}
	for _, s := range services {
		s.stop()
	}
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
	label := fmt.Sprintf("%s, instance=%q", strategyLabel(strategy), s.admin)
	p.eventually(strategy+" is seen at work", func() string {
		s.mixedLoad()
		s.crowd(20)
		s.request(http.MethodGet, s.adminURL("/debug/pprof/heap?gc=1"), "")
		for _, growing := range []string{
			`min by (strategy) (increase(spillway_request_duration_seconds_count{outcome="ok", ` + label + `}[1m]))`,
			`sum(increase(spillway_shed_total{` + label + `}[1m]))`,
			`increase(spillway_commit_batch_size_count{` + label + `}[1m])`,
			`sum(increase(spillway_requests_total{method="other", code="503", ` + label + `}[1m]))`,
			fmt.Sprintf(`increase(go_gc_cycles_total_gc_cycles_total{instance=%q}[1m])`, s.admin),
			fmt.Sprintf(`increase(spillway_store_cache_hits_total{instance=%q}[1m])`, s.admin),
		} {
			if gap := missing(p.query(growing+" > 0", true, begin)); gap != "" {
				return growing + ": " + gap
			}
		}
		return ""
	})
}

// crowd opens that many connections, has a request answered or refused on each,
// and closes them when all are there.
func (s *service) crowd(n int) {
	s.t.Helper()
	conns := make([]*client, n)
	require.NoError(s.t, concurrently(n, func(i int) (err error) {
		if conns[i], err = dial(s.data); err == nil {
			_, _ = conns[i].do(http.MethodGet, entity("absent"), "") // what a refusal looks like is tested elsewhere
		}
		return err
	}))
	for _, c := range conns {
		c.close()
	}
	s.eventually("the crowd has gone", func() bool { return s.metrics().sum("spillway_connections") == 0 })
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
