package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// section says and shows what one run measured.
func (r *Run) section(d *data) section {
	p99 := ""
	if ms, known := r.Latency.At(99); known {
		p99 = fmt.Sprintf(", p99 %s ms", short(ms))
	}
	out := section{
		Title: "Run" + around(": ", r.Name, ""), Partial: r.Partial,
		Headline: fmt.Sprintf("%s good answers a second of %s offered%s.", short(r.GoodputRPS), short(r.OfferedRPS), p99),
	}
	if r.GeneratorLate() {
		by := short(r.Lateness.P99) + " ms at p99"
		if !r.Lateness.Known(99) {
			by = short(r.Lateness.Max) + " ms at most"
		}
		out.Cautions = append(out.Cautions, "The generator was late itself, by "+by+": part of the latency is its own. Lower the rate, or give it more CPU.")
	}
	if r.Busy() {
		out.Cautions = append(out.Cautions, r.BusyText())
	}
	all, served, err := curves([]*Run{r})
	if err != nil {
		d.note("percentile curves: %v", err)
	}
	add := func(title, caption string, x, y axis, lines ...series) {
		out.Overview = append(out.Overview, d.addLines(title, caption, x, y, lines)...)
	}
	add("Latency by percentile", "All requests: from the scheduled time. Served: of "+serving(string(r.Good))+" alone. "+
		"From sending: without what a request waits for one of its client's own connections.", percentiles, latencies,
		series{Name: "all requests", Style: 0, Points: all}, series{Name: "served", Style: 1, Points: served},
		series{Name: "from sending", Style: 2, Points: points(r.UncorrectedLatency, r.Requests)})
	seconds, each := window(r), r.interval()
	add("Latency over time", "Of the requests scheduled in each "+each+".", seconds, latencies,
		series{Name: "p50", Style: 0, Points: r.percentile(50, func(i result.Interval) float64 { return i.P50 })},
		series{Name: "p99", Style: 1, Points: r.percentile(99, func(i result.Interval) float64 { return i.P99 })},
		series{Name: "largest", Style: 2, Points: r.largest(func(i result.Interval) float64 { return i.Max })})
	rates := []series{
		{Name: "offered", Style: 6, Points: r.rate(func(i result.Interval) int64 { return i.Offered })},
		{Name: "completed", Style: 0, Points: r.rate(func(i result.Interval) int64 { return i.Completed })},
		{Name: "good", Style: 2, Points: r.rate(func(i result.Interval) int64 { return i.Good })},
	}
	for _, rare := range []series{
		{Name: "shed", Style: 1, Points: r.rate(func(i result.Interval) int64 { return i.Shed })},
		{Name: "errors", Style: 3, Points: r.rate(func(i result.Interval) int64 { return i.Errors })},
	} {
		if slices.ContainsFunc(rare.Points, func(p []num) bool { return p[1] != 0 }) {
			rates = append(rates, rare)
		}
	}
	add("Rates over time", "In each "+each+". Completed counts answers by the time they came; all others count requests by the time for which they were scheduled.",
		seconds, axis{Title: "requests", Unit: "/s"}, rates...)
	out.Tables = r.tables()
	out.Summary, out.Facts = r.summary(), r.facts()
	if r.Unseen != "" {
		out.Notes = append(out.Notes, "Not all was seen: "+r.Unseen+".")
	}
	return out
}

// points are those of a percentile curve of which no histogram was kept.
func points(p result.Percentiles, n int64) (points [][]num) {
	for _, at := range []struct{ x, v float64 }{{2, p.P50}, {10, p.P90}, {100, p.P99}, {1e3, p.P999}, {1e4, p.P9999}} {
		if beyond*at.x <= float64(n) {
			points = append(points, []num{num(at.x), num(at.v)})
		}
	}
	return points
}

// percentileCell is a cell of a percentile, or says that it would be a guess.
func percentileCell(p result.Percentiles, percentile float64) cell {
	ms, known := p.At(percentile)
	if !known {
		return cell{Text: "too few"}
	}
	return cell{Text: short(ms)}
}

func (r *Run) tables() []table {
	latency := table{Caption: "Latency, ms", Head: []string{"", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"}}
	type named struct {
		name string
		p    result.Percentiles
	}
	rows := []named{{"all requests", r.Latency}, {"served", r.ServedLatency}, {"from sending", r.UncorrectedLatency}}
	if r.Busy() {
		rows = append(rows, named{"wait for a connection", r.ConnectionWait})
	}
	for _, of := range append(rows, named{"lateness of the generator", r.Lateness}) {
		if of.p == (result.Percentiles{}) {
			continue // none was counted
		}
		cells := []cell{{Text: of.name}, {Text: short(of.p.Mean)}}
		for _, percentile := range []float64{50, 90, 99, 99.9, 99.99} {
			cells = append(cells, percentileCell(of.p, percentile))
		}
		latency.Rows = append(latency.Rows, row{Cells: append(cells, cell{Text: short(of.p.Max)})})
	}
	tables := []table{latency}
	operations := r.Operations
	if len(r.Targets) > 0 {
		operations = nil // which targets have rows of their own for
	}
	for _, t := range []struct {
		caption, head string
		rows          []row
	}{
		{"Answers", "status", counted(r.Status)},
		{"Operations", "operation", counted(operations)},
		{"Shed", "reason", counted(r.Shed)},
		{"Errors", "kind", counted(r.Errors)},
	} {
		if len(t.rows) > 0 {
			tables = append(tables, table{Caption: t.caption, Head: []string{t.head, "requests"}, Rows: t.rows})
		}
	}
	if len(r.Targets) > 0 {
		t := table{Caption: "Targets", Head: []string{"", "requests", "good, %", "errors", "p50, ms", "p99, ms", "served p99, ms"}}
		for i := range r.Targets {
			of := &r.Targets[i]
			t.Rows = append(t.Rows, row{Cells: []cell{
				{Text: of.Target}, {Text: humanize.Comma(of.Requests)}, {Text: short(of.GoodPercent())}, {Text: humanize.Comma(of.Errors)},
				percentileCell(of.Latency, 50), percentileCell(of.Latency, 99), percentileCell(of.ServedLatency, 99),
			}})
		}
		tables = append(tables, t)
	}
	if len(r.Shares) > 0 {
		t := table{Caption: "Good, of what each asked for", Head: []string{"", "requests", "good, %"}}
		for _, name := range slices.Sorted(maps.Keys(r.Shares)) {
			share := r.Shares[name]
			if len(r.Targets) > 0 && r.Operations[name] > 0 {
				continue
			}
			t.Rows = append(t.Rows, row{Cells: []cell{{Text: name}, {Text: humanize.Comma(share.Requests)}, {Text: short(share.GoodPercent())}}})
		}
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	if costs, some := costs([]string{"sampled"}, [][]*Run{{r}}); some {
		tables = append(tables, costs)
	}
	return tables
}

// summary says what was asked and what came of it.
func (r *Run) summary() []fact {
	facts := []fact{
		{"url", r.URL},
		{"requests", fmt.Sprintf("%s in %s s, seed %d", humanize.Comma(r.Requests), short(r.Seconds), r.Seed)},
		{"offered", amount(r.OfferedRPS, "1/s") + asked(r.TargetRPS)},
		{"completed", amount(r.CompletedRPS, "1/s")},
		{"goodput", fmt.Sprintf("%s (%s within %s ms)", amount(r.GoodputRPS, "1/s"), serving(string(r.Good)), short(r.SLOMillis))},
	}
	if r.SentGoodputRPS > r.GoodputRPS+0.05*r.OfferedRPS {
		facts = append(facts, fact{"goodput from sending", amount(r.SentGoodputRPS, "1/s")})
	}
	if r.Retries != nil {
		facts = append(facts, fact{"retries", fmt.Sprintf("%s, %s per request", humanize.Comma(*r.Retries), short(float64(*r.Retries)/float64(max(1, r.Requests))))})
	}
	if gets := r.Operations[workload.Get.String()]; 2*r.Misses > gets {
		mend := ""
		if r.Keys > 0 {
			mend = fmt.Sprintf(": fill the store first with loadtest fill --url %s --bytes %d --value-size %v",
				r.URL, int64(float64(r.Keys)*max(1, r.ValueSize.Mean())), r.ValueSize)
		}
		facts = append(facts, fact{"misses", fmt.Sprintf("%d of %d gets found no value%s", r.Misses, gets, mend)})
	}
	facts = append(facts, fact{"service", service(r.Strategy, r.Workers, r.Capacity)})
	for _, name := range []string{"server_cpu_us", result.ServerCPUServed} {
		f := result.FigureNamed(name)
		if v, measured := f.In(r.Result); measured {
			facts = append(facts, fact{f.Title, amount(v, f.Unit)})
		}
	}
	engine := ""
	if r.Engine != workload.AnyEngine {
		engine = fmt.Sprintf("%v engine, %s", r.Engine, list(slices.Sorted(maps.Keys(r.Protocols))))
	}
	return append(facts, fact{"generator", enumerate(engine, amount(r.ClientCPUMicros, "us")+" of CPU per request")})
}

func (r *Run) facts() (facts []fact) {
	if file := r.ProfileFiles[profiles.CPU]; file != "" {
		facts = append(facts, fact{"profiles", "go tool pprof -http=: " + file})
	}
	if r.Machine != nil {
		facts = append(facts, machineFact("machine of the generator", *r.Machine))
	}
	return append(facts, fact{"started", moment(r.Started)}, fact{"command", r.Command})
}

func asked(rate float64) string {
	if rate == 0 {
		return ", in a closed loop"
	}
	return ", asked for " + amount(rate, "1/s")
}

// service describes the service by what its admin plane said.
func service(strategy string, workers int, capacity *int) string {
	if strategy == "" {
		return ""
	}
	waiting := ""
	if capacity != nil {
		waiting = count(*capacity, "may wait", "may wait")
	}
	return enumerate(strategy, count(workers, "worker", "workers"), waiting)
}
