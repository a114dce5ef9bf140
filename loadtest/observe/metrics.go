package observe

import (
	"bytes"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are those of a process by their names.
type Metrics map[string]*dto.MetricFamily

// ParseMetrics reads the text format of Prometheus.
func ParseMetrics(text []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// Sum returns the sum over the labels of a counter, a gauge, or a metric whose type
// is not given; false if there is none.
func (m Metrics) Sum(name string) (total float64, ok bool) {
	for _, series := range m[name].GetMetric() {
		total += value(series)
	}
	return total, m[name] != nil
}

func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

// Histogram is what a histogram without labels has counted.
type Histogram struct {
	Count, Sum float64
	buckets    []bucket
}

type bucket struct{ bound, upTo float64 }

// Grown returns what a histogram has counted since before.
func (m Metrics) Grown(name string, before Metrics) Histogram {
	now, then := m.histogram(name), before.histogram(name)
	now.Count, now.Sum = now.Count-then.Count, now.Sum-then.Sum
	for i := range now.buckets {
		if i < len(then.buckets) {
			now.buckets[i].upTo -= then.buckets[i].upTo
		}
	}
	return now
}

func (m Metrics) histogram(name string) (h Histogram) {
	for _, series := range m[name].GetMetric() {
		from := series.GetHistogram()
		h.Count, h.Sum = float64(from.GetSampleCount()), from.GetSampleSum()
		for _, b := range from.GetBucket() {
			h.buckets = append(h.buckets, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
		}
	}
	return h
}

// Mean is 0 if nothing is counted.
func (h Histogram) Mean() float64 { return h.Sum / max(h.Count, 1) }

// Median is as if what is between two bounds were spread evenly; 0 if nothing is
// counted.
func (h Histogram) Median() float64 {
	half, last := h.Count/2, bucket{}
	at := slices.IndexFunc(h.buckets, func(b bucket) bool { return b.upTo >= half })
	if half == 0 || at < 0 {
		return 0
	}
	if at > 0 {
		last = h.buckets[at-1]
	}
	if b := h.buckets[at]; !math.IsInf(b.bound, 0) {
		return last.bound + (b.bound-last.bound)*(half-last.upTo)/(b.upTo-last.upTo)
	}
	return last.bound
}
