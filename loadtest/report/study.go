package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// study is a comparison, sorted for being shown.
type study struct {
	*Comparison
	// setting names the service's settings of each group, by those in which the
	// groups differ; settings are the different ones, in order. A setting has the
	// same colour and shape in all charts of the study: its index.
	setting  []string
	settings []string
	// workloads are the different ones, in order, with the indices of their groups.
	workloads []loadGroups
	// loads are the workloads without their rates.
	loads []loadGroups
	// common is what all workloads have in common.
	common string
}

// loadGroups are the groups of one load. Its name is what tells it apart from the others.
type loadGroups struct {
	name   string
	groups []int
}

func newStudy(c *Comparison) *study {
	s := &study{Comparison: c, setting: settingNames(c.Groups)}
	for _, name := range s.setting {
		if !slices.Contains(s.settings, name) {
			s.settings = append(s.settings, name)
		}
	}
	s.workloads, s.common = gather(c.Groups, func(g lab.Group) string { return g.Workload })
	s.loads, _ = gather(c.Groups, func(g lab.Group) string { return g.Load })
	return s
}

// gather puts groups together whose names are equal, and shortens the names by
// what all of them have in common. One of several of which nothing is left is called plain.
func gather(groups []lab.Group, name func(lab.Group) string) (sets []loadGroups, common string) {
	const separator = ", "
	for i, g := range groups {
		n := slices.IndexFunc(sets, func(w loadGroups) bool { return w.name == name(g) })
		if n < 0 {
			n = len(sets)
			sets = append(sets, loadGroups{name: name(g)})
		}
		sets[n].groups = append(sets[n].groups, i)
	}
	if len(sets) == 0 {
		return nil, ""
	}
	partsOf := func(w loadGroups) []string { return strings.Split(w.name, separator) }
	shared := partsOf(sets[0])
	for _, w := range sets {
		shared = slices.DeleteFunc(shared, func(part string) bool { return !slices.Contains(partsOf(w), part) })
	}
	for i, w := range sets {
		own := slices.DeleteFunc(partsOf(w), func(part string) bool { return slices.Contains(shared, part) })
		if sets[i].name = strings.Join(own, separator); len(own) == 0 && len(sets) > 1 {
			sets[i].name = "plain"
		}
	}
	return sets, strings.Join(shared, separator)
}

func (s *study) style(group int) int { return slices.Index(s.settings, s.setting[group]) }

// settingNames names what of the service's settings differs among the groups of any one
// workload: "fifo", or "fifo (8 workers, 64 waiting)". lab's labels hold the load as well.
func settingNames(groups []lab.Group) []string {
	settings := make([][]string, len(groups))
	for i := range groups {
		for _, s := range scenario.All {
			if !s.Demand() && s.Name != "strategy" {
				settings[i] = append(settings[i], s.Label(&groups[i].Combination))
			}
		}
	}
	// Most settings do not exist for every strategy: that one has none does not tell it
	// apart, unless without that two of them have one name.
	names := make([]string, len(groups))
	for _, ofNone := range []bool{false, true} {
		of, unique := map[string]string{}, true // the settings with a name
		for i, g := range groups {
			var said []string
			for at, text := range settings[i] {
				differs := false
				for j, other := range settings {
					differs = differs || groups[j].Workload == g.Workload && other[at] != text && (other[at] != "" || ofNone)
				}
				if text != "" && differs {
					said = append(said, text)
				}
			}
			names[i] = g.Combination.Setting() + around(" (", strings.Join(said, ", "), ")")
			all := strings.Join(settings[i], ", ")
			key := g.Workload + "\n" + names[i]
			unique = unique && cmp.Or(of[key], all) == all
			of[key] = all
		}
		if unique {
			break
		}
	}
	return names
}

// section says and shows what a comparison found.
func (s *study) section(d *data) section {
	sc := s.Scenario
	out := section{
		Title: cmp.Or(sc.Title, sc.Name), Question: sc.Question, Expectation: sc.Expectation,
		Partial: s.Partial, Notes: s.Notes,
	}
	found := s.Verdicts()
	out.Headline = lab.Headline(found, s.name)
	if caution := s.lateness(); caution != "" {
		out.Cautions = append(out.Cautions, caution)
	}
	if t := s.verdicts(found); len(t.Rows) > 0 {
		out.Rule = rule
		switch told := found[0].Told(); {
		case len(s.workloads) > 1:
			out.Verdicts = &t
		case !found[0].Named():
			// The headline says what the runs could have told.
		case strings.HasSuffix(told, "%"):
			out.Told = fmt.Sprintf("These %d runs tell goodput apart that differs by %s or more.", found[0].Runs, told)
		default:
			out.Cautions = append(out.Cautions, capital(told)+".")
		}
	}
	out.Overview = s.overRates(d)
	for _, w := range s.workloads {
		if figures := s.figuresOf(d, w); len(figures) > 0 {
			out.Panels = append(out.Panels, panel{Label: w.name, Figures: figures})
		}
	}
	out.Tables = s.tables(found)
	out.Summary = []fact{{"load", s.common}}
	out.Facts = s.facts()
	return out
}

// lateness says in how many runs the generator was too late itself.
func (s *study) lateness() string {
	late, all := 0, slices.Concat(s.Runs...)
	for _, r := range all {
		if r.GeneratorLate() {
			late++
		}
	}
	if late == 0 {
		return ""
	}
	return fmt.Sprintf("In %d of %s the generator was late itself: part of the latency is its own.", late, count(len(all), "run", "runs"))
}

// spreadOf is the figure whose spread a cell of several shows.
const spreadOf = 1

// columns returns the figures of a table's columns: those that were measured in any of its groups.
func (s *study) columns(groups []int) (columns [][]result.Figure) {
	last := ""
	for _, f := range result.Figures {
		if f.Column == "" || !slices.ContainsFunc(groups, func(at int) bool {
			g := &s.Groups[at]
			v, measured := g.Metrics[f.Name]
			switch {
			case f.Name == result.SentGoodput: // elsewhere it repeats goodput
				return g.TwoClocks()
			case !f.Wanted: // a column of zeros, such as that of errors, says nothing
				return measured && v.High != 0
			}
			return measured
		}) {
			continue
		}
		if f.Column != last {
			columns = append(columns, nil)
			last = f.Column
		}
		columns[len(columns)-1] = append(columns[len(columns)-1], f)
	}
	return columns
}

// tables has one table for each workload, in which those are marked that no other beats.
func (s *study) tables(verdicts []lab.Verdict) []table {
	var tables []table
	for at, w := range s.workloads {
		v, columns := &verdicts[at], s.columns(w.groups) // in the same order
		t := table{Caption: w.name, Head: []string{"setting", "runs"}}
		if len(v.Top) > 0 {
			t.Head = append(t.Head, "against the best")
		}
		t.Brief = []int{0, len(t.Head) - 1}
		for _, c := range columns {
			if c[0].Brief {
				t.Brief = append(t.Brief, len(t.Head))
			}
			t.Head = append(t.Head, heading(c))
		}
		for _, g := range w.groups {
			r := row{Best: slices.Contains(v.Top, g), Cells: []cell{{Text: s.setting[g]}, {Text: fmt.Sprint(len(s.Groups[g].Runs))}}}
			if len(v.Top) > 0 {
				r.Cells = append(r.Cells, cell{Text: v.Against(g, s.name)})
			}
			for _, c := range columns {
				of := s.cell(g, c)
				if c[0].Name == result.SentGoodput && !s.Groups[g].TwoClocks() {
					of = cell{Text: "–"} // it repeats goodput
				}
				if ratio, ok := lab.Ratio(s.Groups[g].Metrics[result.ServerCPUServed], s.Groups[w.groups[0]].Metrics[result.ServerCPUServed]); ok && c[0].Name == result.ServerCPUServed && g != w.groups[0] {
					of.Text += fmt.Sprintf(", × %.2f", ratio.Median)
				}
				r.Cells = append(r.Cells, of)
			}
			t.Rows = append(t.Rows, r)
		}
		tables = append(tables, t)
		var names []string
		var runs [][]*Run
		for _, g := range w.groups {
			names, runs = append(names, s.setting[g]), append(runs, s.Runs[g])
		}
		if costs, some := costs(names, runs); some {
			costs.Caption = around("", w.name, ": ") + costs.Caption
			tables = append(tables, costs)
		}
		if shares, some := s.shares(w.groups); some {
			shares.Caption = around("", w.name, ": ") + "good, % of what each asked for"
			tables = append(tables, shares)
		}
	}
	return tables
}

// costs says on which part of the service a request's CPU time went, as far as it was
// sampled: a row for each name that has profiles, of all its runs together.
func costs(names []string, runs [][]*Run) (t table, some bool) {
	t.Caption, t.Head = "CPU per request, µs, by part", []string{""}
	for _, part := range profiles.Parts {
		t.Head = append(t.Head, string(part))
	}
	for i, name := range names {
		sums, requests := profiles.Costs{}, 0.0
		for _, r := range runs[i] {
			if r.CPUByPart == nil {
				continue
			}
			requests += r.CompletedRPS * r.Seconds
			for part, v := range r.CPUByPart {
				sums[part] += v
			}
		}
		if requests == 0 {
			continue
		}
		r := row{Cells: []cell{{Text: name}}}
		for _, part := range profiles.Parts {
			r.Cells = append(r.Cells, cell{Text: short(float64(sums[part]) / 1e3 / requests)})
		}
		t.Rows = append(t.Rows, r)
	}
	return t, len(t.Rows) > 0
}

// shares says how each kind of clients, each priority and each operation fared in
// the groups, if that was counted.
func (s *study) shares(groups []int) (t table, some bool) {
	who := map[string]bool{}
	for _, g := range groups {
		for name := range s.Groups[g].Shares {
			who[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(who))
	t.Head = append([]string{"setting"}, names...)
	for _, g := range groups {
		r := row{Cells: []cell{{Text: s.setting[g]}}}
		for _, name := range names {
			text := "–"
			if share, counted := s.Groups[g].Shares[name]; counted {
				text = short(share.GoodPercent())
			}
			r.Cells = append(r.Cells, cell{Text: text})
		}
		t.Rows = append(t.Rows, r)
	}
	return t, len(names) > 0
}

// cell has the medians of metrics of a group, and the spread of one of them. A percentile that only
// some of the runs could tell is none beside one of all of them.
func (s *study) cell(g int, metrics []result.Figure) cell {
	values := s.Groups[g].Metrics
	if !slices.ContainsFunc(metrics, func(m result.Figure) bool { return len(values[m.Name].Values) > 0 }) {
		return cell{Text: "–"}
	}
	var c cell
	var medians []string
	for i, m := range metrics {
		v := values[m.Name]
		if len(v.Values) == 0 || len(v.Values) < len(values[metrics[0].Name].Values) {
			medians = append(medians, "–")
			continue
		}
		medians = append(medians, short(v.Median))
		if text := spread(v); text != "" && len(v.Values) > 1 && (len(metrics) == 1 || i == spreadOf) {
			c.Spread = text
			if len(metrics) > 1 {
				c.Spread = strings.TrimPrefix(m.Title, "served ") + " " + text
			}
		}
	}
	c.Text = strings.Join(medians, " / ")
	return c
}

// heading is the title of a column of metrics with one unit, and that.
func heading(metrics []result.Figure) string {
	title := metrics[0].Title
	for _, m := range metrics[1:] {
		title += " / " + strings.TrimPrefix(m.Title, "served ")
	}
	if u := unit(metrics[0].Unit); u != "" {
		title += ", " + u
	}
	return title
}

func (s *study) facts() []fact {
	sc := s.Scenario
	facts := []fact{
		machineFact("machine", s.Machine),
		{"service", s.Version},
		{"binary, SHA-256", s.Binary},
		{"measured", fmt.Sprintf("%s to %s", moment(s.Started), moment(s.Finished))},
		{"runs", fmt.Sprintf("each of %d combinations %s, interleaved: %s after %s of warm-up, seed %d",
			len(s.Groups), english.Plural(sc.Repetitions, "time", "times"), sc.Duration, sc.Warmup, sc.Seed)},
		{"good is", fmt.Sprintf("answered %s within %s; clients give up after %s", serving(string(s.Good)), sc.SLO, sc.Timeout)},
	}
	if slices.ContainsFunc(slices.Concat(s.Runs...), func(r *Run) bool { return len(r.ProfileFiles) > 0 }) {
		facts = append(facts, fact{"profiles", "go tool pprof -http=: runs/FILE.cpu.pb.gz, in the folder of the comparison"})
	}
	for _, l := range s.loads {
		facts = append(facts, fact{"capacity (1x)" + around(", ", l.name, ""), amountOrNothing(s.Capacity[s.Groups[l.groups[0]].Load], "1/s")})
	}
	return append(facts, fact{"command", s.Command})
}

// machineFact is that of a machine.
func machineFact(name string, m machine.Machine) fact {
	memory := around("", amountOrNothing(float64(m.Memory), "bytes"), " of memory")
	return fact{name, enumerate(m.CPU, count(m.CPUs, "CPU", "CPUs"), memory, m.Kernel, m.Go)}
}

func amountOrNothing(v float64, u string) string {
	if v == 0 {
		return ""
	}
	return amount(v, u)
}
