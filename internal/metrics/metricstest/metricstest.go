// Package metricstest reads what /metrics answers, for tests.
package metricstest

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Read returns the samples of the text format of Prometheus, in no order. A histogram
// is there as its buckets, its sum and its count.
func Read(text string) (model.Vector, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	return expfmt.ExtractSamples(new(expfmt.DecodeOptions), slices.Collect(maps.Values(families))...)
}

// Series names the series of a sample as it stands in the text: name{a="b",c="d"}.
func Series(s *model.Sample) string { return strings.ReplaceAll(s.Metric.String(), `", `, `",`) }
