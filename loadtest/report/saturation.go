package report

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/spillway-go/spillway/loadtest/lab"
)

// section says how the breaking point was found.
func (s *Saturation) section() section {
	out := section{
		Title: "Breaking point: " + s.Name, Partial: s.Partial, Headline: capital(s.String()) + ".",
		Question: fmt.Sprintf("What is the highest rate at which %s of the offered requests are answered well, within %s ms?",
			short(100*s.Share)+"%", short(s.SLOMillis)),
		Summary: []fact{
			{"service", service(s.Strategy, s.Workers, s.Capacity)},
			{"search", fmt.Sprintf("%s in %s s", english.Plural(len(s.Steps), "trial", "trials"), short(s.Seconds))},
		},
		Cautions: s.Saturation.Cautions(),
	}
	out.Facts = append(out.Facts, machineFact("machine of the generator", s.Machine), fact{"started", moment(s.Started)}, fact{"url", s.URL}, fact{"command", s.Command})

	high := 99. // or 90, where no trial has enough requests
	if !slices.ContainsFunc(s.Steps, func(step lab.Step) bool { return step.Latency.Known(high) }) {
		high = 90
	}
	t := table{Caption: "Trials, in the order in which they were made",
		Head: []string{"rate, /s", "offered, /s", "completed, /s", "goodput, /s", "good, %", "p50, ms", fmt.Sprintf("p%v, ms", high), "sustained"}}
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
			{Text: digits(100 * step.GoodShare)}, percentileCell(step.Latency, 50), percentileCell(step.Latency, high), {Text: sustained},
		}})
	}
	out.Tables = []table{t}
	return out
}
