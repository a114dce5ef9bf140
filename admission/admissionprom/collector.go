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
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/internal/instruments"
	"github.com/spillway-go/spillway/strategies"
)

// Collector collects the metrics of one controller. It is safe for concurrent use.
type Collector struct {
	controller *admission.Controller
	active     sync.Map // by the name of a strategy, *series

	counters [len(instruments.Counters)]*prometheus.CounterVec
	times    [len(instruments.Times)]*prometheus.HistogramVec
	counted  []prometheus.Collector // all of these
	gauges   [len(instruments.Gauges)]*prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// series are those of a strategy without a reason, so that a request looks up no labels.
type series struct {
	counters [instruments.Shed]prometheus.Counter
	times    [len(instruments.Times)]prometheus.Observer
}

// name returns the name of an instrument in Prometheus, without the namespace.
func name(i instruments.Instrument, unit string) string {
	return strings.ReplaceAll(i.Name, ".", "_") + unit
}

// New returns a controller as admission.New does, and the collector of its metrics. The
// hooks of o are called as well.
func New(o admission.Options) (*admission.Controller, *Collector, error) {
	const namespace = "spillway"
	c := &Collector{}
	for i, of := range instruments.Counters {
		labels := []string{"strategy", "reason"}
		if instruments.Counter(i) < instruments.Shed {
			labels = labels[:1]
		}
		c.counters[i] = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name(of, "_total"), Help: of.Help}, labels)
		c.counted = append(c.counted, c.counters[i])
	}
	for i, of := range instruments.Times {
		c.times[i] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name(of, "_seconds"), Help: of.Help,
			Buckets:                     instruments.Buckets(), // servers that take native histograms have no need of them
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"strategy"})
		c.counted = append(c.counted, c.times[i])
	}
	for i, g := range instruments.Gauges {
		unit, labels := "", []string{"strategy"}
		if g.Kind != instruments.PerStrategy {
			labels = nil
		}
		switch {
		case g.Kind == instruments.Sum:
			unit = "_total"
		case g.Unit == "s":
			unit = "_seconds"
		}
		c.gauges[i] = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name(g.Instrument, unit)), g.Help, labels, nil)
	}
	instruments.Tell(&o, sink{c})
	var err error
	if c.controller, err = admission.New(o); err != nil {
		return nil, nil, err
	}
	c.declare(o.Spec.Name, o.Spec.Reasons)
	return c.controller, c, nil
}

// declare makes the series of these reasons, so that they are there before anything is turned away.
func (c *Collector) declare(strategy string, reasons []strategies.Reason) {
	for _, r := range reasons {
		c.counters[instruments.Shed].WithLabelValues(strategy, r.String())
		c.counters[instruments.WouldShed].WithLabelValues(strategy, r.String())
	}
}

// of returns the series of a strategy, and makes those, and those of every reason that
// all strategies have, if they are new.
func (c *Collector) of(strategy string) *series {
	if s, ok := c.active.Load(strategy); ok {
		return s.(*series)
	}
	c.declare(strategy, strategies.Reasons())
	s := new(series)
	for i := range s.counters {
		s.counters[i] = c.counters[i].WithLabelValues(strategy)
	}
	for i := range s.times {
		s.times[i] = c.times[i].WithLabelValues(strategy)
	}
	made, _ := c.active.LoadOrStore(strategy, s)
	return made.(*series)
}

// sink is a Collector, as the controller's hooks see it.
type sink struct{ *Collector }

// Count implements instruments.Sink.
func (c sink) Count(i instruments.Counter, strategy string, reason strategies.Reason) {
	if i >= instruments.Shed {
		c.counters[i].WithLabelValues(strategy, reason.String()).Inc()
		return
	}
	c.of(strategy).counters[i].Inc()
}

// Time implements instruments.Sink.
func (c sink) Time(i instruments.Time, strategy string, took time.Duration) {
	c.of(strategy).times[i].Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.gauges {
		ch <- d
	}
	for _, m := range c.counted {
		m.Describe(ch)
	}
}

// Collect implements prometheus.Collector. Gauges are those of the active strategy only.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.controller.Stats()
	c.of(s.Strategy)
	for i, g := range instruments.Gauges {
		v, ok := g.Of(&s)
		switch {
		case ok && g.Kind == instruments.PerStrategy:
			ch <- prometheus.MustNewConstMetric(c.gauges[i], prometheus.GaugeValue, v, s.Strategy)
		case ok && g.Kind == instruments.Plain:
			ch <- prometheus.MustNewConstMetric(c.gauges[i], prometheus.GaugeValue, v)
		case ok:
			ch <- prometheus.MustNewConstMetric(c.gauges[i], prometheus.CounterValue, v)
		}
	}
	for _, m := range c.counted {
		m.Collect(ch)
	}
}
