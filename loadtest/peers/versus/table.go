package versus

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"spillway/loadtest/lab"
)

// figure is a column of the table: one of the Figures.
type figure struct {
	title string
	of    func(*Figures) float64
	text  func(float64) string
	alone bool // its ratio to another contestant's says nothing
}

var (
	rate     = figure{title: "requests/s", of: func(f *Figures) float64 { return f.RPS }, text: func(v float64) string { return fmt.Sprintf("%.1f k", v/1e3) }}
	cpu      = figure{title: "CPU a request", of: func(f *Figures) float64 { return f.CPUMicros }, text: micros}
	mallocs  = figure{title: "allocations", of: func(f *Figures) float64 { return f.Mallocs }, text: func(v float64) string { return fmt.Sprintf("%.2f", v) }, alone: true}
	p50      = figure{title: "p50", of: func(f *Figures) float64 { return f.P50 }, text: millis}
	p99      = figure{title: "p99", of: func(f *Figures) float64 { return f.P99 }, text: millis}
	p999     = figure{title: "p99.9", of: func(f *Figures) float64 { return f.P999 }, text: millis}
	closed   = []figure{rate, cpu, mallocs}
	openLoop = []figure{cpu, p50, p99, p999}
)

func millis(v float64) string { return fmt.Sprintf("%.2f ms", v) }
func micros(v float64) string { return fmt.Sprintf("%.1f µs", v) }

// median of a figure of a contestant under a load, over the rounds.
func (r *Result) median(load, contestant int, f figure) float64 {
	values := make([]float64, len(r.Rounds))
	for n := range r.Rounds {
		values[n] = f.of(&r.Rounds[n][load][contestant])
	}
	return lab.Summarize(values).Median
}

// ratio returns the ratio of a figure of one contestant to that of another, of
// each round its own. There is none if a figure to divide by is 0.
func (r *Result) ratio(load, contestant, to int, f figure) (_ lab.Summary, ok bool) {
	return r.across(load, contestant, load, to, f)
}

// across is the ratio to a figure that may be of another load.
func (r *Result) across(load, contestant, toLoad, to int, f figure) (_ lab.Summary, ok bool) {
	values := make([]float64, len(r.Rounds))
	for n, round := range r.Rounds {
		values[n] = f.of(&round[load][contestant]) / f.of(&round[toLoad][to])
		if math.IsNaN(values[n]) || math.IsInf(values[n], 0) {
			return lab.Summary{}, false
		}
	}
	return lab.Summarize(values), true
}

// cell is a figure and its ratio to another contestant's.
func (r *Result) cell(load, contestant, to int, f figure) string {
	text := f.text(r.median(load, contestant, f))
	if contestant == to {
		return text
	}
	if ratio, ok := r.ratio(load, contestant, to, f); ok && !f.alone {
		text += ", " + spread(ratio)
	}
	return text
}

func spread(s lab.Summary) string {
	return fmt.Sprintf("**%.2f** (%.2f–%.2f)", s.Median, s.Low, s.High)
}

// WriteTable writes the figures as one Markdown table: under each load, as much
// as can be served and at a fixed rate, the contestants beside each other. There
// must be at least one round.
func (r *Result) WriteTable(w io.Writer, base string) error {
	to := slices.Index(r.Contestants, base)
	if to < 0 {
		return fmt.Errorf("%q is not among the contestants", base)
	}
	var b strings.Builder
	b.WriteString("| load | |")
	for _, f := range closed {
		b.WriteString(" " + f.title + " |")
	}
	for _, f := range openLoop {
		b.WriteString(" " + f.title + " at that rate |")
	}
	b.WriteString(" refused |\n|---|---|" + strings.Repeat("---|", len(closed)+len(openLoop)+1) + "\n")
	for at, load := range r.Loads {
		if load.Rate > 0 {
			continue
		}
		paced := slices.IndexFunc(r.Loads, func(l Load) bool {
			return l.Rate > 0 && l.Op == load.Op && l.Connections == load.Connections
		})
		title := load.String()
		if paced >= 0 {
			title += fmt.Sprintf("; or %.0f/s", r.Loads[paced].Rate)
		}
		for c, name := range r.Contestants {
			fmt.Fprintf(&b, "| %s | %s |", title, name)
			title = ""
			for _, f := range closed {
				b.WriteString(" " + r.cell(at, c, to, f) + " |")
			}
			refused := r.median(at, c, figure{of: func(f *Figures) float64 { return f.Refused }})
			for _, f := range openLoop {
				text := "–"
				if paced >= 0 {
					text = r.cell(paced, c, to, f)
				}
				b.WriteString(" " + text + " |")
			}
			text := "–"
			if refused > 0 {
				text = fmt.Sprintf("%.1f%%", 100*refused)
			}
			b.WriteString(" " + text + " |\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteConditions says in a paragraph how the figures came about, which are beside
// those of base: "bare".
func (r *Result) WriteConditions(w io.Writer, base string) error {
	return r.writeConditions(w, fmt.Sprintf("A store of %d values of 100 bytes, writes unsynced.", r.Keys), "the ratio to "+base)
}

func (r *Result) writeConditions(w io.Writer, store, ratio string) error {
	_, err := fmt.Fprintf(w, "%d CPUs (%s), %s, %s, the generator beside the servers; %s, %.0f minutes. "+
		"%s Medians of %d rounds; **bold** is %s "+
		"within a round, in brackets the lowest and the highest. Costs are by requests served, in processor time of the server.\n",
		r.Machine.CPUs, r.Machine.CPU, r.Machine.Kernel, r.Machine.Go, r.Started.UTC().Format(time.DateOnly), math.Ceil(r.Seconds/60),
		store, len(r.Rounds), ratio)
	return err
}
