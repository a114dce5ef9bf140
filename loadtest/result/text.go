package result

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// WriteText writes a summary for people, in lines of at most 80 columns.
func (r *Result) WriteText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s for %.1f s, seed %d\n", r.URL, r.Seconds, r.Seed)
	if r.Partial != "" {
		fmt.Fprintf(&b, "PARTIAL: %s\n", r.Partial)
	}
	b.WriteByte('\n')
	r.writeRates(&b)
	b.WriteByte('\n')
	r.writeLatencies(&b)
	b.WriteByte('\n')
	r.writeTargets(&b)
	r.writeGenerator(&b)
	r.writeServer(&b)
	r.writeAttribution(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Result) writeRates(b *bytes.Buffer) {
	note := ""
	switch {
	case r.TargetRPS == 0:
		note = "closed loop: it stalls when the server does"
	case r.OfferedRPS < 0.99*r.TargetRPS || r.OfferedRPS > 1.01*r.TargetRPS:
		note = fmt.Sprintf("asked for %.1f/s", r.TargetRPS)
	}
	row := func(name, value, note string) {
		fmt.Fprintln(b, strings.TrimRight(fmt.Sprintf("%-11s %14s   %s", name, value, note), " "))
	}
	rate := func(v float64) string { return fmt.Sprintf("%.1f/s", v) }
	row("offered", rate(r.OfferedRPS), note)
	row("completed", rate(r.CompletedRPS), "")
	note = fmt.Sprintf("within %v", time.Duration(r.SLOMillis*float64(time.Millisecond)))
	if r.OfferedRPS > 0 {
		note = fmt.Sprintf("%.2f%% of the offered, %s", 100*r.GoodputRPS/r.OfferedRPS, note)
	}
	row("goodput", rate(r.GoodputRPS), note)
	if r.SentGoodputRPS > r.GoodputRPS+0.05*r.OfferedRPS {
		row("at service", rate(r.SentGoodputRPS), "the same from when requests were sent")
	}
	var operations []string
	for op := range workload.OpCount {
		if n := r.Operations[op.String()]; n > 0 {
			operations = append(operations, fmt.Sprintf("%s %d", op, n))
		}
	}
	row("requests", fmt.Sprint(r.Requests, "  "), strings.Join(operations, ", "))
	if r.Retries != nil {
		row("retries", fmt.Sprint(*r.Retries, "  "), fmt.Sprintf("%.2f per request", float64(*r.Retries)/float64(max(1, r.Requests))))
	}
	var shares []string
	for _, name := range slices.Sorted(maps.Keys(r.Shares)) {
		if len(r.Targets) > 0 && r.Operations[name] > 0 {
			continue // has a row of its own
		}
		shares = append(shares, fmt.Sprintf("%s %.1f%%", name, r.Shares[name].GoodPercent()))
	}
	writeList(b, "good of", shares)
	writeList(b, "answers", counted(r.Status))
	r.writeMisses(b)
	writeList(b, "shed", counted(r.Shed))
	writeList(b, "errors", counted(r.Errors))
}

// writeMisses says that most gets found nothing, and how that is mended.
func (r *Result) writeMisses(b *bytes.Buffer) {
	gets := r.Operations[workload.Get.String()]
	if 2*r.Misses <= gets {
		return
	}
	fmt.Fprintf(b, "%-11s %d of %d gets found no value", "misses", r.Misses, gets)
	if r.Keys == 0 {
		b.WriteByte('\n')
		return
	}
	fmt.Fprintf(b, ": fill the store first with\n%-11s loadtest fill --url %s \\\n%-11s   --bytes %d --value-size %v\n",
		"", r.URL, "", int64(float64(r.Keys)*max(1, r.ValueSize.Mean())), r.ValueSize)
}

// counted writes counts in the order of their names.
func counted[K ~string](counts map[K]int64) []string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	return parts
}

// writeList writes a row of parts, in as many lines as they need.
func writeList(b *bytes.Buffer, name string, parts []string) { writeParts(b, name, parts, ",") }

func writeWords(b *bytes.Buffer, name, text string) { writeParts(b, name, strings.Fields(text), "") }

func writeParts(b *bytes.Buffer, name string, parts []string, separator string) {
	const columns = 80
	if len(parts) == 0 {
		return
	}
	line := fmt.Sprintf("%-11s", name)
	for i, part := range parts {
		if i < len(parts)-1 {
			part += separator
		}
		if len(line)+1+len(part) > columns {
			fmt.Fprintln(b, line)
			line = fmt.Sprintf("%-11s", "")
		}
		line += " " + part
	}
	fmt.Fprintln(b, line)
}

func (r *Result) writeLatencies(b *bytes.Buffer) {
	if r.Latency == (Percentiles{}) {
		fmt.Fprintln(b, "no latencies: no request was answered")
		return
	}
	fmt.Fprintf(b, "%-11s %14s %14s %14s\n", "latency ms", "all requests", "served", "from sending")
	few := false
	row := func(name string, pick func(Percentiles) (ms float64, known bool)) {
		fmt.Fprintf(b, "  %-9s", name)
		for _, p := range []Percentiles{r.Latency, r.ServedLatency, r.UncorrectedLatency} {
			cell := "–"
			if ms, known := pick(p); !known {
				cell, few = "too few", true
			} else if p != (Percentiles{}) {
				cell = fmt.Sprintf("%.3f", ms)
			}
			fmt.Fprintf(b, " %14s", cell)
		}
		b.WriteByte('\n')
	}
	row("mean", func(p Percentiles) (float64, bool) { return p.Mean, true })
	for _, percentile := range []float64{50, 90, 99, 99.9, 99.99} {
		row(fmt.Sprintf("p%v", percentile), func(p Percentiles) (float64, bool) { return p.At(percentile) })
	}
	row("max", func(p Percentiles) (float64, bool) { return p.Max, true })
	if few {
		fmt.Fprintf(b, "%-11s too few: of fewer than 10 requests beyond it a percentile is a guess\n", "")
	}
	if r.Busy() {
		writeWords(b, "busy", r.BusyText())
	}
}

func (r *Result) writeTargets(b *bytes.Buffer) {
	if len(r.Targets) == 0 {
		return
	}
	fmt.Fprintf(b, "%10s %7s %11s %11s   %s\n", "requests", "good %", "p50 ms", "p99 ms", "target")
	for i := range r.Targets {
		t := &r.Targets[i]
		cell := func(percentile float64) string {
			ms, known := t.Latency.At(percentile)
			switch {
			case t.Latency.Count == 0:
				return "–"
			case !known:
				return "too few"
			default:
				return fmt.Sprintf("%.3f", ms)
			}
		}
		fmt.Fprintf(b, "%10d %7.2f %11s %11s   %s\n", t.Requests, t.GoodPercent(), cell(50), cell(99), t.Target)
	}
	b.WriteByte('\n')
}

// maxLateness is from where on, in milliseconds, the generator's own lateness is
// worth a warning.
const maxLateness = 1

// GeneratorLate reports whether the generator was so late itself that part of the
// latency is its own. Beside much longer latencies it does not matter.
func (r *Result) GeneratorLate() bool {
	return r.Lateness.P99 > maxLateness && r.Lateness.P99 > r.Latency.P99/10
}

func (r *Result) writeGenerator(b *bytes.Buffer) {
	fmt.Fprintf(b, "%-11s ", "generator")
	if r.Engine != workload.AnyEngine {
		fmt.Fprintf(b, "%v engine, %s\n%-11s ", r.Engine, strings.Join(slices.Sorted(maps.Keys(r.Protocols)), ", "), "")
	}
	if r.TargetRPS > 0 {
		fmt.Fprintf(b, "late by %.3f ms at p99, %.3f ms at most; ", r.Lateness.P99, r.Lateness.Max)
	}
	fmt.Fprintf(b, "%.1f us of CPU per request\n", r.ClientCPUMicros)
	if r.GeneratorLate() {
		fmt.Fprintf(b, "%-11s WARNING: the generator was late itself: part of the latency above\n", "")
		fmt.Fprintf(b, "%-11s is its own. Lower the rate, or give it more CPU.\n", "")
	}
}

func (r *Result) writeServer(b *bytes.Buffer) {
	if r.Unseen != "" {
		defer fmt.Fprintf(b, "%-11s not all was seen: %s\n", "", r.Unseen)
	}
	if r.Strategy == "" {
		return
	}
	waiting := "without bound"
	if r.Capacity != nil {
		waiting = fmt.Sprintf("of %d", *r.Capacity)
	}
	fmt.Fprintf(b, "%-11s %s, %d workers, queue %s\n", "server", r.Strategy, r.Workers, waiting)
	if r.ServerCPUMicros == nil {
		return
	}
	fmt.Fprintf(b, "%-11s %.1f us of CPU", "", *r.ServerCPUMicros)
	if r.ServerAllocs != nil && r.ServerAllocated != nil {
		fmt.Fprintf(b, ", %.1f allocations (%.0f bytes)", *r.ServerAllocs, *r.ServerAllocated)
	}
	fmt.Fprintln(b, " per request")
}

// writeAttribution writes which part of the service took which share of each
// kind of cost.
func (r *Result) writeAttribution(b *bytes.Buffer) {
	if len(r.Attribution) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-24s", "share of")
	for _, a := range r.Attribution {
		fmt.Fprintf(b, " %8s", a.Kind)
	}
	b.WriteByte('\n')
	for _, part := range profiles.Costs {
		fmt.Fprintf(b, "  %-22s", part)
		for _, a := range r.Attribution {
			share := a.Share(part)
			if share != "–" {
				share += "%"
			}
			fmt.Fprintf(b, " %8s", share)
		}
		b.WriteByte('\n')
	}
}
