package versus

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
)

// metricsPrefix is that of the service's metrics.
const metricsPrefix = "spillway_"

// read returns the series of metrics of the service, by their names and labels,
// without the prefix. Of a contestant that does not have them there are none.
func (r *rival) read(ctx context.Context, names []string) (map[string]float64, error) {
	if len(names) == 0 {
		return nil, nil
	}
	all, err := r.server.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	series := map[string]float64{}
	for name, value := range all {
		name, ours := strings.CutPrefix(name, metricsPrefix)
		if ours && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(name, n) }) {
			series[name] = value
		}
	}
	return series, nil
}

// grow adds to t by how much the series have grown since before.
func (r *rival) grow(ctx context.Context, names []string, before map[string]float64, t *tally) error {
	after, err := r.read(ctx, names)
	if err != nil {
		return err
	}
	for series, value := range after {
		if t.grown == nil {
			t.grown = map[string]float64{}
		}
		t.grown[series] += value - before[series]
	}
	return nil
}

// mean returns the mean of what a histogram has counted; 0 if that is nothing.
func mean(grown map[string]float64, histogram string) float64 {
	if n := grown[histogram+"_count"]; n > 0 {
		return grown[histogram+"_sum"] / n
	}
	return 0
}

// median returns that of what a histogram has counted, as if what is between two
// bounds were spread evenly; 0 if nothing is counted.
func median(grown map[string]float64, histogram string) float64 {
	type bucket struct{ bound, upTo float64 }
	var buckets []bucket
	for series, n := range grown {
		if rest, ok := strings.CutPrefix(series, histogram+`_bucket{le="`); ok {
			if bound, err := strconv.ParseFloat(strings.TrimSuffix(rest, `"}`), 64); err == nil && !math.IsInf(bound, 0) {
				buckets = append(buckets, bucket{bound, n})
			}
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return int(math.Copysign(1, a.bound-b.bound)) })
	half, last := grown[histogram+"_count"]/2, bucket{}
	if half == 0 {
		return 0
	}
	for _, b := range buckets {
		if b.upTo >= half {
			return last.bound + (b.bound-last.bound)*(half-last.upTo)/(b.upTo-last.upTo)
		}
		last = b
	}
	return last.bound
}
