package metrics

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/metrics/metricstest"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// newWatched returns metrics with sources that a test may change.
func newWatched(t *testing.T) (*Metrics, *Sources) {
	t.Helper()
	m := New(Options{Version: "v1", Commit: "abc", Store: "pebble"})
	s := &Sources{
		Objective: objective(t, 70*time.Millisecond),
		Gauge: func() dispatch.Gauge {
			return dispatch.Gauge{Strategy: "fifo", Depth: 3, Capacity: 256, Workers: 4, Busy: 2, Limit: 64, Pace: 500 * time.Microsecond,
				Learned: &dispatch.Learned{Limit: 4, Min: 1, Max: 50, Why: "a test says so", Stuck: 2, Paused: true, Dropped: 3}}
		},
		Connections: func() int { return 7 },
		Writable:    func() error { return nil },
		Dropped:     func() uint64 { return 5 },
		Store: func() StoreStats {
			return StoreStats{Compactions: 1, Levels: []StoreLevel{{2, 3}, {4, 5}}, ReadAmplification: 6, CacheHits: 7,
				CacheMisses: 8, DiskBytes: 9, WriteStalls: 10, WriteStallTime: 1500 * time.Millisecond, MemtableBytes: 11, CompactionDebtBytes: 12, DiskFreeBytes: 13,
				ValueCacheHits: 14, ValueCacheMisses: 15, ValueCacheBytes: 16}
		},
	}
	m.Watch(Sources{
		Objective:   s.Objective,
		Gauge:       func() dispatch.Gauge { return s.Gauge() },
		Connections: func() int { return s.Connections() },
		Writable:    func() error { return s.Writable() },
		Dropped:     func() uint64 { return s.Dropped() },
		Store:       func() StoreStats { return s.Store() },
	})
	return m, s
}

func objective(t testing.TB, d time.Duration) *strategies.Objective {
	t.Helper()
	o := new(strategies.Objective)
	require.NoError(t, o.Set(d))
	return o
}

// gather returns the families by name.
func gather(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := m.registry.Gather()
	require.NoError(t, err)
	families := make(map[string]*dto.MetricFamily)
	for _, f := range all {
		families[f.GetName()] = f
	}
	return families
}

// series returns the text form of a family's series, without comments.
func series(t *testing.T, m *Metrics, name string) []string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, 200, answer.Code)
	samples, err := metricstest.Read(answer.Body.String())
	require.NoError(t, err)
	var lines []string
	for _, sample := range samples {
		if sample.Metric[model.MetricNameLabel] == model.LabelValue(name) {
			lines = append(lines, strings.TrimSpace(strings.TrimPrefix(metricstest.Series(sample), name)+" "+sample.Value.String()))
		}
	}
	return lines
}

func TestMetrics_NamesAndLabels(t *testing.T) {
	t.Parallel()
	m, _ := newWatched(t)
	queue := m.Queue(strategies.Spec{Name: "fifo"})
	queue.Submitted()
	queue.Started(time.Millisecond)
	m.Answered("fifo", "GET", 200, served.OK, time.Millisecond)
	m.Committed("fifo", 3)

	const counter, gauge, histogram = dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_HISTOGRAM
	want := map[string]struct {
		kind   dto.MetricType
		labels string
	}{
		"build_info":                       {gauge, "commit goversion version"},
		"strategy_info":                    {gauge, "strategy"},
		"requests_total":                   {counter, "code method strategy"},
		"request_duration_seconds":         {histogram, "method outcome strategy"},
		"slo_seconds":                      {gauge, ""},
		"objective_seconds":                {gauge, ""},
		"requests_within_objective_total":  {counter, "strategy"},
		"late_wrong_total":                 {counter, "strategy"},
		"would_shed_total":                 {counter, "reason strategy"},
		"tasks_submitted_total":            {counter, "strategy"},
		"tasks_run_total":                  {counter, "strategy"},
		"queue_wait_seconds":               {histogram, "strategy"},
		"queue_depth":                      {gauge, "strategy"},
		"queue_capacity":                   {gauge, "strategy"},
		"queue_limit":                      {gauge, "strategy"},
		"queue_pace_seconds":               {gauge, "strategy"},
		"shed_total":                       {counter, "reason strategy"},
		"workers":                          {gauge, "strategy"},
		"workers_busy":                     {gauge, "strategy"},
		"concurrency_limit":                {gauge, "strategy"},
		"concurrency_max":                  {gauge, "strategy"},
		"concurrency_stuck":                {gauge, "strategy"},
		"concurrency_paused":               {gauge, "strategy"},
		"concurrency_dropped_total":        {counter, ""},
		"commit_batch_size":                {histogram, "strategy"},
		"store_operation_duration_seconds": {histogram, "operation store"},
		"connections":                      {gauge, ""},
		"strategy_switches_total":          {counter, ""},
		"log_lines_dropped_total":          {counter, ""},
		"store_writable":                   {gauge, ""},
		"store_compactions_total":          {counter, ""},
		"store_level_bytes":                {gauge, "level"},
		"store_level_files":                {gauge, "level"},
		"store_read_amplification":         {gauge, ""},
		"store_cache_hits_total":           {counter, ""},
		"store_cache_misses_total":         {counter, ""},
		"store_value_cache_hits_total":     {counter, ""},
		"store_value_cache_misses_total":   {counter, ""},
		"store_value_cache_bytes":          {gauge, ""},
		"store_wal_fsync_duration_seconds": {histogram, ""},
		"store_disk_bytes":                 {gauge, ""},
		"store_disk_free_bytes":            {gauge, ""},
		"store_write_stalls_total":         {counter, ""},
		"store_write_stall_seconds_total":  {counter, ""},
		"store_memtable_bytes":             {gauge, ""},
		"store_compaction_debt_bytes":      {gauge, ""},
	}
	got := gather(t, m)
	for name, w := range want {
		family := got[namespace+"_"+name]
		require.NotNil(t, family, name)
		require.Equal(t, w.kind, family.GetType(), name)
		for _, series := range family.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
				labels = append(labels, l.GetName())
			}
			require.Equal(t, w.labels, strings.Join(labels, " "), name)
			if w.kind == histogram {
				require.NotEmpty(t, series.GetHistogram().GetBucket(), "%s is a classic histogram", name)
				require.NotNil(t, series.GetHistogram().Schema, "%s is a native histogram", name)
			}
		}
	}
	for name := range got {
		if short, ours := strings.CutPrefix(name, namespace+"_"); ours {
			require.Contains(t, want, short, "a metric that the contract does not know")
		}
	}
	for _, name := range []string{"go_goroutines", "go_sched_latencies_seconds", "process_cpu_seconds_total"} {
		require.Contains(t, got, name)
	}

	var ours []*dto.MetricFamily
	for name, family := range got {
		if strings.HasPrefix(name, namespace) {
			ours = append(ours, family)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(ours).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestMetrics_Answered(t *testing.T) {
	t.Parallel()
	m, _ := newWatched(t)
	const ok, shed, failed = served.OK, served.Shed, served.Error
	for _, a := range []struct {
		method  string
		code    int
		outcome served.Outcome
	}{
		{"GET", 200, ok}, {"GET", 200, ok}, {"GET", 404, ok}, {"HEAD", 200, ok}, {"PUT", 201, ok},
		{"DELETE", 202, ok}, {"POST", 405, failed}, {"BREW", 418, failed}, {"", 408, failed}, {"PUT", 503, shed},
		{"PUT", 504, shed}, {"PUT", 503, failed}, {"GET", 0, ok},
		{"GET", 304, ok}, {"HEAD", 304, ok}, {"HEAD", 404, ok}, {"PUT", 404, failed}, {"DELETE", 404, failed},
	} {
		m.Answered("lifo", a.method, a.code, a.outcome, time.Millisecond)
	}
	require.ElementsMatch(t, []string{
		`{code="200",method="GET",strategy="lifo"} 2`,
		`{code="404",method="GET",strategy="lifo"} 1`,
		`{code="304",method="GET",strategy="lifo"} 1`,
		`{code="500",method="GET",strategy="lifo"} 1`,
		`{code="200",method="HEAD",strategy="lifo"} 1`,
		`{code="304",method="HEAD",strategy="lifo"} 1`,
		`{code="404",method="HEAD",strategy="lifo"} 1`,
		`{code="201",method="PUT",strategy="lifo"} 1`,
		`{code="404",method="PUT",strategy="lifo"} 1`,
		`{code="202",method="DELETE",strategy="lifo"} 1`,
		`{code="404",method="DELETE",strategy="lifo"} 1`,
		`{code="405",method="POST",strategy="lifo"} 1`,
		`{code="418",method="other",strategy="lifo"} 1`,
		`{code="408",method="other",strategy="lifo"} 1`,
		`{code="503",method="PUT",strategy="lifo"} 2`,
		`{code="504",method="PUT",strategy="lifo"} 1`,
	}, series(t, m, "spillway_requests_total"))
	require.ElementsMatch(t, []string{
		`{method="GET",outcome="ok",strategy="lifo"} 4`,
		`{method="GET",outcome="error",strategy="lifo"} 1`,
		`{method="HEAD",outcome="ok",strategy="lifo"} 3`,
		`{method="PUT",outcome="ok",strategy="lifo"} 1`,
		`{method="PUT",outcome="shed",strategy="lifo"} 2`,
		`{method="PUT",outcome="error",strategy="lifo"} 2`,
		`{method="DELETE",outcome="ok",strategy="lifo"} 1`,
		`{method="DELETE",outcome="error",strategy="lifo"} 1`,
		`{method="POST",outcome="error",strategy="lifo"} 1`,
		`{method="other",outcome="error",strategy="lifo"} 2`,
	}, series(t, m, "spillway_request_duration_seconds_count"))
}

// A request that was answered by nobody is no success of the upstream.
func TestMetrics_ProxyWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	m := New(Options{Proxy: true})
	m.Answered("fifo", "GET", 0, served.OK, time.Millisecond)
	require.Equal(t, []string{`{code="500",method="GET",strategy="fifo"} 1`}, series(t, m, "spillway_requests_total"))
	require.Equal(t, []string{`{method="GET",outcome="error",strategy="fifo"} 1`}, series(t, m, "spillway_request_duration_seconds_count"))
}

// What is good is counted by the objective in force when it is answered, so that a change
// of it silences nothing.
func TestMetrics_WithinObjective(t *testing.T) {
	t.Parallel()
	o := new(strategies.Objective)
	m := New(Options{})
	m.Watch(Sources{
		Objective: o, Gauge: func() dispatch.Gauge { return dispatch.Gauge{Strategy: "fifo"} },
		Connections: func() int { return 0 }, Dropped: func() uint64 { return 0 },
	})
	m.Queue(strategies.Spec{Name: "fifo"})
	for _, tc := range []struct {
		name         string
		set          time.Duration
		slo, inForce string
		outcome      served.Outcome
		took         time.Duration
		within       string
	}{
		{"not set, 100 ms stand in", 0, "0", "0.1", served.OK, 100 * time.Millisecond, "1"},
		{"late", 0, "0", "0.1", served.OK, 101 * time.Millisecond, "1"},
		{"set longer", time.Second, "1", "1", served.OK, 101 * time.Millisecond, "2"},
		{"set shorter", 70 * time.Millisecond, "0.07", "0.07", served.OK, 71 * time.Millisecond, "2"},
		{"in time, and an error", 70 * time.Millisecond, "0.07", "0.07", served.Error, time.Millisecond, "2"},
		{"nobody is late", strategies.NoObjective, "0", "0", served.OK, time.Hour, "3"},
	} {
		require.NoError(t, o.Set(tc.set))
		m.Answered("fifo", "GET", 200, tc.outcome, tc.took)
		require.Equal(t, []string{tc.slo}, series(t, m, "spillway_slo_seconds"), tc.name)
		require.Equal(t, []string{tc.inForce}, series(t, m, "spillway_objective_seconds"), tc.name)
		require.Equal(t, []string{`{strategy="fifo"} ` + tc.within}, series(t, m, "spillway_requests_within_objective_total"), tc.name)
	}
	// An answer that goes on for long is in time by its head.
	require.NoError(t, o.Set(time.Second))
	m.Forwarded("fifo", "GET", 200, served.OK, time.Second, time.Hour)
	live, ok := m.Live()
	require.True(t, ok)
	require.InDelta(t, 4, live.Good, 0)
	require.InDelta(t, 2, live.Late, 0)
	require.Equal(t, o.State(), live.Objective)
}

func TestMetrics_Queue(t *testing.T) {
	t.Parallel()
	m, _ := newWatched(t)
	require.Empty(t, series(t, m, "spillway_shed_total"))
	queue := m.Queue(strategies.Spec{Name: "mpmc"})
	var want []string
	for _, r := range strategies.Reasons() {
		want = append(want, `{reason="`+r.String()+`",strategy="mpmc"} 0`)
	}
	require.ElementsMatch(t, want, series(t, m, "spillway_shed_total"), "every reason at 0")
	require.ElementsMatch(t, want, series(t, m, "spillway_would_shed_total"), "in every mode, as it can be changed")
	require.Equal(t, []string{`{strategy="mpmc"} 0`}, series(t, m, "spillway_late_wrong_total"))
	require.Equal(t, []string{`{strategy="mpmc"} 0`}, series(t, m, "spillway_requests_within_objective_total"))

	for _, r := range strategies.Reasons() {
		queue.Submitted()
		queue.Shed(r)
	}
	queue.Submitted()
	queue.Started(0)
	m.Queue(strategies.Spec{Name: "mpmc"}).Shed(strategies.ReasonFull) // the same series again
	require.Equal(t, []string{`{strategy="mpmc"} 9`}, series(t, m, "spillway_tasks_submitted_total"))
	require.Equal(t, []string{`{strategy="mpmc"} 1`}, series(t, m, "spillway_tasks_run_total"))
	require.Equal(t, []string{`{strategy="mpmc"} 1`}, series(t, m, "spillway_queue_wait_seconds_count"))
	require.Contains(t, series(t, m, "spillway_shed_total"), `{reason="full",strategy="mpmc"} 2`)
	require.Contains(t, series(t, m, "spillway_shed_total"), `{reason="expired",strategy="mpmc"} 1`)
	queue.WouldShed(strategies.ReasonLate)
	require.Contains(t, series(t, m, "spillway_would_shed_total"), `{reason="late",strategy="mpmc"} 1`)
	queue.LateWrong()
	require.Equal(t, []string{`{strategy="mpmc"} 1`}, series(t, m, "spillway_late_wrong_total"))
}

func TestMetrics_Sources(t *testing.T) {
	t.Parallel()
	m, s := newWatched(t)
	for name, want := range map[string][]string{
		"strategy_info":                   {`{strategy="fifo"} 1`},
		"queue_depth":                     {`{strategy="fifo"} 3`},
		"queue_capacity":                  {`{strategy="fifo"} 256`},
		"queue_limit":                     {`{strategy="fifo"} 64`},
		"queue_pace_seconds":              {`{strategy="fifo"} 0.0005`},
		"concurrency_limit":               {`{strategy="fifo"} 4`},
		"concurrency_max":                 {`{strategy="fifo"} 50`},
		"concurrency_stuck":               {`{strategy="fifo"} 2`},
		"concurrency_paused":              {`{strategy="fifo"} 1`},
		"concurrency_dropped_total":       {`3`},
		"workers":                         {`{strategy="fifo"} 4`},
		"workers_busy":                    {`{strategy="fifo"} 2`},
		"connections":                     {"7"},
		"store_writable":                  {"1"},
		"store_compactions_total":         {"1"},
		"store_level_bytes":               {`{level="0"} 2`, `{level="1"} 4`},
		"store_level_files":               {`{level="0"} 3`, `{level="1"} 5`},
		"store_read_amplification":        {"6"},
		"store_cache_hits_total":          {"7"},
		"store_cache_misses_total":        {"8"},
		"store_value_cache_hits_total":    {"14"},
		"store_value_cache_misses_total":  {"15"},
		"store_value_cache_bytes":         {"16"},
		"store_disk_bytes":                {"9"},
		"store_disk_free_bytes":           {"13"},
		"store_write_stalls_total":        {"10"},
		"store_write_stall_seconds_total": {"1.5"},
		"store_memtable_bytes":            {"11"},
		"store_compaction_debt_bytes":     {"12"},
	} {
		require.Equal(t, want, series(t, m, "spillway_"+name), name)
	}

	// A switch to a strategy without a bound: the gauges of the other go.
	s.Gauge = func() dispatch.Gauge {
		return dispatch.Gauge{Strategy: "unbounded", Depth: 3, Capacity: strategies.Unbounded, Workers: 4}
	}
	m.Switched("fifo", "unbounded")
	s.Writable = func() error { return errors.New("no space") }
	require.Equal(t, []string{`{strategy="unbounded"} 1`}, series(t, m, "spillway_strategy_info"))
	require.Equal(t, []string{`{strategy="unbounded"} 3`}, series(t, m, "spillway_queue_depth"))
	require.Empty(t, series(t, m, "spillway_queue_capacity"))
	require.Equal(t, []string{"1"}, series(t, m, "spillway_strategy_switches_total"))
	require.Equal(t, []string{"0"}, series(t, m, "spillway_store_writable"))
}

func TestMetrics_Store(t *testing.T) {
	t.Parallel()
	m, _ := newWatched(t)
	for _, operation := range []string{"get", "commit", "sync", "range", "unheard of"} {
		m.Operated(operation, time.Millisecond)
	}
	m.ObserveFsync(time.Millisecond)
	m.Committed("fifo", 5)
	require.ElementsMatch(t, []string{
		`{operation="get",store="pebble"} 1`, `{operation="commit",store="pebble"} 1`,
		`{operation="sync",store="pebble"} 1`, `{operation="range",store="pebble"} 1`,
	}, series(t, m, "spillway_store_operation_duration_seconds_count"))
	require.Equal(t, []string{"1"}, series(t, m, "spillway_store_wal_fsync_duration_seconds_count"))
	require.Equal(t, []string{`{strategy="fifo"} 5`}, series(t, m, "spillway_commit_batch_size_sum"))
}

func TestMetrics_ManyAtOnce(t *testing.T) {
	t.Parallel()
	m, _ := newWatched(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				for _, name := range strategies.Names() {
					m.Queue(strategies.Spec{Name: name}).Submitted()
					m.Answered(name, "GET", 200, served.OK, time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, series(t, m, "spillway_requests_total"), len(strategies.Names()))
	for _, line := range append(series(t, m, "spillway_requests_total"), series(t, m, "spillway_tasks_submitted_total")...) {
		require.True(t, strings.HasSuffix(line, " 800"), line)
	}
}

func TestMetrics_AllocateNothing(t *testing.T) {
	m := New(Options{Store: "pebble"})
	queue := m.Queue(strategies.Spec{Name: "fifo"})
	require.Zero(t, testing.AllocsPerRun(100, func() { request(m, queue) }))
}

// request is what is told of one PUT.
func request(m *Metrics, queue dispatch.Events) {
	queue.Submitted()
	queue.Started(20 * time.Microsecond)
	m.Committed("fifo", 1)
	m.Operated("commit", 30*time.Microsecond)
	m.Answered("fifo", "PUT", 201, served.OK, 50*time.Microsecond)
}

func BenchmarkMetrics(b *testing.B) {
	m := New(Options{Store: "pebble"})
	queue := m.Queue(strategies.Spec{Name: "fifo"})
	b.Run("hook=request", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			request(m, queue)
		}
	})
	b.Run("hook=answered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Answered("fifo", "GET", 200, served.OK, 50*time.Microsecond)
		}
	})
	b.Run("hook=started", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			queue.Started(20 * time.Microsecond)
		}
	})
	b.Run("hook=submitted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			queue.Submitted()
		}
	})
}

// Routes that stay keep their figures, and those that go are exported no more.
func TestMetrics_SetRoutes(t *testing.T) {
	t.Parallel()
	m := New(Options{Proxy: true, Routes: []string{"a", "b"}})
	m.Routed("a", served.OK, time.Millisecond)
	m.Routed("b", served.OK, time.Millisecond)
	m.SetRoutes([]string{"a", "c"})
	m.Routed("a", served.OK, time.Millisecond)
	m.Routed("b", served.OK, time.Millisecond) // which came under the former rules
	text := strings.Join(series(t, m, "spillway_route_duration_seconds_count"), "\n")
	require.Contains(t, text, `{outcome="ok",route="a"} 2`)
	require.Contains(t, text, `route="c"`)
	require.Contains(t, text, `route="other"`)
	require.NotContains(t, text, `route="b"`)
	m.SetRoutes(nil)
	require.Empty(t, series(t, m, "spillway_route_duration_seconds_count"))
}
