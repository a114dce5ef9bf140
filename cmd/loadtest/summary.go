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
)

// show shows a comparison, if anything was run, and writes its report into its folder.
func (s *session) show(c *lab.Comparison, dir string) error {
	if !slices.ContainsFunc(c.Groups, func(g lab.Group) bool { return len(g.Runs) > 0 }) {
		return nil
	}
	s.summarize(c)
	return s.report(filepath.Join(dir, "report.html"), filepath.Join(dir, "report.md"), dir)
}

// column is one of a summary's tables. It is left out where no group has anything in it.
type column struct {
	title string
	of    func(g *lab.Group) string
}

var columns = []column{
	{"goodput/s", func(g *lab.Group) string { return cell(g, lab.Goodput, 0) }},
	{"as the service sees it", func(g *lab.Group) string {
		if !g.TwoClocks() {
			return ""
		}
		return cell(g, lab.SentGoodput, 0)
	}},
	{"good of the important %", func(g *lab.Group) string { return cell(g, lab.ImportantGood, 1) }},
	{"served p99 ms", func(g *lab.Group) string { return cell(g, lab.ServedP99, 2) }},
	{"non-2xx %", func(g *lab.Group) string { return cell(g, "non2xx_percent", 1) }},
	{"CPU us served", func(g *lab.Group) string { return cell(g, "server_cpu_served_us", 1) }},
	{"allocs", func(g *lab.Group) string { return cell(g, "server_allocs", 1) }},
}

// summarize says in a sentence what was found, and shows each load as a table: its settings
// against the best.
func (s *session) summarize(c *lab.Comparison) {
	verdicts := c.Verdicts()
	named := func(i int) string { return name(&c.Groups[i]) }
	_, _ = fmt.Fprintln(s.out, lab.Headline(verdicts, named))
	for i := range verdicts {
		v := &verdicts[i]
		_, _ = fmt.Fprintf(s.out, "%s\n", v.Workload)
		head, rows := []string{"  "}, make([][]string, len(v.Groups))
		for at, g := range v.Groups {
			rows[at] = []string{"  " + named(g)}
		}
		add := func(title string, of func(g int) string) {
			var cells []string
			for _, g := range v.Groups {
				cells = append(cells, of(g))
			}
			if strings.Join(cells, "") == "" {
				return
			}
			head = append(head, title)
			for at := range rows {
				rows[at] = append(rows[at], cmp.Or(cells[at], "–"))
			}
		}
		add("against the best", func(g int) string { return v.Against(g, named) })
		for _, column := range columns {
			add(column.title, func(g int) string { return column.of(&c.Groups[g]) })
		}
		table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{head}, rows...) {
			_, _ = fmt.Fprintln(table, strings.Join(row, "\t"))
		}
		_ = table.Flush()
		if told := v.Told(); strings.HasSuffix(told, "%") {
			_, _ = fmt.Fprintf(s.out, "  %d runs tell goodput apart that differs by %s or more\n", v.Runs, told)
		} else if told != "" {
			_, _ = fmt.Fprintln(s.out, " ", told)
		}
		s.shares(c, v.Groups)
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

// cell is a median, with the smallest and the largest value if they differ; nothing if it
// was not measured, or if all is 0.
func cell(g *lab.Group, metric string, digits int) string {
	m, ok := g.Metrics[metric]
	if !ok || metric != lab.Goodput && m.High == 0 {
		return ""
	}
	number := func(v float64) string { return fmt.Sprintf("%.*f", digits, v) }
	median, low, high := number(m.Median), number(m.Low), number(m.High)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, low, high)
}
