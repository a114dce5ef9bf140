package result

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Figure is a figure that a run yields, as comparisons, reports and assertions call it.
type Figure struct {
	// Name is what comparison.json calls it, and Title what people read.
	Name, Title string
	// Unit is that of the values: "1/s", "ms", "us", "%", or "" for a
	// number. Percentages are 0 to 100.
	Unit string
	// Wanted says that more of it is better.
	Wanted bool
	// Column is that of a report's tables, which several figures may share; empty for none.
	// Brief says that a terminal shows it too.
	Column string
	Brief  bool

	// asserted is its name in assertions, empty if there is none.
	asserted string
	// of returns the value, NaN if it was not measured, and what a percentage is taken of.
	of func(*Result) (value, whole float64)
}

// The figures that are named elsewhere.
const (
	Goodput = "goodput_rps"
	// SentGoodput is goodput by a clock that begins when a request is first sent. It is of the
	// answers that came in the window, so that it differs a little from Goodput anyway.
	SentGoodput = "sent_goodput_rps"
	// ImportantGood is which share of the requests was good that are more important than
	// the least important ones of their load.
	ImportantGood = "important_good_percent"
	ServedP99     = "served_p99_ms"
	// ServerCPUServed is the server's CPU time per served request.
	ServerCPUServed = "server_cpu_served_us"
)

// Figures lists the figures, in the order in which they are shown.
var Figures = []Figure{
	{Name: "offered_rps", Title: "offered", Unit: "1/s", Column: "offered", of: rate(func(r *Result) float64 { return r.OfferedRPS })},
	{Name: "completed_rps", Title: "answered", Unit: "1/s", asserted: "completed", of: rate(func(r *Result) float64 { return r.CompletedRPS })},
	{Name: "served_rps", Title: "served", Unit: "1/s", Wanted: true, Column: "served", of: rate(func(r *Result) float64 { return r.ServedRPS })},
	{Name: Goodput, Title: "goodput", Unit: "1/s", Wanted: true, Column: "goodput", Brief: true, asserted: "goodput",
		of: rate(func(r *Result) float64 { return r.GoodputRPS })},
	{Name: SentGoodput, Title: "goodput, as the service sees it", Unit: "1/s", Wanted: true, Column: "sent", Brief: true,
		of: rate(func(r *Result) float64 { return r.SentGoodputRPS })},
	{Name: ImportantGood, Title: "good of the important", Unit: "%", Wanted: true, Column: "important", Brief: true, of: important},
	// Answered with what does not serve, sheds included.
	{Name: "non2xx_percent", Title: "non-2xx", Unit: "%", Column: "non2xx", Brief: true, of: count(func(r *Result) int64 { return Sum(r.Status) - r.Served() })},
	{Name: "latency_p50_ms", Title: "p50", Unit: "ms", Column: "latency", of: latency(50)},
	{Name: "latency_p99_ms", Title: "p99", Unit: "ms", Column: "latency", of: latency(99)},
	{Name: "latency_p99_9_ms", Title: "p99.9", Unit: "ms", Column: "latency", of: latency(99.9)},
	{Name: "served_p50_ms", Title: "served p50", Unit: "ms", Column: "latency of the served", Brief: true, of: served(50)},
	{Name: ServedP99, Title: "served p99", Unit: "ms", Column: "latency of the served", Brief: true, of: served(99)},
	{Name: "served_p99_9_ms", Title: "served p99.9", Unit: "ms", Column: "latency of the served", Brief: true, of: served(99.9)},
	{Name: "server_cpu_us", Title: "server CPU per answer", Unit: "us", asserted: "server_cpu", of: measured(func(r *Result) *float64 { return r.ServerCPUMicros })},
	{Name: ServerCPUServed, Title: "server CPU per served request", Unit: "us", Column: "cpu", Brief: true,
		of: measured(func(r *Result) *float64 { return r.ServerCPUServedMicros })},
	{Name: "shed_percent", Title: "shed", Unit: "%", Column: "shed", asserted: "shed", of: count(func(r *Result) int64 { return Sum(r.Shed) })},
	{Name: "errors_percent", Title: "errors", Unit: "%", Column: "errors", asserted: "errors", of: count(func(r *Result) int64 { return Sum(r.Errors) })},
	// How long after their time requests left the generator.
	{Name: "generator_late_p99_ms", Title: "generator late, p99", Unit: "ms", of: rate(func(r *Result) float64 { return r.Lateness.P99 })},
	// Where clients try again.
	{Name: "retries_per_request", Title: "retries per request", Column: "retries", of: func(r *Result) (float64, float64) {
		if r.Retries == nil || r.Requests == 0 {
			return math.NaN(), 0
		}
		return float64(*r.Retries) / float64(r.Requests), 0
	}},
}

// non2xx is asserted alone: it counts a 404 to a get, whoever takes that for an answer.
var non2xx = Figure{Unit: "%", asserted: "non2xx", of: count(func(r *Result) (n int64) {
	for status, count := range r.Status {
		if !strings.HasPrefix(status, "2") {
			n += count
		}
	}
	return n
})}

// FigureNamed returns the figure of that name, of which there must be one.
func FigureNamed(name string) *Figure {
	return &Figures[slices.IndexFunc(Figures, func(f Figure) bool { return f.Name == name })]
}

// In returns the figure of a result; false if it was not measured.
func (f *Figure) In(r *Result) (float64, bool) {
	v, whole := f.of(r)
	if f.Unit == "%" {
		v = 100 * v / whole
	}
	return v, !math.IsNaN(v)
}

// Sum returns how many requests there are under all names.
func Sum[K comparable](counts map[K]int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

func rate(of func(*Result) float64) func(*Result) (float64, float64) {
	return func(r *Result) (float64, float64) { return of(r), r.OfferedRPS }
}

// count is a number of requests. Where no request was made, none of them failed, but nothing
// was shown either.
func count(of func(*Result) int64) func(*Result) (float64, float64) {
	return func(r *Result) (float64, float64) {
		if r.Requests == 0 {
			return math.NaN(), 0
		}
		return float64(of(r)), float64(r.Requests)
	}
}

// latency and served take a percentile, unless it is a guess.
func latency(percentile float64) func(*Result) (float64, float64) {
	return func(r *Result) (float64, float64) { return r.Latency.sure(percentile, r.Requests), 0 }
}

func served(percentile float64) func(*Result) (float64, float64) {
	return func(r *Result) (float64, float64) { return r.ServedLatency.sure(percentile, r.Served()), 0 }
}

func (p Percentiles) sure(percentile float64, of int64) float64 {
	if ms, known := p.At(percentile); known && of > 0 {
		return ms
	}
	return math.NaN()
}

func measured(of func(*Result) *float64) func(*Result) (float64, float64) {
	return func(r *Result) (float64, float64) {
		if v := of(r); v != nil {
			return *v, 0
		}
		return math.NaN(), 0
	}
}

// important is of the requests of all priorities but the least.
func important(r *Result) (good, requests float64) {
	var sum, least Share
	for priority := range len(workload.Priorities{}) {
		if share, ok := r.Shares[fmt.Sprintf("priority %d", priority)]; ok {
			sum, least = sum.Add(least), share
		}
	}
	return float64(sum.Good), float64(sum.Requests)
}
