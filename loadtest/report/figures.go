package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

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
		m, ok := lab.MetricNamed(name)
		if !ok {
			continue
		}
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
		figures = append(figures, d.add(title, caption, &chart{Kind: linesChart, X: x, Y: y, Series: filled(lines)})...)
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
	for _, kind := range profiles.Kinds {
		c := &chart{Kind: stackChart}
		var allocated []string
		for _, g := range w.groups {
			metrics := s.Groups[g].Metrics
			if b, unit := stack(s.Runs[g], kind, metrics["server_cpu_us"].Median); b != nil {
				b.Label = s.setting[g]
				c.Y, c.Bars = axis{Title: costTitle(kind), Unit: unit}, append(c.Bars, *b)
				if v, measured := metrics["server_allocated_bytes"]; measured {
					allocated = append(allocated, s.setting[g]+" "+short(v.Median)+" bytes")
				}
			}
		}
		figures = append(figures, d.add(costTitle(kind), costCaption(kind, list(allocated))+" All runs together.", c)...)
	}
	return figures
}

// filled leaves out the series without points.
func filled(lines []series) []series {
	return slices.DeleteFunc(lines, func(s series) bool { return len(s.Points) == 0 })
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

// stack returns what a request of the runs cost by part, and the unit, or nil if
// that kind was not attributed. The bar of CPU time ends at what was measured in
// all, in microseconds, unless that is 0.
func stack(runs []*Run, kind profiles.Kind, cpuMicros float64) (*bar, string) {
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
		return nil, ""
	}
	divisor, unit := perRequest(kind)
	b := &bar{Values: make([]num, len(parts)+1)}
	for i, part := range parts {
		b.Values[i] = num(float64(sums[part]) / divisor / requests)
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
	return b, unit
}

// answered is how many requests were answered in the measured window: those that
// the server's costs are shared among. More or fewer may have been scheduled.
func (r *Run) answered() float64 { return r.CompletedRPS * r.Seconds }

// perRequest is the unit in which a cost of one request is shown, and how many
// of the profile's unit it is.
func perRequest(kind profiles.Kind) (divisor float64, unit string) {
	switch kind {
	case profiles.CPU:
		return 1e3, "µs"
	case profiles.Allocs:
		return 1, "bytes"
	default:
		return 1, "ns"
	}
}

func costTitle(kind profiles.Kind) string {
	switch kind {
	case profiles.CPU:
		return "CPU time per request, by part"
	case profiles.Allocs:
		return "Memory allocated for a request, by part"
	case profiles.Mutex:
		return "Waiting for locks, by part"
	default:
		return "Blocking, by part"
	}
}

// costCaption says where the figures of a kind come from. Allocated is what was
// measured of allocations, if it was.
func costCaption(kind profiles.Kind, allocated string) string {
	switch kind {
	case profiles.CPU:
		return "Of the service, from samples of its CPU profile over the measured window. Bars end at the CPU time that the process took in all."
	case profiles.Allocs:
		caption := "Of the service, from samples of what it allocated in the measured window."
		if allocated != "" {
			caption += " Measured in all: " + allocated + "."
		}
		return caption
	case profiles.Mutex:
		return "How long goroutines waited for locks, per request, by the part that held them."
	default:
		return "How long goroutines were blocked, per request; idle ones are left out."
	}
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	if text[0] < 'a' || text[0] > 'z' || text[0] == 'p' && len(text) > 1 && text[1] >= '0' && text[1] <= '9' {
		return text
	}
	return fmt.Sprintf("%c%s", text[0]-'a'+'A', text[1:])
}
