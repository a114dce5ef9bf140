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
	text  string
	unit  string // of the figure: "ms", "us", "1/s", or "%" for a number of requests
	of    func(*Result) reading
	holds func(is, want float64) bool
	want  float64
	share bool // want is a share, and not a number
}

// reading is a figure of a result.
type reading struct {
	value float64 // milliseconds, if it is a time
	whole float64 // what a percentage is taken of
	why   string  // the result does not have it
	doubt string  // the value is but a guess
}

// reading returns what an assertion compares.
func (f *Figure) reading(r *Result) reading {
	v, whole := f.of(r)
	switch {
	case math.IsNaN(v) && f.Unit == "us":
		return reading{why: "was not measured, which takes --admin"}
	case math.IsNaN(v):
		return reading{why: "is not known: no request was made"}
	case f.Unit == "us":
		v /= 1000
	}
	return reading{value: v, whole: whole}
}

// asserted returns what reads the figure of a name in its unit; nil if there is none.
func asserted(name string) (of func(*Result) reading, unit string) {
	if i := slices.IndexFunc(Figures, func(f Figure) bool { return f.asserted == name }); i >= 0 && name != "" {
		return Figures[i].reading, Figures[i].Unit
	} else if name == non2xx.asserted {
		return non2xx.reading, non2xx.Unit
	}
	return latencyOf(name), "ms"
}

// latencyOf reads a latency such as p99.9, served_p50, mean or max; nil if it is none.
func latencyOf(name string) func(*Result) reading {
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
		return nil
	}
	return func(r *Result) (is reading) {
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
	}
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
		of, unit := asserted(name)
		if of == nil {
			return Assertion{}, badAssertion(s, "one of the metrics "+assertable())
		}
		want, share, allowed := parseWanted(unit, value)
		if allowed != "" {
			return Assertion{}, badAssertion(s, allowed+" as the value of "+name)
		}
		if share && (want > 100 || want == 100 && op.text == ">") {
			return Assertion{}, badAssertion(s, "a percentage of at most 100%, and nothing is above 100%")
		}
		return Assertion{name + op.text + value, unit, of, op.holds, want, share}, nil
	}
	return Assertion{}, badAssertion(s, "a metric, one of < <= > >= == and a value, such as p99<50ms")
}

func badAssertion(s, want string) error { return fmt.Errorf("bad assertion %.100q: want %s", s, want) }

func assertable() string {
	names := []string{"p50", "p99", "p99.9 (or another percentile)", "served_p99 (or another)", "mean", "max", "served_mean", "served_max"}
	for _, f := range append(slices.Clone(Figures), non2xx) {
		if f.asserted != "" {
			names = append(names, f.asserted)
		}
	}
	return strings.Join(names, ", ")
}

// parseWanted reads a value of a unit; allowed says what it should have been.
func parseWanted(unit, s string) (value float64, share bool, allowed string) {
	if unit == "ms" || unit == "us" {
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

// Check reports whether r meets the assertion, and says so in words: "p99<50ms fails: it is
// 61.3 ms".
func (a Assertion) Check(r *Result) (ok bool, said string) {
	found := a.of(r)
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
	case (a.unit == "ms" || a.unit == "us") && is < 1:
		actual = formatFloat(1000*is) + " us"
	case a.unit == "ms" || a.unit == "us":
		actual = formatFloat(is) + " ms"
	case a.unit == "1/s":
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
