package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/spillway-go/spillway/loadtest/lab"
)

// section says and shows how the breaking point was found.
func (s *Saturation) section(d *data) section {
	out := section{
		Title: "Breaking point: " + s.Name, Partial: s.Partial, Headline: capital(s.String()) + ".",
		Question: fmt.Sprintf("What is the highest rate at which %s of the offered requests are answered well, within %s ms?",
			short(100*s.Share)+"%", short(s.SLOMillis)),
		Summary: []fact{
			{"service", service(s.Strategy, s.Workers, s.Capacity)},
			{"search", fmt.Sprintf("%s in %s s", trials(len(s.Steps)), short(s.Seconds))},
		},
		Cautions: s.Saturation.Cautions(),
	}
	out.Facts = append(out.Facts, machineFacts("machine of the generator", s.Machine)...)
	out.Facts = append(out.Facts, fact{"started", moment(s.Started)}, fact{"url", s.URL}, fact{"command", s.Command})

	rates := map[float64][]lab.Step{}
	late := ""
	for _, step := range s.Steps {
		rates[step.Rate] = append(rates[step.Rate], step)
		if step.GeneratorLate {
			late = " Crosses: the generator was late."
		}
	}
	// Trials of which a figure is not known are left out.
	line := func(name string, style int, of func(lab.Step) (v float64, known bool)) series {
		line := series{Name: name, Style: style}
		for _, rate := range slices.Sorted(maps.Keys(rates)) {
			var at, values []float64
			for _, step := range rates[rate] {
				v, known := of(step)
				if !known {
					continue
				}
				at, values = append(at, step.OfferedRPS), append(values, v)
				dot := []num{num(step.OfferedRPS), num(v)}
				if step.GeneratorLate {
					dot = append(dot, 1)
				}
				line.Dots = append(line.Dots, dot)
			}
			if len(at) > 0 {
				line.Points = append(line.Points, []num{num(lab.Median(at)), num(lab.Median(values))})
			}
		}
		return line
	}
	var breaking *mark
	if s.BreakingPointRPS > 0 {
		what := "breaking point "
		if s.Limit != lab.LimitServer {
			what = "sustained "
		}
		breaking = &mark{num(s.BreakingPointRPS), what + short(s.BreakingPointRPS)}
	}
	for _, c := range []struct {
		title, caption string
		chart          chart
	}{
		{"Share of good answers", fmt.Sprintf("Of the offered requests. A rate is sustained from %s%% on.", short(100*s.Share)), chart{
			Y: axis{Title: "good", Unit: "%"}, Series: []series{line("good", 0, func(s lab.Step) (float64, bool) { return 100 * s.GoodShare, true })}}},
		{"Goodput against offered rate", "Dotted: what a service without limits would do.", chart{
			Y: axis{Title: "answers", Unit: "/s"}, Ideal: true, Series: []series{
				line("goodput", 0, func(s lab.Step) (float64, bool) { return s.GoodputRPS, true }),
				line("completed", 1, func(s lab.Step) (float64, bool) { return s.CompletedRPS, true })}}},
		{"Latency against offered rate", "Of all requests, from the scheduled time.", chart{
			Y: latencies, Series: []series{
				line("p50", 0, func(s lab.Step) (float64, bool) { return s.Latency.At(50) }),
				line("p99", 1, func(s lab.Step) (float64, bool) { return s.Latency.At(99) })}}},
	} {
		c.chart.X, c.chart.Mark = offered, breaking
		out.Overview = append(out.Overview, d.add(c.title, c.caption+" The line joins the medians of each rate, dots are single trials."+late, &c.chart)...)
	}

	t := table{Caption: "Trials, in the order in which they were made",
		Head: []string{"rate, /s", "offered, /s", "completed, /s", "goodput, /s", "good, %", "p50, ms", "p99, ms", "sustained"}}
	for _, step := range s.Steps {
		sustained := "no"
		if step.Sustained {
			sustained = "yes"
		}
		if step.GeneratorLate {
			sustained += ", generator late"
		} else if step.ConnectionsBusy && !step.Sustained {
			sustained += ", connections busy"
		}
		t.Rows = append(t.Rows, row{Best: step.Sustained && step.Rate == s.BreakingPointRPS, Cells: []cell{
			{Text: short(step.Rate)}, {Text: short(step.OfferedRPS)}, {Text: short(step.CompletedRPS)}, {Text: short(step.GoodputRPS)},
			{Text: digits(100 * step.GoodShare)}, percentileCell(step.Latency, 50), percentileCell(step.Latency, 99), {Text: sustained},
		}})
	}
	out.Tables = []table{t}
	return out
}

func trials(n int) string { return english.Plural(n, "trial", "trials") }
