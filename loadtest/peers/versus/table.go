package versus

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/peers"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// column is one of a table: a metric, and its ratio to that of whom a contestant is
// compared with.
type column struct {
	title, metric string
	text          func(float64) string // nil to show the ratio alone
	alone         bool                 // the ratio says nothing
	paced         bool                 // of the same load at a fixed rate
	// base is compared with in place of the contestant's own, if it is not empty; or, if
	// it is not 0, the contestant itself over so many connections.
	base string
	own  int
	// most is what the ratio should be at most, by operation.
	most map[workload.Op]float64
}

var (
	rate        = column{title: "requests/s", metric: "served_rps", text: func(v float64) string { return fmt.Sprintf("%.1f k", v/1e3) }}
	cpu         = column{title: "CPU per request", metric: "server_cpu_served_us", text: micros}
	mallocs     = column{title: "allocations", metric: "server_allocs", text: func(v float64) string { return fmt.Sprintf("%.2f", v) }, alone: true}
	p50         = column{title: "p50", metric: "latency_p50_ms", text: millis}
	p99         = column{title: "p99", metric: "latency_p99_ms", text: millis}
	p999        = column{title: "p99.9", metric: "latency_p99_9_ms", text: millis}
	p50Micros   = column{title: "p50", metric: "latency_p50_ms", text: func(v float64) string { return micros(1e3 * v) }}
	fsyncMean   = column{title: "fsync, mean", metric: lab.FsyncMean, text: orNothing(micros), alone: true}
	fsyncMedian = column{title: "fsync, median", metric: lab.FsyncMedian, text: orNothing(micros), alone: true}
	found       = column{title: "found", metric: lab.FoundPercent, text: percent, alone: true}
	blocksRead  = column{title: "blocks read per request", metric: lab.BlocksRead, text: func(v float64) string { return fmt.Sprintf("%.3f", v) }, alone: true}
	idleBytes   = column{title: "memory of an idle connection", metric: lab.IdleBytes, text: orNothing(func(v float64) string { return fmt.Sprintf("%.1f KiB", v/1024) }), alone: true}
	megabytes   = column{title: "MB/s", metric: lab.MegabytesPerSecond, text: func(v float64) string { return fmt.Sprintf("%.1f", v) }}
	memory      = column{title: "memory", metric: lab.ResidentBytes, text: func(v float64) string { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }, alone: true}
	refused     = column{title: "refused", metric: "non2xx_percent", text: orNothing(percent), alone: true}
)

func millis(v float64) string  { return fmt.Sprintf("%.2f ms", v) }
func micros(v float64) string  { return fmt.Sprintf("%.1f µs", v) }
func percent(v float64) string { return fmt.Sprintf("%.1f%%", v) }

// orNothing writes a dash for 0.
func orNothing(text func(float64) string) func(float64) string {
	return func(v float64) string {
		if v == 0 {
			return "–"
		}
		return text(v)
	}
}

// at is the column at the fixed rate of a load, or at half of its own.
func (c column) at(rate string) column {
	c.title, c.paced = c.title+" at "+rate, true
	return c
}

// toReach is the column beside a goal.
func (c column) toReach(base string, most map[workload.Op]float64) column {
	c.title, c.base, c.most, c.text = fmt.Sprintf("%s × %s, at most %.2f (PUT), %.2f (GET)", c.title, base, most[workload.Put], most[workload.Get]), base, most, nil
	return c
}

// answer is what was found.
type answer struct {
	*Question
	*lab.Comparison
	known map[string][]lab.Bounds
}

// Write writes the answer as one Markdown document.
func (q *Question) Write(w io.Writer, c *lab.Comparison) error {
	rounds := c.Rounds()
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", q.Asks)
	if c.Version != "" {
		fmt.Fprintf(&b, "%s; ", c.Version)
	}
	fmt.Fprintf(&b, "%d CPUs (%s), %s, %s, the generator beside the servers; %s, %.0f minutes. "+
		"%s Medians of %d rounds, and the ratio to %s within a round, in brackets the lowest and the highest. "+
		"A ratio in **bold** is proven not to be 1 (p < %g over all pairs under a load)",
		c.Machine.CPUs, c.Machine.CPU, c.Machine.Kernel, c.Machine.Go, c.Started.UTC().Format(time.DateOnly),
		math.Ceil(c.Finished.Sub(c.Started).Minutes()), q.store, rounds, q.ratio, lab.Alpha)
	if rounds < lab.ProofRuns {
		fmt.Fprintf(&b, "; none is, as that takes %d rounds", lab.ProofRuns)
	}
	b.WriteString(". Costs are by requests served, in processor time of the server.\n\n| load | |")
	a := answer{q, c, map[string][]lab.Bounds{}}
	columns := append(slices.Clone(q.columns), refused)
	for _, f := range columns {
		b.WriteString(" " + f.title + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for at, load := range q.Loads {
		paced := q.paced(at)
		if load.Rate > 0 || load.Half {
			continue
		}
		title := load.String()
		if paced >= 0 && !q.Loads[paced].Half {
			title += fmt.Sprintf("; or %.0f/s", q.Loads[paced].Rate)
		}
		for i, contestant := range q.Contestants {
			fmt.Fprintf(&b, "| %s | %s |", title, contestant.Name)
			title = ""
			for _, f := range columns {
				of := at
				if f.paced {
					of = paced
				}
				b.WriteString(" " + a.cell(of, i, &f) + " |")
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// paced returns the index of the same load at a fixed rate, or -1.
func (q *Question) paced(load int) int {
	of := q.Loads[load]
	return slices.IndexFunc(q.Loads, func(l lab.PairLoad) bool {
		return (l.Rate > 0 || l.Half) && l.Op == of.Op && l.Connections == of.Connections
	})
}

// group is the index of the group of a contestant under a load.
func (q *Question) group(load, contestant int) int { return load*len(q.Contestants) + contestant }

// cell is a figure and its ratio, or nothing where nothing was served.
func (a *answer) cell(load, contestant int, f *column) string {
	if load < 0 {
		return "–"
	}
	group := a.group(load, contestant)
	metrics := a.Groups[group].Metrics
	figure, measured := metrics[f.metric]
	if !measured || f.metric != refused.metric && metrics[rate.metric].Median == 0 {
		return "–"
	}
	var said []string
	if f.text != nil {
		said = append(said, f.text(figure.Median))
	}
	if base, others := a.comparedWith(load, contestant, f); base >= 0 && base != group && !f.alone {
		key := fmt.Sprint(f.metric, base, others)
		if a.known[key] == nil {
			a.known[key] = a.Differences(f.metric, base, others)
		}
		d := a.known[key][slices.Index(others, group)]
		most := f.most[a.Loads[load].Op]
		if slices.Contains(peers.Names, a.Contestants[contestant].Name) {
			most = 0 // the goals are the service's
		}
		if text := ratio(&d, most); text != "" {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return "–"
	}
	return strings.Join(said, ", ")
}

// comparedWith returns the group that a contestant is compared with in a column, -1 if
// there is none, and all that are compared with it.
func (a *answer) comparedWith(load, contestant int, f *column) (base int, all []int) {
	if f.own > 0 {
		to := slices.IndexFunc(a.Loads, func(l lab.PairLoad) bool { return l.Op == a.Loads[load].Op && l.Connections == f.own })
		return a.group(to, contestant), []int{a.group(load, contestant)}
	}
	name := f.base
	if name == "" {
		name = a.Contestants[contestant].Base
	}
	to := slices.IndexFunc(a.Contestants, func(o lab.Contestant) bool { return o.Name == name })
	if to < 0 || len(a.Groups[a.group(load, to)].Metrics[f.metric].Values) == 0 {
		return -1, nil
	}
	for i := range a.Contestants {
		if len(a.Groups[a.group(load, i)].Metrics[f.metric].Values) > 0 {
			all = append(all, a.group(load, i))
		}
	}
	return a.group(load, to), all
}

// ratio writes a ratio, and whether it reaches what it should be at most, if that is
// not 0.
func ratio(d *lab.Bounds, most float64) string {
	if len(d.Ratio.Values) == 0 {
		return ""
	}
	text := fmt.Sprintf("%.2f", d.Ratio.Median)
	if d.Proven() {
		text = "**" + text + "**"
	}
	text += fmt.Sprintf(" (%.2f–%.2f)", d.Ratio.Low, d.Ratio.High)
	switch {
	case most == 0:
		return text
	case d.High <= most:
		return text + ": reached"
	case d.Low > most:
		return text + ": missed"
	default:
		return text + ": not proven"
	}
}
