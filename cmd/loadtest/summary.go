package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/report"
)

// show shows a comparison, if anything was run, and writes its report into its folder.
func (s *session) show(c *lab.Comparison, dir string) error {
	if !slices.ContainsFunc(c.Groups, func(g lab.Group) bool { return len(g.Runs) > 0 }) {
		return nil
	}
	s.summarize(c)
	return s.report(filepath.Join(dir, "report.html"), filepath.Join(dir, "report.md"), dir)
}

// summarize shows each workload as a table: its combinations against the best.
func (s *session) summarize(c *lab.Comparison) {
	byWorkload := map[string][]int{}
	var workloads []string
	for i, g := range c.Groups {
		if len(byWorkload[g.Workload]) == 0 {
			workloads = append(workloads, g.Workload)
		}
		byWorkload[g.Workload] = append(byWorkload[g.Workload], i)
	}
	for _, workload := range workloads {
		groups := byWorkload[workload]
		verdict := c.Verdict(groups)
		_, _ = fmt.Fprintf(s.out, "%s\n", workload)
		table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		// The column is only there where it says something.
		two, sent := slices.ContainsFunc(groups, func(i int) bool { return c.Groups[i].TwoClocks() }), ""
		if two {
			sent = "as the service sees it\t"
		}
		_, _ = fmt.Fprintf(table, "  \tgoodput/s\t%sagainst best\tserved p99 ms\tnon-2xx %%\tCPU us served\tallocs\n", sent)
		for _, i := range groups {
			g := &c.Groups[i]
			if two {
				sent = cell(g, lab.SentGoodput, 0) + "\t"
			}
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%s%s\t%s\t%s\t%s\t%s\n", name(g), cell(g, lab.Goodput, 0), sent, against(c, &verdict, i),
				cell(g, lab.ServedP99, 2), cell(g, "non2xx_percent", 1), cell(g, "server_cpu_served_us", 1), cell(g, "server_allocs", 1))
		}
		_ = table.Flush()
		if doubt := report.Doubt(&verdict, c, func(i int) string { return name(&c.Groups[i]) }); doubt != "" {
			_, _ = fmt.Fprintln(s.out, " ", doubt)
		}
		s.shares(c, groups)
	}
}

// shares shows how each kind of clients, each priority and each operation fared.
func (s *session) shares(c *lab.Comparison, groups []int) {
	if !slices.ContainsFunc(groups, func(i int) bool { return len(c.Groups[i].Shares) > 0 }) {
		return
	}
	_, _ = fmt.Fprintln(s.out, "  good, of what each asked for")
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, i := range groups {
		g := &c.Groups[i]
		parts := []string{"  " + name(g)}
		for _, who := range slices.Sorted(maps.Keys(g.Shares)) {
			parts = append(parts, fmt.Sprintf("%s %.1f%%", who, g.Shares[who].GoodPercent()))
		}
		_, _ = fmt.Fprintln(table, strings.Join(parts, "\t"))
	}
	_ = table.Flush()
}

// name tells a group apart from the others of its workload.
func name(g *lab.Group) string {
	load := strings.Split(g.Workload, ", ")
	own := slices.DeleteFunc(strings.Split(g.Series, ", "), func(part string) bool { return slices.Contains(load, part) })
	return cmp.Or(strings.Join(own, ", "), g.Combination.Strategy)
}

// cell is a median, with the smallest and the largest value if they differ.
func cell(g *lab.Group, metric string, digits int) string {
	m, ok := g.Metrics[metric]
	if !ok {
		return "–"
	}
	number := func(v float64) string { return fmt.Sprintf("%.*f", digits, v) }
	median, low, high := number(m.Median), number(m.Low), number(m.High)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, low, high)
}

// against says how a group does against the best of its workload, in goodput or,
// where that cannot be told apart, in served p99. With too few runs that is the
// highest median, and no proof.
func against(c *lab.Comparison, v *lab.Verdict, group int) string {
	change := func(d lab.Difference) string { return fmt.Sprintf("%+.1f%%", 100*(d.Ratio.Median-1)) }
	of := func(d lab.Difference) bool { return d.B == group }
	if i := slices.IndexFunc(v.Less, of); i >= 0 {
		return change(v.Less[i])
	}
	if i := slices.IndexFunc(v.Slower, of); i >= 0 {
		return "p99 " + change(v.Slower[i])
	}
	switch {
	case !slices.Contains(v.Measured, group):
		return "not run"
	case len(v.Top) == 0:
		return ""
	case v.TooFew && c.Groups[group].Metrics[lab.Goodput].Median == c.Groups[v.Top[0]].Metrics[lab.Goodput].Median:
		return "highest, too few runs"
	case v.TooFew:
		return change(c.Differences(lab.Goodput, v.Top[0], []int{group})[0]) + ", too few runs"
	case len(v.Top) == 1:
		return "best"
	default:
		return fmt.Sprintf("one of %d not told apart", len(v.Top))
	}
}
