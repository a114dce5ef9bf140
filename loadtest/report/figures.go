package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/profiles"
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
				Kind: linesChart, X: x, Y: y, Ideal: ideal && dotted != "", Series: s.lines(l, metric),
			})...)
		}
		draw("Goodput against offered rate", "Answers within the SLO."+dotted+" Bars reach from the lowest to the highest run.",
			goodput, axis{Title: "goodput", Unit: "/s"}, true)
		draw("Throughput against offered rate", "All answers: good, late and refusing."+dotted,
			"completed_rps", axis{Title: "completed", Unit: "/s"}, true)
		draw("Served p99 against offered rate", "Of what was served ("+serving(string(s.Good))+"), counted from the scheduled time.",
			servedP99, axis{Title: "served p99", Unit: "ms", Scale: logarithmic}, false)
	}
	return figures
}

// offered is the axis of the rates of a load: logarithmic, if what matters would
// otherwise be in a corner.
func (s *study) offered(l workload) axis {
	x, low, high := offered, math.Inf(1), 0.0
	for _, line := range s.lines(l, goodput) {
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
func (s *study) lines(l workload, metric string) []series {
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

// maxBars is how many bars a chart of all groups may have.
const maxBars = 24

// bars has a chart for each of the metrics that tell settings apart, of all
// groups if there are not too many.
func (s *study) bars(d *data) (figures []figure) {
	if len(s.Groups) > maxBars {
		return nil
	}
	return s.barsOf(d, s.workloads)
}

func (s *study) barsOf(d *data, workloads []workload) (figures []figure) {
	for _, name := range []string{goodput, servedP99, cpu, "non2xx_percent"} {
		m, _ := lab.MetricNamed(name)
		c := &chart{Kind: barsChart, Y: axis{Title: m.Title, Unit: unit(m.Unit)}}
		zero := true
		for _, w := range workloads {
			head := w.name
			if len(workloads) == 1 {
				head = ""
			}
			for _, g := range w.groups {
				v, measured := s.Groups[g].Metrics[name]
				if !measured {
					continue
				}
				zero = zero && v.High == 0
				c.Bars = append(c.Bars, bar{
					Label: s.setting[g], Head: head, Style: s.style(g),
					Value: num(v.Median), Low: num(v.Low), High: num(v.High),
				})
				head = ""
			}
		}
		if !zero {
			figures = append(figures, d.add(capital(m.Title), "Median, lowest and highest run. "+better(m), c)...)
		}
	}
	return figures
}

func better(m lab.Metric) string {
	switch m.Better {
	case lab.Higher:
		return "Longer is better."
	case lab.Lower:
		return "Shorter is better."
	default:
		return ""
	}
}

// figuresOf has the charts that show the groups of one workload.
func (s *study) figuresOf(d *data, w workload) (figures []figure) {
	if len(s.Groups) > maxBars {
		figures = s.barsOf(d, []workload{w})
	}
	var all, served, p99, good, depth, shed []series
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
		depth, shed = append(depth, line(r.queueDepth())), append(shed, line(r.sheds()))
	}
	add := func(title, caption string, x, y axis, lines []series) {
		figures = append(figures, d.addLines(title, caption, x, y, lines)...)
	}
	add("Latency of all requests", "By percentile, from the scheduled time; what got no answer counts with its time-out. All runs together.", percentiles, latencies, all)
	add("Latency of what was served", "By percentile, of "+serving(string(s.Good))+" alone, from the scheduled time. All runs together.", percentiles, latencies, served)
	if len(middles) == 0 {
		return figures
	}
	const one = "The run of median goodput."
	seconds, each := window(middles...), middles[0].interval()
	add("Latency over time", "p99 of the requests scheduled in each "+each+". "+one, seconds, axis{Title: "p99", Unit: "ms", Scale: logarithmic}, p99)
	add("Goodput over time", "By the time for which requests were scheduled, in each "+each+". "+one, seconds, axis{Title: "goodput", Unit: "/s"}, good)
	add("Queue depth over time", "Requests that wait in the service. "+one, seconds, axis{Title: "waiting", Scale: fromZero}, depth)
	add("Sheds over time", "Requests that the service gave up, a second. "+one, seconds, axis{Title: "shed", Unit: "/s", Scale: fromZero}, nonZero(shed))
	for _, kind := range profiles.Attributed {
		var bars []bar
		var allocated []string
		for _, g := range w.groups {
			metrics := s.Groups[g].Metrics
			b := stack(s.Runs[g], kind, metrics["server_cpu_us"].Median)
			if b == nil {
				continue
			}
			b.Label = s.setting[g]
			bars = append(bars, *b)
			if v, measured := metrics["server_allocated_bytes"]; measured {
				allocated = append(allocated, s.setting[g]+" "+short(v.Median)+" bytes")
			}
		}
		figures = append(figures, d.addCost(kind, bars, list(allocated), " All runs together.")...)
	}
	return figures
}

// addLines draws the series that have points.
func (d *data) addLines(title, caption string, x, y axis, lines []series) []figure {
	filled := slices.DeleteFunc(lines, func(s series) bool { return len(s.Points) == 0 })
	return d.add(title, caption, &chart{Kind: linesChart, X: x, Y: y, Series: filled})
}

// nonZero returns nothing if all points of all series are zero.
func nonZero(lines []series) []series {
	for _, s := range lines {
		if slices.ContainsFunc(s.Points, func(p []num) bool { return p[1] != 0 }) {
			return lines
		}
	}
	return nil
}

// middle returns the run whose goodput is the median.
func middle(runs []*Run) *Run {
	sorted := slices.SortedStableFunc(slices.Values(runs), func(a, b *Run) int { return cmp.Compare(a.GoodputRPS, b.GoodputRPS) })
	return sorted[(len(sorted)-1)/2]
}

func hasProfiles(runs []*Run) bool {
	return slices.ContainsFunc(runs, func(r *Run) bool { return len(r.ProfileFiles) > 0 })
}

// stack returns what a request of the runs cost by part, or nil if that kind was not
// attributed. The bar of CPU time ends at what was measured in
// all, in microseconds, unless that is 0.
func stack(runs []*Run, kind profiles.Kind, cpuMicros float64) *bar {
	sums, requests := map[profiles.Part]int64{}, 0.0
	for _, r := range runs {
		for _, a := range r.Attribution {
			if a.Kind == kind {
				requests += r.answered()
				for part, v := range a.Parts {
					sums[part] += v
				}
			}
		}
	}
	if requests == 0 {
		return nil
	}
	b := &bar{Values: make([]num, len(parts)+1)}
	for i, part := range parts {
		b.Values[i] = num(float64(sums[part]) / costs[kind].divisor / requests)
		b.Value += b.Values[i]
	}
	if measured := num(cpuMicros); kind == profiles.CPU && measured > 0 {
		if b.Value > measured { // samples may be too many by chance
			for i := range b.Values {
				b.Values[i] *= measured / b.Value
			}
		} else {
			b.Values[len(parts)] = measured - b.Value
		}
		b.Value = measured
	}
	return b
}

// answered is how many requests were answered in the measured window: those that
// the server's costs are shared among. More or fewer may have been scheduled.
func (r *Run) answered() float64 { return r.CompletedRPS * r.Seconds }

// cost is how a kind of cost is shown: per request, in units of which each is so many of
// the profile's.
type cost struct {
	title, caption, unit string
	divisor              float64
}

var costs = map[profiles.Kind]cost{
	profiles.CPU: {"CPU time per request, by part", "Of the service, from samples of its CPU profile over the measured window. " +
		"Bars end at the CPU time that the process took in all.", "µs", 1e3},
	profiles.Allocs: {"Memory allocated for a request, by part", "Of the service, from samples of what it allocated in the measured window.", "bytes", 1},
}

// addCost draws what requests cost, each bar those of some runs. Measured is what was
// measured of all allocations, if it was.
func (d *data) addCost(kind profiles.Kind, bars []bar, measured, more string) []figure {
	c := costs[kind]
	if kind == profiles.Allocs {
		more = around(" Measured in all: ", measured, ".") + more
	}
	return d.add(c.title, c.caption+more, &chart{Kind: stackChart, Y: axis{Title: c.title, Unit: c.unit}, Bars: bars})
}

// capital begins a sentence.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
