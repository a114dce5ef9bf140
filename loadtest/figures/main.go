// Command figures writes the tables of pages from what the lab has measured, so that
// no figure is typed and each says where it is from:
//
//	go run ./loadtest/figures docs/strategies.md
//
// A table stands between two comments of the page:
//
//	<!-- table reports/load rows="strategy" columns="rate" cells="{good} · {served_p99_ms}" -->
//	<!-- end of table -->
//
// The first names the folder of a comparison or simulation, and
//
//   - rows and columns: settings as comparison.json spells them; in columns also share,
//     for a class, kind of client or operation each;
//   - cells: text in which {NAME} stands for the median of a metric of
//     comparison.json, {good} for the goodput, of the lesser of what was asked and what
//     can be done, {sent_good} for the same from when requests are sent, and {good%} for
//     the part of a share that was good;
//   - only: settings that all must have, "rate=0.9x|2x; mix=get=100".
//
// Rows of the same figures become one. A figure is marked if in one of its runs the
// generator was late: if 1% of the requests left it more than a tenth of the
// objective after their time. No run is left out.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/loadtest/lab"
)

func main() {
	for _, page := range os.Args[1:] {
		if err := rewrite(page); err != nil {
			_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", page, err)
			os.Exit(1)
		}
	}
}

var (
	block     = regexp.MustCompile(`(?s)(<!-- table (\S+)((?: +\w+="[^"]*")*) *-->\n)(.*?)(<!-- end of table -->)`)
	attribute = regexp.MustCompile(`(\w+)="([^"]*)"`)
	slot      = regexp.MustCompile(`\{[a-z0-9_]+%?\}`)
)

func rewrite(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	var failed error
	out := block.ReplaceAllStringFunc(string(text), func(whole string) string {
		part := block.FindStringSubmatch(whole)
		table, err := render(part[2], part[3])
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("the table of %s: %w", part[2], err))
			return whole
		}
		return part[1] + "\n" + table + "\n" + part[5]
	})
	if n := strings.Count(string(text), "<!-- table "); n != len(block.FindAllString(string(text), -1)) {
		failed = errors.Join(failed, fmt.Errorf("of %d comments that begin a table, some are not as they must be, or have no <!-- end of table -->", n))
	}
	if failed != nil {
		return failed
	}
	return os.WriteFile(page, []byte(out), 0o644) //nolint:gosec // a page of the documentation is for everybody
}

// table is what a comment asks for.
type table struct {
	rows, columns []string
	cells         string
	only          map[string][]string
}

// cell is a group, or a share of one.
type cell struct {
	from  *lab.Comparison
	group *lab.Group
	share string
}

// render returns what stands between the comments that name a source.
func render(from, attributes string) (string, error) {
	from = filepath.FromSlash(from)
	t, err := parse(attributes)
	if err != nil {
		return "", err
	}
	c, err := lab.LoadComparison(from)
	if err != nil {
		return "", err
	}
	if c.Partial != "" {
		return "", fmt.Errorf("it is partial: %s", c.Partial)
	}
	return t.render(c)
}

// parse reads what a comment says of its table.
func parse(attributes string) (*table, error) {
	t := &table{rows: []string{"strategy"}, columns: []string{"rate"}, cells: "{good}", only: map[string][]string{}}
	for _, a := range attribute.FindAllStringSubmatch(attributes, -1) {
		switch name, value := a[1], a[2]; name {
		case "rows":
			t.rows = strings.Fields(value)
		case "columns":
			t.columns = strings.Fields(value)
		case "cells":
			t.cells = value
		case "only":
			for f := range strings.SplitSeq(value, ";") {
				field, values, _ := strings.Cut(strings.TrimSpace(f), "=")
				t.only[field] = strings.Split(values, "|")
			}
		default:
			return nil, fmt.Errorf("%s is not rows, columns, cells or only", name)
		}
	}
	return t, nil
}

func (t *table) render(c *lab.Comparison) (string, error) {
	var rows, columns [][]string
	cells := map[string]cell{} // by row and column
	for i := range c.Groups {
		g := &c.Groups[i]
		settings, err := settingsOf(g)
		if err != nil {
			return "", err
		}
		if !t.wants(settings) {
			continue
		}
		row := values(settings, t.rows)
		shares := []string{""}
		if slices.Contains(t.columns, "share") {
			shares = slices.Sorted(maps.Keys(g.Shares))
		}
		for _, share := range shares {
			settings["share"] = strings.TrimPrefix(strings.TrimPrefix(share, "client "), "priority ")
			column := values(settings, t.columns)
			if !contains(rows, row) {
				rows = append(rows, row)
			}
			if !contains(columns, column) {
				columns = append(columns, column)
			}
			cells[key(row, column)] = cell{c, g, share}
		}
	}
	text, err := t.write(rows, columns, cells)
	return text + "\n" + source(c) + "\n", err
}

// key is that of a cell.
func key(row, column []string) string { return fmt.Sprintf("%q %q", row, column) }

func (t *table) write(rows, columns [][]string, cells map[string]cell) (string, error) {
	type line struct{ names, figures []string }
	var lines []line
	late := false
	for _, row := range rows {
		l := line{names: row}
		for _, column := range columns {
			c, ok := cells[key(row, column)]
			text := ""
			if ok {
				var err error
				if text, err = c.fill(t.cells); err != nil {
					return "", err
				}
				if c.late() {
					late, text = true, text+" †"
				}
			}
			l.figures = append(l.figures, text)
		}
		// The last of the names may be several.
		same := slices.IndexFunc(lines, func(o line) bool {
			return slices.Equal(o.figures, l.figures) && slices.Equal(o.names[:len(o.names)-1], row[:len(row)-1])
		})
		if same >= 0 {
			lines[same].names = slices.Clone(lines[same].names)
			lines[same].names[len(row)-1] += ", " + row[len(row)-1]
			continue
		}
		lines = append(lines, l)
	}
	var b strings.Builder
	head := slices.Repeat([]string{""}, len(t.rows))
	for _, c := range columns {
		head = append(head, strings.TrimSpace(strings.Join(c, " ")))
	}
	write := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	write(head)
	write(slices.Repeat([]string{"---"}, len(head)))
	for _, l := range lines {
		write(append(slices.Clone(l.names), l.figures...))
	}
	if late {
		b.WriteString("\n†: in one of the runs the generator was late.\n")
	}
	return b.String(), nil
}

// source says where figures are from: the commit and the Go of what was measured, or of the
// lab where that is not ours, the day, and the machine.
func source(c *lab.Comparison) string {
	built := cmp.Or(c.Version, c.Lab, "no commit")
	if commit := commitAndGo.FindStringSubmatch(built); commit != nil {
		built = commit[1]
	}
	on := "in virtual time"
	if !strings.HasPrefix(c.Version, "simulated") {
		on = fmt.Sprintf("%d × %s", c.Machine.CPUs, cmp.Or(c.Machine.CPU, "an unknown processor"))
	}
	return fmt.Sprintf("*%s, %s, %s*", built, c.Finished.UTC().Format("2006-01-02"), on)
}

// commitAndGo is a part of what the programs say of their version.
var commitAndGo = regexp.MustCompile(`\(commit (\S+, go\S+)\)`)

func contains(all [][]string, one []string) bool {
	return slices.ContainsFunc(all, func(o []string) bool { return slices.Equal(o, one) })
}

// settingsOf returns the settings of a group as comparison.json spells them.
func settingsOf(g *lab.Group) (map[string]string, error) {
	text, err := json.Marshal(g.Combination)
	if err != nil {
		return nil, err
	}
	var raw map[string]any
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, value := range raw {
		out[name] = fmt.Sprint(value)
	}
	return out, nil
}

func (t *table) wants(settings map[string]string) bool {
	for field, values := range t.only {
		if !slices.Contains(values, settings[field]) {
			return false
		}
	}
	return true
}

func values(settings map[string]string, names []string) []string {
	var out []string
	for _, name := range names {
		v := settings[name]
		switch name {
		case "strategy":
			v = "`" + strings.TrimPrefix(v, "service:") + "`"
		case "rate":
			v = strings.Replace(v, "x", " ×", 1)
		}
		out = append(out, v)
	}
	return out
}

func (c cell) fill(text string) (string, error) {
	var failed error
	out := slot.ReplaceAllStringFunc(text, func(slot string) string {
		s, err := c.figure(strings.Trim(slot, "{}"))
		failed = errors.Join(failed, err)
		return s
	})
	return out, failed
}

func (c cell) figure(name string) (string, error) {
	if name == "good%" {
		return strconv.FormatFloat(c.group.Shares[c.share].GoodPercent(), 'f', 0, 64), nil
	}
	metric := name
	switch name {
	case "good":
		metric = lab.Goodput
	case "sent_good":
		metric = lab.SentGoodput
	}
	m, known := lab.MetricNamed(metric)
	if !known {
		return "", fmt.Errorf("{%s} is not good, sent_good or a metric", name)
	}
	v, measured := c.group.Metrics[metric]
	if !measured {
		return "–", nil
	}
	if metric == name {
		return scale(m.Unit, v.Median), nil
	}
	possible := c.group.Metrics["offered_rps"].Median
	if capacity := c.from.Capacity[c.group.Load]; capacity > 0 {
		possible = min(possible, capacity)
	}
	return strconv.FormatFloat(v.Median/possible, 'f', 2, 64), nil
}

// late reports whether the generator was, in one of the runs.
func (c cell) late() bool {
	return c.group.Metrics["generator_late_p99_ms"].High > float64(c.from.Scenario.SLO.Milliseconds())/10
}

// scale writes a figure with two to three digits that count.
func scale(unit string, v float64) string {
	suffix := ""
	switch {
	case unit == "ms" && v >= 1000:
		v, suffix = v/1000, " s"
	case unit == "1/s" && v >= 10_000:
		v, suffix = v/1000, " k"
	case unit == "us":
		suffix = " µs"
	case unit == "bytes" && v >= 1<<20:
		v, suffix = v/(1<<20), " MiB"
	case unit == "bytes":
		v, suffix = v/(1<<10), " KiB"
	}
	digits := 0
	switch {
	case v < 1 && v > 0, suffix == " s" && v < 10:
		digits = 2
	case v < 10 && unit != "1/s":
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + suffix
}
