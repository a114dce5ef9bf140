package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/spillway-go/spillway/loadtest/lab"
)

// num is a figure of a chart: five digits are more than a chart can show.
type num float64

// MarshalJSON writes null for what no axis has a place for.
func (n num) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'e', 4, 64), 64)
	return strconv.AppendFloat(nil, rounded, 'f', -1, 64), err
}

// short writes a figure with about three digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a >= 1e9:
		return digits(v/1e9) + " G"
	case a >= 1e6:
		return digits(v/1e6) + " M"
	case a >= 1e4:
		return digits(v/1e3) + " k"
	default:
		return digits(v)
	}
}

// digits writes three digits of v, whose integer part is kept whole.
func digits(v float64) string {
	decimals := 0
	if a := math.Abs(v); a > 0 && a < 100 {
		decimals = min(4, 2-int(math.Floor(math.Log10(a))))
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	switch {
	case text == "-0":
		return "0"
	case decimals == 0 && math.Round(v) >= 1000:
		return humanize.Comma(int64(math.Round(v)))
	}
	return text
}

// unit is how people write a unit of result.Figures.
func unit(u string) string {
	switch u {
	case "us":
		return "µs"
	case "1/s":
		return "/s"
	default:
		return u
	}
}

// amount writes a figure with its unit.
func amount(v float64, u string) string {
	switch u := unit(u); u {
	case "", "/s", "%":
		return short(v) + u
	case "bytes":
		return humanize.IBytes(uint64(v))
	default:
		return short(v) + " " + u
	}
}

// spread writes the smallest and the largest value of a summary; nothing if they
// are the same to three digits.
func spread(s lab.Summary) string {
	low, high := short(s.Low), short(s.High)
	if low == high {
		return ""
	}
	if number, suffix, ok := strings.Cut(high, " "); ok && strings.HasSuffix(low, " "+suffix) {
		return strings.TrimSuffix(low, " "+suffix) + "–" + number + " " + suffix
	}
	return low + "–" + high
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

func list(names []string) string { return english.WordSeries(names, "and") }

// count writes a number of things; nothing if there are none.
func count(n int, one, many string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, english.PluralWord(n, one, many))
}

// enumerate writes the texts that are not empty.
func enumerate(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), ", ")
}

// around writes text between two others; nothing if it is empty.
func around(before, text, after string) string {
	if text == "" {
		return ""
	}
	return before + text + after
}
