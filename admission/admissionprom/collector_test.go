package admissionprom_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionprom"
	"github.com/spillway-go/spillway/internal/metrics/metricstest"
	"github.com/spillway-go/spillway/strategies"
)

// scrape returns what a registry answers, by the names of the series.
func scrape(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	samples, err := metricstest.Read(w.Body.String())
	require.NoError(t, err)
	all := map[string]float64{}
	for _, s := range samples {
		all[metricstest.Series(s)] = float64(s.Value)
	}
	return all
}

func TestCollector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var own atomic.Int64
		count := func(admission.Event) { own.Add(1) }
		c, metrics, err := admissionprom.New(admission.Options{
			Strategy: "fifo", Concurrency: 2, Capacity: 1, Admitted: count, Shed: count, Released: count,
		})
		require.NoError(t, err)
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(metrics)

		m := scrape(t, r)
		for _, reason := range strategies.Reasons() {
			require.Contains(t, m, `spillway_shed_total{reason="`+reason.String()+`",strategy="fifo"}`, "it is there before it happens")
		}

		first, err := c.Acquire(t.Context(), admission.Request{Cost: 2})
		require.NoError(t, err)
		waits := make(chan admission.Permit)
		go func() {
			p, err := c.Acquire(t.Context(), admission.Request{})
			require.NoError(t, err)
			waits <- p
		}()
		synctest.Wait()
		_, err = c.Acquire(t.Context(), admission.Request{})
		require.ErrorIs(t, err, admission.ErrShed)
		time.Sleep(2 * time.Second)
		m = scrape(t, r)
		require.EqualValues(t, 1, m[`spillway_strategy_info{strategy="fifo"}`])
		require.EqualValues(t, 1, m[`spillway_queue_depth{strategy="fifo"}`])
		require.EqualValues(t, 1, m[`spillway_queue_capacity{strategy="fifo"}`])
		require.EqualValues(t, 2, m[`spillway_workers{strategy="fifo"}`])
		require.EqualValues(t, 2, m[`spillway_workers_busy{strategy="fifo"}`])
		first.Release()
		(<-waits).Release()
		require.NoError(t, c.Switch("lifo"))

		m = scrape(t, r)
		require.EqualValues(t, 3, m[`spillway_tasks_submitted_total{strategy="fifo"}`])
		require.EqualValues(t, 2, m[`spillway_tasks_run_total{strategy="fifo"}`])
		require.EqualValues(t, 1, m[`spillway_shed_total{reason="full",strategy="fifo"}`])
		require.EqualValues(t, 2, m[`spillway_queue_wait_seconds_count{strategy="fifo"}`])
		require.InDelta(t, 2, m[`spillway_queue_wait_seconds_sum{strategy="fifo"}`], 0.01)
		require.EqualValues(t, 2, m[`spillway_held_seconds_count{strategy="fifo"}`])
		require.InDelta(t, 2, m[`spillway_held_seconds_sum{strategy="fifo"}`], 0.01)
		require.Contains(t, m, `spillway_workers{strategy="lifo"}`)
		require.NotContains(t, m, `spillway_workers{strategy="fifo"}`)
		require.Contains(t, m, `spillway_shed_total{reason="displaced",strategy="lifo"}`)
		require.EqualValues(t, 5, own.Load(), "the hooks of who asks are called too")
	})
}

// What would have been turned away is counted apart, and is served.
func TestCollector_Observe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, metrics, err := admissionprom.New(admission.Options{
			Spec:        strategies.CoDel(strategies.CoDelOptions{Target: time.Millisecond, Interval: 10 * time.Millisecond}),
			Concurrency: 1, Mode: admission.Observe,
		})
		require.NoError(t, err)
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(metrics)
		served := make(chan bool)
		for range 100 {
			go func() {
				err := c.Do(t.Context(), admission.Request{}, func(context.Context) error {
					time.Sleep(4 * time.Millisecond)
					return nil
				})
				served <- err == nil
			}()
		}
		for range 100 {
			require.True(t, <-served)
		}
		m := scrape(t, r)
		require.EqualValues(t, 100, m[`spillway_tasks_run_total{strategy="codel"}`])
		require.EqualValues(t, 100, m[`spillway_tasks_submitted_total{strategy="codel"}`])
		require.Positive(t, m[`spillway_would_shed_total{reason="codel",strategy="codel"}`])
		require.Zero(t, m[`spillway_shed_total{reason="codel",strategy="codel"}`])
	})
}

// A number of places that is learned is told apart from one that is given.
func TestCollector_Learned(t *testing.T) {
	t.Parallel()
	c, metrics, err := admissionprom.New(admission.Options{Strategy: "fifo", MinConcurrency: 7, MaxConcurrency: 7})
	require.NoError(t, err)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metrics)
	require.ErrorIs(t, c.Do(t.Context(), admission.Request{}, func(context.Context) error { return context.DeadlineExceeded }), context.DeadlineExceeded)
	m := scrape(t, r)
	require.EqualValues(t, 7, m[`spillway_workers{strategy="fifo"}`])
	require.EqualValues(t, 7, m[`spillway_concurrency_limit{strategy="fifo"}`])
	require.EqualValues(t, 7, m[`spillway_concurrency_max{strategy="fifo"}`])
	require.Contains(t, m, `spillway_concurrency_stuck{strategy="fifo"}`)
	require.Contains(t, m, `spillway_concurrency_paused{strategy="fifo"}`)
	require.EqualValues(t, 1, m[`spillway_concurrency_dropped_total`])
	require.NoError(t, c.SetConcurrency(3))
	require.NotContains(t, scrape(t, r), `spillway_concurrency_limit{strategy="fifo"}`)
}

// Where nobody is held back no figure says how many places there are.
func TestCollector_LearnedAndObserved(t *testing.T) {
	t.Parallel()
	c, metrics, err := admissionprom.New(admission.Options{Strategy: "fifo", Mode: admission.Observe})
	require.NoError(t, err)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metrics)
	require.NoError(t, c.Do(t.Context(), admission.Request{}, func(context.Context) error {
		m := scrape(t, r)
		require.EqualValues(t, 1, m[`spillway_workers_busy{strategy="fifo"}`])
		for _, name := range []string{"workers{", "concurrency_limit{"} {
			for series := range m {
				require.NotContains(t, series, "spillway_"+name)
			}
		}
		return nil
	}))
}

// What is good within the objective in force counts, and what is in force is told.
func TestCollector_Objective(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, metrics, err := admissionprom.New(admission.Options{Strategy: "auto", Mode: admission.Observe})
		require.NoError(t, err)
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(metrics)
		do := func(took time.Duration, result error) {
			_ = c.Do(t.Context(), admission.Request{}, func(context.Context) error {
				time.Sleep(took)
				return result
			})
		}
		require.Zero(t, scrape(t, r)[`spillway_slo_seconds`])
		require.InDelta(t, 0.1, scrape(t, r)[`spillway_objective_seconds`], 0)
		require.Contains(t, scrape(t, r), `spillway_late_wrong_total{strategy="auto"}`)
		require.Contains(t, scrape(t, r), `spillway_would_shed_total{reason="late",strategy="auto"}`)
		require.NoError(t, c.SetObjective(time.Second))
		do(900*time.Millisecond, nil)
		do(2*time.Second, nil)
		do(time.Millisecond, context.DeadlineExceeded)
		m := scrape(t, r)
		require.InDelta(t, 1, m[`spillway_slo_seconds`], 0)
		require.InDelta(t, 1, m[`spillway_objective_seconds`], 0)
		require.EqualValues(t, 1, m[`spillway_requests_within_objective_total{strategy="auto"}`])
		require.EqualValues(t, 1, m[`spillway_would_shed_total{reason="late",strategy="auto"}`])
		require.NoError(t, c.SetObjective(admission.NoObjective))
		do(time.Hour, nil)
		m = scrape(t, r)
		require.Zero(t, m[`spillway_slo_seconds`])
		require.Zero(t, m[`spillway_objective_seconds`])
		require.EqualValues(t, 2, m[`spillway_requests_within_objective_total{strategy="auto"}`])
	})
}

// Several controllers of one process.
func TestCollector_Several(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	for _, name := range []string{"database", "disk"} {
		_, metrics, err := admissionprom.New(admission.Options{Concurrency: 1})
		require.NoError(t, err)
		require.NoError(t, prometheus.WrapRegistererWith(prometheus.Labels{"queue": name}, r).Register(metrics))
	}
	require.EqualValues(t, 1, scrape(t, r)[`spillway_workers{queue="disk",strategy="auto"}`])
	_, _, err := admissionprom.New(admission.Options{Concurrency: -1})
	require.ErrorContains(t, err, "Concurrency is -1")
}

// However different the times are, a native histogram stays small.
func TestCollector_NativeBucketsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, metrics, err := admissionprom.New(admission.Options{Concurrency: 1})
		require.NoError(t, err)
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(metrics)
		for held := 1.; held < float64(time.Minute); held *= 1.05 {
			p, ok := c.TryAcquire(admission.Request{})
			require.True(t, ok)
			time.Sleep(time.Duration(held))
			p.Release()
		}
		families, err := r.Gather()
		require.NoError(t, err)
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "spillway_held_seconds" })
		buckets := families[i].GetMetric()[0].GetHistogram().GetPositiveDelta()
		require.NotEmpty(t, buckets)
		require.LessOrEqual(t, len(buckets), 160)
	})
}
