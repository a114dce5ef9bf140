package observe

import (
	"bytes"

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
