package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/loadtest/result"
)

// The axes that several charts have.
var (
	offered     = axis{Title: "offered", Unit: "/s"}
	percentiles = axis{Title: "percentile", Scale: percentile}
	latencies   = axis{Title: "latency", Unit: "ms", Scale: logarithmic}
)

// window is the time axis of runs, until the end of the longest.
func window(runs ...*Run) axis {
	end := 0.0
	for _, r := range runs {
		end = max(end, r.Seconds)
	}
	return axis{Title: "time", Unit: "s", End: num(end)}
}

// overRates has the charts over the offered rate, for each load that was sent at
// several rates.
func (s *study) overRates(d *data) (figures []figure) {
	for _, l := range s.loads {
		rates := map[string]bool{}
		for _, g := range l.groups {
			if rate := s.Groups[g].Combination.Rate; rate != closedLoop && rate != "" {
				rates[rate] = true
			}
		}
		if len(rates) < 2 {
			continue
		}
		x, dotted := s.offered(l), " Dotted: what a service without limits would do."
		if x.Scale == logarithmic {
			dotted = ""
		}
		draw := func(title, caption, metric string, y axis, ideal bool) {
			if l.name != "" {
				title += ": " + l.name
			}
			figures = append(figures, d.add(title, caption, &chart{
				X: x, Y: y, Ideal: ideal, Series: s.lines(l, metric),
			})...)
		}
		draw("Goodput against offered rate", "Answers within the SLO."+dotted+" Bars reach from the lowest to the highest run.",
			result.Goodput, axis{Title: "goodput", Unit: "/s"}, dotted != "")
		draw("Served p99 against offered rate", "Of what was served ("+serving(string(s.Good))+"), counted from the scheduled time.",
			result.ServedP99, axis{Title: "served p99", Unit: "ms", Scale: logarithmic}, false)
	}
	return figures
}

// offered is the axis of the rates of a load: logarithmic, if what matters would
// otherwise be in a corner.
func (s *study) offered(l loadGroups) axis {
	x, low, high := offered, math.Inf(1), 0.0
	for _, line := range s.lines(l, result.Goodput) {
		low, high = min(low, float64(line.Points[0][0])), max(high, float64(line.Points[len(line.Points)-1][0]))
	}
	if low > 0 && high >= 10*low {
		x.Scale = logarithmic
	}
	return x
}

// closedLoop is the rate of a combination whose connections are never idle.
const closedLoop = "max"

// lines has a metric over the offered rate, a line for each setting.
func (s *study) lines(l loadGroups, metric string) []series {
	lines := make([]series, len(s.settings))
	for _, i := range l.groups {
		g := s.Groups[i]
		v, measured := g.Metrics[metric]
		if !measured || g.Combination.Rate == closedLoop {
			continue
		}
		line := &lines[s.style(i)]
		line.Name, line.Style = s.setting[i], s.style(i)
		line.Points = append(line.Points, []num{num(g.Metrics["offered_rps"].Median), num(v.Median), num(v.Low), num(v.High)})
	}
	for _, line := range lines {
		slices.SortFunc(line.Points, func(a, b []num) int { return cmp.Compare(a[0], b[0]) })
	}
	return slices.DeleteFunc(lines, func(s series) bool { return s.Points == nil })
}

// figuresOf has the charts that show the groups of one workload.
func (s *study) figuresOf(d *data, w loadGroups) (figures []figure) {
	var all, served, p99, good []series
	var middles []*Run
	for _, g := range w.groups {
		runs := s.Runs[g]
		if len(runs) == 0 {
			continue
		}
		line := func(points [][]num) series {
			return series{Name: s.setting[g], Style: s.style(g), Points: points}
		}
		of, ofServed, err := curves(runs)
		if err != nil {
			d.note("percentile curves of %s: %v", s.Groups[g].Label, err)
		}
		all, served = append(all, line(of)), append(served, line(ofServed))
		r := middle(runs)
		middles = append(middles, r)
		p99 = append(p99, line(r.percentile(99, func(i result.Interval) float64 { return i.P99 })))
		good = append(good, line(r.rate(func(i result.Interval) int64 { return i.Good })))
	}
	add := func(title, caption string, x, y axis, lines []series) {
		figures = append(figures, d.addLines(title, caption, x, y, lines)...)
	}
	add("Latency of all requests", "By percentile, from the scheduled time; what got no answer counts with its time-out. All runs together.", percentiles, latencies, all)
	if slices.ContainsFunc(w.groups, func(g int) bool {
		return slices.ContainsFunc(s.Runs[g], func(r *Run) bool { return r.Served() < r.Requests })
	}) {
		add("Latency of what was served", "By percentile, of "+serving(string(s.Good))+" alone, from the scheduled time. All runs together.", percentiles, latencies, served)
	}
	if len(middles) == 0 {
		return figures
	}
	const one = "The run of median goodput."
	seconds, each := window(middles...), middles[0].interval()
	add("Latency over time", "p99 of the requests scheduled in each "+each+". "+one, seconds, axis{Title: "p99", Unit: "ms", Scale: logarithmic}, p99)
	add("Goodput over time", "By the time for which requests were scheduled, in each "+each+". "+one, seconds, axis{Title: "goodput", Unit: "/s"}, good)
	return figures
}

// addLines draws the series that have points.
func (d *data) addLines(title, caption string, x, y axis, lines []series) []figure {
	filled := slices.DeleteFunc(lines, func(s series) bool { return len(s.Points) == 0 })
	return d.add(title, caption, &chart{X: x, Y: y, Series: filled})
}

// middle returns the run whose goodput is the median.
func middle(runs []*Run) *Run {
	sorted := slices.SortedStableFunc(slices.Values(runs), func(a, b *Run) int { return cmp.Compare(a.GoodputRPS, b.GoodputRPS) })
	return sorted[(len(sorted)-1)/2]
}

// capital begins a sentence.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
