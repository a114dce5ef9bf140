package versus

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metricsPrefix is that of the service's metrics.
const metricsPrefix = "spillway_"

// read returns the series of metrics of the service, by their names and labels,
// without the prefix. Of a contestant that does not have them there are none.
func (r *rival) read(ctx context.Context, names []string) (map[string]float64, error) {
	if len(names) == 0 {
		return nil, nil
	}
	all, err := r.scrape(ctx)
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

// scrape returns all series of the contestant, by their names and labels.
func (r *rival) scrape(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server.Admin()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Close = true // no connection stays behind
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("/metrics: %s", answer.Status)
	}
	return parseMetrics(string(text)), err
}

// parseMetrics reads the text format of Prometheus without time stamps. It leaves
// out what is no number.
func parseMetrics(text string) map[string]float64 {
	series := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
			series[line[:at]] = value
		}
	}
	return series
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
