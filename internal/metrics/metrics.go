// Package metrics counts and times what the other packages report, for
// Prometheus.
//
// It has a registry of its own. Events of a request are reported through hooks
// ([Metrics.Queue], [Metrics.Answered], [Metrics.Committed], …). They look up no
// label: the series of a strategy are resolved when it becomes active, those of a
// method and a status code at the first such answer. State, such as the depth of a
// queue, is read when Prometheus scrapes: see [Sources].
package metrics

import (
	"hash/maphash"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/strategies"
)

const namespace = "spillway"

// Options describe the process.
type Options struct {
	// Version and Commit say what was built.
	Version, Commit string
	// Store is the kind of the store, such as pebble.
	Store string
	// Proxy says that requests are forwarded: there is no store, PATCH and OPTIONS are
	// known methods, and what the upstream answers below 500 is ok.
	Proxy bool
	// Routes are the names of routes, beside other, that the proxy times.
	Routes []string
}

// Metrics holds all series of the process. All methods are safe for concurrent
// use.
type Metrics struct {
	registry *prometheus.Registry
	proxy    bool
	sources  atomic.Pointer[Sources] // nil before Watch
	// objective is never nil. Before Watch it is one that nobody has set.
	objective atomic.Pointer[strategies.Objective]

	requests  *prometheus.CounterVec
	durations *histograms
	submitted *prometheus.CounterVec
	run       *prometheus.CounterVec
	waits     *histograms
	shed      *prometheus.CounterVec
	wouldShed *prometheus.CounterVec
	within    *prometheus.CounterVec
	lateWrong *prometheus.CounterVec
	batches   *histograms
	switches  prometheus.Counter
	fsyncs    *histogram
	left      *histogram  // not exported
	routes    *histograms // nil without the proxy
	byRoute   atomic.Pointer[map[string][served.Outcomes]*histogram]
	embedded  prometheus.Collector // what is exported of an embedded store alone

	operations [numOperations]*histogram
	strategies atomic.Pointer[map[string]*strategy]
	callers    callers
	adding     sync.Mutex // held while a strategy is added to the map's next version
}

// New returns metrics in which nothing has happened yet.
func New(o Options) *Metrics {
	good := "2xx, 304, and the 404 of a GET or HEAD"
	if o.Proxy {
		good = "any answer of the upstream below 500"
	}
	m := &Metrics{
		callers:   callers{seed: maphash.MakeSeed()},
		registry:  prometheus.NewRegistry(),
		proxy:     o.Proxy,
		requests:  counters("requests_total", "Answered requests, shed and refused ones included.", "strategy", "method", "code"),
		durations: newHistograms("request_duration_seconds", "Time from the arrival of a request to its answer. The outcome is ok for "+good+".", latencyBuckets, nanoseconds, "strategy", "method", "outcome"),
		submitted: counters("tasks_submitted_total", "Tasks submitted to the queue.", "strategy"),
		run:       counters("tasks_run_total", "Tasks that were run. At rest, those submitted are those run and those shed.", "strategy"),
		waits:     newHistograms("queue_wait_seconds", "Time that a task waited in the queue before it was run, 0 if a worker was idle.", latencyBuckets, nanoseconds, "strategy"),
		shed:      counters("shed_total", "Tasks that were shed, by reason.", "strategy", "reason"),
		wouldShed: counters("would_shed_total", "Tasks that the strategy would have shed but for the mode observe, by reason; late are those that were answered later than the objective.", "strategy", "reason"),
		within:    counters("requests_within_objective_total", "Requests whose outcome was ok within the objective in force when they were answered.", "strategy"),
		lateWrong: counters("late_wrong_total", "Tasks that the strategy would have refused as late, and that were answered in time: of a hundred of those, one is served to see.", "strategy"),
		batches:   newHistograms("commit_batch_size", "Writes that were committed to the store together.", batchBuckets, items, "strategy"),
		switches: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "strategy_switches_total", Help: "Times that the strategy was switched while running.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "What was built, as labels. Always 1.",
		ConstLabels: prometheus.Labels{"version": o.Version, "commit": o.Commit, "goversion": runtime.Version()},
	})
	build.Set(1)
	state := func(name, help string, value func(strategies.ObjectiveState) time.Duration) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, func() float64 {
			return max(0, value(m.objective.Load().State()).Seconds())
		})
	}
	fsyncs := newHistograms("store_wal_fsync_duration_seconds", "Time to sync the store's log to the disk.", storeBuckets, nanoseconds)
	m.fsyncs, m.embedded = fsyncs.with(), fsyncs
	operated := newHistograms("store_operation_duration_seconds", "Time that the store took for an operation: get, commit (a batch of writes becomes visible), sync (until it is durable), range (one turn).", storeBuckets, nanoseconds, "store", "operation")
	for i, operation := range operations {
		m.operations[i] = operated.with(o.Store, operation)
	}
	if o.Proxy {
		m.routes = newHistograms("route_duration_seconds", "Time from the arrival of a request to its answer, by the names in SPILLWAY_PROXY_ROUTES.", latencyBuckets, nanoseconds, "route", "outcome")
		m.registry.MustRegister(m.routes)
		m.SetRoutes(o.Routes)
	}
	m.objective.Store(new(strategies.Objective))
	m.left = newHistograms("left", "", latencyBuckets, nanoseconds).with()
	m.strategies.Store(new(map[string]*strategy))

	if !o.Proxy {
		m.registry.MustRegister(m.batches, operated)
	}
	m.registry.MustRegister(
		m.requests, m.durations, m.submitted, m.run, m.waits, m.shed, m.wouldShed, m.within, m.lateWrong, m.switches,
		build,
		state("slo_seconds", "The latency objective that is set, 0 if none is.", func(s strategies.ObjectiveState) time.Duration { return s.Set }),
		state("objective_seconds", "The latency objective in force, 0 if nobody is ever late.", func(s strategies.ObjectiveState) time.Duration { return s.InForce }),
		// The times of the scheduler and the collector tell a slow store from a
		// busy machine.
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsScheduler, collectors.MetricsGC)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// SetRoutes changes Options.Routes. Those that stay keep their figures.
func (m *Metrics) SetRoutes(names []string) {
	byRoute, kept := map[string][served.Outcomes]*histogram{}, map[*histogram]bool{}
	if len(names) > 0 {
		names = append(slices.Clip(names), "other")
	}
	for _, route := range names {
		var of [served.Outcomes]*histogram
		for i := range of {
			of[i] = m.routes.with(route, served.Outcome(i).String())
			kept[of[i]] = true
		}
		byRoute[route] = of
	}
	m.byRoute.Store(&byRoute)
	m.routes.keep(kept)
}

// Handler serves the metrics to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.InstrumentMetricHandler(m.registry, promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
}

// The classic buckets. Prometheus servers that take native histograms have no
// need of them.
var (
	latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	storeBuckets   = []float64{.000001, .0000025, .000005, .00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
	batchBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}
