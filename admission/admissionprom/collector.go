// Package admissionprom exports the metrics of a controller of package admission to
// Prometheus, under the names that Spillway's own queue uses.
//
//	ctl, metrics, err := admissionprom.New(admission.Options{})
//	…
//	prometheus.MustRegister(metrics)
//
// To tell several controllers of a process apart, register each with a label, by
// prometheus.WrapRegistererWith.
package admissionprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

const namespace = "spillway"

// The classic buckets are those of the service. Servers that take native histograms have
// no need of them.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

var (
	strategyInfo  = desc("strategy_info", "The active strategy, as a label. Always 1.", "strategy")
	queueDepth    = desc("queue_depth", "Requests that wait.", "strategy")
	queueCapacity = desc("queue_capacity", "Requests that may wait; absent if none ever does, or if there is no bound.", "strategy")
	queueLimit    = desc("queue_limit", "Requests that the strategy means to let wait at present; absent if it has no such limit.", "strategy")
	queuePace     = desc("queue_pace_seconds", "Time from one request let through to the next, as the strategy has measured it; absent if it measures none.", "strategy")
	workers       = desc("workers", "Places: how many requests of a cost of 1 are let through at once; absent if their number is learned in the mode observe, which holds nobody back.", "strategy")
	workersBusy   = desc("workers_busy", "Places that are not free.", "strategy")

	sloSeconds       = desc("slo_seconds", "The latency objective that is set, 0 if none is.")
	objectiveSeconds = desc("objective_seconds", "The latency objective in force, 0 if nobody is ever late.")

	concurrencyLimit   = desc("concurrency_limit", "How many places there are, as learned; absent if the number is given, or in the mode observe.", "strategy")
	concurrencyMax     = desc("concurrency_max", "The most that the learned number may be; absent if the number is given.", "strategy")
	concurrencyStuck   = desc("concurrency_stuck", "Places that are not given back, included in concurrency_limit; absent if the number is given.", "strategy")
	concurrencyPaused  = desc("concurrency_paused", "1 while the latest timed out, so that no more requests are let through than MinConcurrency or, without it, one now and then; absent if the number is given.", "strategy")
	concurrencyDropped = desc("concurrency_dropped_total", "Requests that were Dropped, of which the number is learned; absent if it is given.")
)

// Collector collects the metrics of one controller. It is safe for concurrent use.
type Collector struct {
	controller *admission.Controller
	active     sync.Map // by the name of a strategy, *series

	submitted, run, shed, wouldShed, within, lateWrong *prometheus.CounterVec
	waits, held                                        *prometheus.HistogramVec
}

var _ prometheus.Collector = (*Collector)(nil)

// series are those of a strategy, so that a request looks up no labels.
type series struct {
	submitted, run, within, lateWrong prometheus.Counter
	waits, held                       prometheus.Observer
}

// New returns a controller as admission.New does, and the collector of its metrics. The
// hooks of o are called as well.
func New(o admission.Options) (*admission.Controller, *Collector, error) {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"strategy"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	c := &Collector{
		submitted: counter("tasks_submitted_total", "Requests that have asked for places, and have got them or were turned away.", "strategy"),
		run:       counter("tasks_run_total", "Requests that have got their places.", "strategy"),
		shed:      counter("shed_total", "Requests that were turned away, by reason.", "strategy", "reason"),
		wouldShed: counter("would_shed_total", "Requests that would have been turned away but for the mode observe, by reason; late are those that were answered later than the objective.", "strategy", "reason"),
		within:    counter("requests_within_objective_total", "Requests that were Good, and answered within the objective in force then.", "strategy"),
		lateWrong: counter("late_wrong_total", "Requests that would have been turned away as late, and that were answered in time: of a hundred of those, one is let through to see.", "strategy"),
		waits:     histogram("queue_wait_seconds", "Time that a request waited for its places, 0 if it had them at once."),
		held:      histogram("held_seconds", "Time for which a request had its places."),
	}
	declared := o.Spec.Reasons
	o.Admitted = both(c.admitted, o.Admitted)
	o.Released = both(c.released, o.Released)
	o.Shed = both(c.turnedAway, o.Shed)
	var err error
	if c.controller, err = admission.New(o); err != nil {
		return nil, nil, err
	}
	for _, r := range declared {
		c.shed.WithLabelValues(o.Spec.Name, r.String())
		c.wouldShed.WithLabelValues(o.Spec.Name, r.String())
	}
	return c.controller, c, nil
}

func both(f, g func(admission.Event)) func(admission.Event) {
	if g == nil {
		return f
	}
	return func(e admission.Event) {
		f(e)
		g(e)
	}
}

// of returns the series of a strategy, and makes those, and those of every reason that
// all strategies have, if they are new.
func (c *Collector) of(strategy string) *series {
	if s, ok := c.active.Load(strategy); ok {
		return s.(*series)
	}
	for _, r := range strategies.Reasons() {
		c.shed.WithLabelValues(strategy, r.String())
		c.wouldShed.WithLabelValues(strategy, r.String())
	}
	s, _ := c.active.LoadOrStore(strategy, &series{
		submitted: c.submitted.WithLabelValues(strategy), run: c.run.WithLabelValues(strategy),
		within: c.within.WithLabelValues(strategy), lateWrong: c.lateWrong.WithLabelValues(strategy),
		waits: c.waits.WithLabelValues(strategy), held: c.held.WithLabelValues(strategy),
	})
	return s.(*series)
}

func (c *Collector) admitted(e admission.Event) {
	s := c.of(e.Strategy)
	s.submitted.Inc()
	s.run.Inc()
	s.waits.Observe(e.Waited.Seconds())
}

func (c *Collector) released(e admission.Event) {
	s := c.of(e.Strategy)
	s.held.Observe(e.Held.Seconds())
	if e.InTime {
		s.within.Inc()
	}
	if e.LateWrong {
		s.lateWrong.Inc()
	}
}

func (c *Collector) turnedAway(e admission.Event) {
	if e.Observed {
		c.wouldShed.WithLabelValues(e.Strategy, e.Reason.String()).Inc()
		return
	}
	c.of(e.Strategy).submitted.Inc()
	c.shed.WithLabelValues(e.Strategy, e.Reason.String()).Inc()
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{strategyInfo, queueDepth, queueCapacity, queueLimit, queuePace, workers, workersBusy, sloSeconds, objectiveSeconds, concurrencyLimit, concurrencyMax, concurrencyStuck, concurrencyPaused, concurrencyDropped} {
		ch <- d
	}
	for _, m := range c.counted() {
		m.Describe(ch)
	}
}

func (c *Collector) counted() []prometheus.Collector {
	return []prometheus.Collector{c.submitted, c.run, c.shed, c.wouldShed, c.within, c.lateWrong, c.waits, c.held}
}

// Collect implements prometheus.Collector. Gauges are those of the active strategy only.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.controller.Stats()
	c.of(s.Strategy)
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Strategy)
	}
	gauge(strategyInfo, 1)
	gauge(queueDepth, float64(s.Waiting))
	if s.Capacity != 0 && s.Capacity != strategies.Unbounded {
		gauge(queueCapacity, float64(s.Capacity))
	}
	if s.Limit != 0 {
		gauge(queueLimit, float64(s.Limit))
	}
	if s.Pace != 0 {
		gauge(queuePace, float64(s.Pace)/float64(time.Second))
	}
	if s.Learned == nil || s.Learned.Limit != 0 {
		gauge(workers, float64(s.Concurrency))
	}
	gauge(workersBusy, float64(s.InUse))
	seconds := func(d *prometheus.Desc, v time.Duration) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, max(0, v.Seconds()))
	}
	seconds(sloSeconds, s.Objective.Set)
	seconds(objectiveSeconds, s.Objective.InForce)
	if l := s.Learned; l != nil {
		if l.Limit != 0 {
			gauge(concurrencyLimit, float64(l.Limit))
		}
		gauge(concurrencyMax, float64(l.Max))
		gauge(concurrencyStuck, float64(l.Stuck))
		paused := 0.
		if l.Paused {
			paused = 1
		}
		gauge(concurrencyPaused, paused)
		ch <- prometheus.MustNewConstMetric(concurrencyDropped, prometheus.CounterValue, float64(l.Dropped))
	}
	for _, m := range c.counted() {
		m.Collect(ch)
	}
}
