package lab

import (
	"fmt"
	"slices"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Metric is a figure that a run yields.
type Metric struct {
	// Name is the key in Group.Metrics.
	Name string
	// Title is what people read.
	Title string
	// Unit is that of the values: "1/s", "ms", "us", "%", or "" for a
	// number. Percentages are 0 to 100.
	Unit string
	// Wanted says that more of it is better.
	Wanted bool

	of figure
}

// figure takes a figure from a result; false if it was not measured.
type figure func(*result.Result) (v float64, measured bool)

// Metrics lists the metrics, in the order in which they are shown.
var Metrics = []Metric{
	{"offered_rps", "offered", "1/s", false, always(func(r *result.Result) float64 { return r.OfferedRPS })},
	{"completed_rps", "answered", "1/s", false, always(func(r *result.Result) float64 { return r.CompletedRPS })},
	{"served_rps", "served", "1/s", true, always(func(r *result.Result) float64 { return r.ServedRPS })},
	{"goodput_rps", "goodput", "1/s", true, always(func(r *result.Result) float64 { return r.GoodputRPS })},
	{ImportantGood, "good of the important", "%", true, important},
	// From when a request was first sent, not from when it should have been.
	{SentGoodput, "goodput, as the service sees it", "1/s", true, always(func(r *result.Result) float64 { return r.SentGoodputRPS })},
	{"latency_p50_ms", "p50", "ms", false, latency(50)},
	{"latency_p99_ms", "p99", "ms", false, latency(99)},
	{"latency_p99_9_ms", "p99.9", "ms", false, latency(99.9)},
	{"served_p50_ms", "served p50", "ms", false, served(50)},
	{"served_p99_ms", "served p99", "ms", false, served(99)},
	{"served_p99_9_ms", "served p99.9", "ms", false, served(99.9)},
	{"server_cpu_us", "server CPU per answer", "us", false, server(func(r *result.Result) *float64 { return r.ServerCPUMicros })},
	{"server_cpu_served_us", "server CPU per served request", "us", false, server(func(r *result.Result) *float64 { return r.ServerCPUServedMicros })},
	// Answered with what does not serve, sheds included.
	{"non2xx_percent", "non-2xx", "%", false, share(refused)},
	{"shed_percent", "shed", "%", false, share(func(r *result.Result) int64 { return result.Sum(r.Shed) })},
	{"errors_percent", "errors", "%", false, share(func(r *result.Result) int64 { return result.Sum(r.Errors) })},
	// How long after their time requests left the generator.
	{"generator_late_p99_ms", "generator late, p99", "ms", false, always(func(r *result.Result) float64 { return r.Lateness.P99 })},
	// Where clients try again.
	{"retries_per_request", "retries per request", "", false, retries},
}

// MetricNamed returns the metric of that name.
func MetricNamed(name string) (Metric, bool) {
	i := slices.IndexFunc(Metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return Metrics[i], true
}

func always(f func(*result.Result) float64) figure {
	return func(r *result.Result) (float64, bool) { return f(r), true }
}

// latency and served take a percentile, unless it is a guess.
func latency(percentile float64) figure {
	return func(r *result.Result) (float64, bool) {
		ms, known := r.Latency.At(percentile)
		return ms, known && r.Requests > 0
	}
}

func served(percentile float64) figure {
	return func(r *result.Result) (float64, bool) {
		ms, known := r.ServedLatency.At(percentile)
		return ms, known && r.Served() > 0
	}
}

func server(f func(*result.Result) *float64) figure {
	return func(r *result.Result) (float64, bool) {
		if v := f(r); v != nil {
			return *v, true
		}
		return 0, false
	}
}

// important is of the requests of all priorities but the least.
func important(r *result.Result) (float64, bool) {
	var sum, least result.Share
	for priority := range len(workload.Priorities{}) {
		if share, ok := r.Shares[fmt.Sprintf("priority %d", priority)]; ok {
			sum, least = sum.Add(least), share
		}
	}
	return sum.GoodPercent(), sum.Requests > 0
}

func retries(r *result.Result) (float64, bool) {
	if r.Retries == nil {
		return 0, false
	}
	return float64(*r.Retries) / float64(max(r.Requests, 1)), r.Requests > 0
}

func share(f func(*result.Result) int64) figure {
	return func(r *result.Result) (float64, bool) {
		return 100 * float64(f(r)) / float64(max(r.Requests, 1)), r.Requests > 0
	}
}

func refused(r *result.Result) int64 { return result.Sum(r.Status) - r.Served() }

// Summarize returns the metrics of the results of one group by repetition, nil where
// there is none.
func Summarize(results []*result.Result) map[string]Summary {
	summaries := make(map[string]Summary, len(Metrics))
	for _, m := range Metrics {
		var values []float64
		var repetitions []int
		for i, r := range results {
			if r == nil {
				continue
			}
			if v, ok := m.of(r); ok {
				values, repetitions = append(values, v), append(repetitions, i)
			}
		}
		if len(values) > 0 {
			s := summary(values)
			if repetitions[len(values)-1] >= len(values) {
				s.Repetitions = repetitions
			}
			summaries[m.Name] = s
		}
	}
	return summaries
}
