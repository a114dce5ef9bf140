package result

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Assertion is a condition that a result has to meet, such as p99<50ms.
type Assertion struct {
	text   string
	metric metric
	holds  func(is, want float64) bool
	want   float64
	share  bool // want is a share, and not a number
}

// metric is something that can be asserted.
type metric struct {
	name string
	unit unit
	of   func(*Result) reading
}

// reading is a metric of a result.
type reading struct {
	value float64
	whole float64 // what a percentage is taken of
	why   string  // the result does not have it
	doubt string  // the value is but a guess
}

type unit uint8

const (
	unitDuration unit = iota // milliseconds
	unitRate                 // requests a second
	unitCount
)

// assertable are the metrics other than latencies.
var assertable = []metric{
	rateMetric("goodput", func(r *Result) float64 { return r.GoodputRPS }),
	rateMetric("completed", func(r *Result) float64 { return r.CompletedRPS }),
	countMetric("errors", func(r *Result) int64 { return Sum(r.Errors) }),
	countMetric("shed", func(r *Result) int64 { return Sum(r.Shed) }),
	countMetric("non2xx", func(r *Result) (n int64) {
		for status, count := range r.Status {
			if !strings.HasPrefix(status, "2") {
				n += count
			}
		}
		return n
	}),
	{"server_cpu", unitDuration, func(r *Result) reading {
		if r.ServerCPUMicros == nil {
			return reading{why: "was not measured, which takes --admin"}
		}
		return reading{value: *r.ServerCPUMicros / 1000}
	}},
}

func rateMetric(name string, of func(*Result) float64) metric {
	return metric{name, unitRate, func(r *Result) reading { return reading{value: of(r), whole: r.OfferedRPS} }}
}

// countMetric is a number of requests. Where no request was made, none of them
// failed, but nothing was shown either.
func countMetric(name string, of func(*Result) int64) metric {
	return metric{name, unitCount, func(r *Result) reading {
		if r.Requests == 0 {
			return reading{why: "is not known: no request was made"}
		}
		return reading{value: float64(of(r)), whole: float64(r.Requests)}
	}}
}

// Sum returns how many requests there are under all names.
func Sum[K comparable](counts map[K]int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// latencyMetric returns the metric of a name such as p99.9, served_p50, mean or max.
func latencyMetric(name string) (metric, bool) {
	figure, served := strings.CutPrefix(name, "served_")
	histogram, what := (*Result).Histogram, "answered"
	if served {
		histogram, what = (*Result).ServedHistogram, "served"
	}
	number, found := strings.CutPrefix(figure, "p")
	number = strings.Replace(number, "_", ".", 1) // as in the JSON
	percentile, err := strconv.ParseFloat(number, 64)
	isPercentile := found && err == nil && strings.Trim(number, "0123456789.") == "" && percentile > 0 && percentile < 100
	if !isPercentile && figure != "mean" && figure != "max" {
		return metric{}, false
	}
	return metric{name, unitDuration, func(r *Result) (is reading) {
		h, err := histogram(r)
		switch {
		case err != nil:
			return reading{why: "is not known: " + err.Error()}
		case h.TotalCount() == 0:
			return reading{why: "is not known: no request was " + what}
		case figure == "mean":
			return reading{value: h.Mean() / 1000}
		case figure == "max":
			return reading{value: float64(h.Max()) / 1000}
		case !known(percentile, h.TotalCount()):
			is.doubt = fmt.Sprintf(", a guess: fewer than 10 of %d requests are beyond it", h.TotalCount())
		}
		is.value = float64(h.ValueAtQuantile(percentile)) / 1000
		return is
	}}, true
}

var operators = []struct {
	text  string
	holds func(is, want float64) bool
}{
	{"<=", func(is, want float64) bool { return is <= want }},
	{">=", func(is, want float64) bool { return is >= want }},
	{"==", func(is, want float64) bool { return is == want }},
	{"<", func(is, want float64) bool { return is < want }},
	{">", func(is, want float64) bool { return is > want }},
}

// ParseAssertion reads a metric, an operator and a value:
//
//	p99<50ms  p99.9<=0.2s  mean<5ms  max<1s   latency of all requests; any percentile
//	served_p99<20ms                           latency of good answers, however late
//	goodput>=1000  completed>99%              requests per second, or a share of those offered
//	errors==0  shed<1%  non2xx<0.1%           requests, or a share of all of them
//	server_cpu<60us                           the service's CPU time per request
//
// Non2xx counts answers, 404 among them. An assertion on what was not measured fails.
func ParseAssertion(s string) (Assertion, error) {
	at := strings.IndexAny(s, "<>=")
	for _, op := range operators {
		if at < 0 || !strings.HasPrefix(s[at:], op.text) {
			continue
		}
		name, value := strings.TrimSpace(s[:at]), strings.TrimSpace(s[at+len(op.text):])
		m, found := latencyMetric(name)
		if i := slices.IndexFunc(assertable, func(m metric) bool { return m.name == name }); i >= 0 {
			m, found = assertable[i], true
		}
		if !found {
			return Assertion{}, badAssertion(s, "one of the metrics "+metricNames())
		}
		want, share, allowed := m.parse(value)
		if allowed != "" {
			return Assertion{}, badAssertion(s, allowed+" as the value of "+name)
		}
		return Assertion{text: name + op.text + value, metric: m, holds: op.holds, want: want, share: share}, nil
	}
	return Assertion{}, badAssertion(s, "a metric, one of < <= > >= == and a value, such as p99<50ms")
}

func badAssertion(s, want string) error { return fmt.Errorf("bad assertion %.100q: want %s", s, want) }

func metricNames() string {
	names := []string{"p50", "p99", "p99.9 (or another percentile)", "served_p99 (or another)", "mean", "max", "served_mean", "served_max"}
	for _, m := range assertable {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// parse reads a value of the metric; allowed says what it should have been.
func (m metric) parse(s string) (value float64, share bool, allowed string) {
	if m.unit == unitDuration {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, false, "a duration such as 50ms or 0.2s"
		}
		return milliseconds(d), false, ""
	}
	number, share := strings.CutSuffix(s, "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, false, "a number such as 1000, or a percentage such as 0.1%,"
	}
	return value, share, ""
}

// String returns the assertion as ParseAssertion reads it.
func (a Assertion) String() string { return a.text }

// Check reports whether r meets the assertion, and says so in words: "p99<50ms fails: it is
// 61.3 ms".
func (a Assertion) Check(r *Result) (ok bool, said string) {
	found := a.metric.of(r)
	is := found.value
	if found.why != "" {
		return false, fmt.Sprintf("%s fails: it %s", a.text, found.why)
	}
	var actual string
	switch {
	case a.share && found.whole == 0:
		return false, a.text + " fails: no request was made"
	case a.share:
		is = 100 * is / found.whole
		actual = formatFloat(is) + "%"
	case a.metric.unit == unitDuration && is < 1:
		actual = formatFloat(1000*is) + " us"
	case a.metric.unit == unitDuration:
		actual = formatFloat(is) + " ms"
	case a.metric.unit == unitRate:
		actual = formatFloat(is) + "/s"
	default:
		actual = formatFloat(is)
	}
	verdict := "fails"
	if ok = a.holds(is, a.want); ok {
		verdict = "holds"
	}
	return ok, fmt.Sprintf("%s %s: it is %s%s", a.text, verdict, actual, found.doubt)
}

// formatFloat writes v with at least four digits, one of them after the point if
// it is not whole, and no exponent.
func formatFloat(v float64) string {
	decimals := 0
	if v != math.Trunc(v) && v > 0 {
		decimals = max(1, 3-int(math.Floor(math.Log10(v))))
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
