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
// The first names folders of comparisons or simulations, with commas between them, and
//
//   - rows and columns: settings as comparison.json spells them; in columns also share,
//     for a class, kind of client or operation each;
//   - cells: text in which {NAME} stands for the median of a metric of
//     comparison.json, {NAME-} for that with the lowest and the highest run, {good} for the
//     goodput, of the lesser of what was asked and what can be done, and {good%} for
//     the part of a share that was good;
//   - only: settings that all must have, "rate=0.9x|2x mix=get=100".
//
// In the place of a folder there may be a file .json of make peers, whose rows and
// columns are contestant and load.
//
// Where it names a file that ends in .md, as make peers writes, all of that file but its
// title takes the place of the table; one that ends in .txt stands there as it is.
// Nothing may follow the name then.
//
// Rows of the same figures become one. A figure is marked if in one of its runs the
// generator was late: if 1% of the requests left it more than a tenth of the
// objective after their time. No run is left out.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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
	slot      = regexp.MustCompile(`\{([a-z0-9_]+)([%-]?)\}`)
)

func rewrite(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	var failed error
	out := block.ReplaceAllStringFunc(string(text), func(whole string) string {
		part := block.FindStringSubmatch(whole)
		t := table{cells: "{good}"}
		table, err := t.render(part[2], part[3])
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

func (t *table) render(folders, attributes string) (string, error) {
	for _, a := range attribute.FindAllStringSubmatch(attributes, -1) {
		switch name, value := a[1], a[2]; name {
		case "rows":
			t.rows = strings.Fields(value)
		case "columns":
			t.columns = strings.Fields(value)
		case "cells":
			t.cells = value
		case "only":
			t.only = map[string][]string{}
			for _, f := range strings.Fields(value) {
				field, values, _ := strings.Cut(f, "=")
				t.only[field] = strings.Split(values, "|")
			}
		default:
			return "", fmt.Errorf("%s is not rows, columns, cells or only", name)
		}
	}
	if len(t.rows) == 0 {
		t.rows = []string{"strategy"}
	}
	if len(t.columns) == 0 {
		t.columns = []string{"rate"}
	}
	switch filepath.Ext(folders) {
	case ".md":
		text, err := os.ReadFile(filepath.FromSlash(folders))
		_, text, _ = bytes.Cut(text, []byte("\n\n"))
		return string(bytes.TrimSpace(text)) + "\n", err
	case ".txt":
		text, err := os.ReadFile(filepath.FromSlash(folders))
		return "```text\n" + strings.TrimSpace(string(text)) + "\n```\n", err
	}
	var sources []string
	var rows, columns [][]string
	cells := map[string]map[string]cell{}
	for folder := range strings.SplitSeq(folders, ",") {
		c, err := lab.LoadComparison(filepath.FromSlash(folder))
		if err != nil {
			return "", err
		}
		if c.Partial != "" {
			return "", fmt.Errorf("it is partial: %s", c.Partial)
		}
		sources = append(sources, source(c))
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
				shares = shares[:0]
				for name := range g.Shares {
					shares = append(shares, name)
				}
				slices.Sort(shares)
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
				r := strings.Join(row, "\x00")
				if cells[r] == nil {
					cells[r] = map[string]cell{}
				}
				cells[r][strings.Join(column, "\x00")] = cell{c, g, share}
			}
		}
	}
	return t.write(rows, columns, cells, sources)
}

func (t *table) write(rows, columns [][]string, cells map[string]map[string]cell, sources []string) (string, error) {
	type line struct{ names, figures []string }
	var lines []line
	late := false
	for _, row := range rows {
		l := line{names: row}
		for _, column := range columns {
			c, ok := cells[strings.Join(row, "\x00")][strings.Join(column, "\x00")]
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
	slices.Sort(sources)
	for _, s := range slices.Compact(sources) {
		b.WriteString("\n" + s + "\n")
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
	if g.Series != "" {
		out["contestant"], out["load"] = g.Series, g.Workload
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
			v = "`" + strings.TrimPrefix(strings.TrimPrefix(v, "peer:"), "service:") + "`"
		case "rate":
			v = strings.Replace(v, "x", " ×", 1)
		}
		out = append(out, v)
	}
	return out
}

func (c cell) fill(text string) (string, error) {
	var failed error
	out := slot.ReplaceAllStringFunc(text, func(whole string) string {
		part := slot.FindStringSubmatch(whole)
		s, err := c.figure(part[1], part[2])
		failed = errors.Join(failed, err)
		return s
	})
	return out, failed
}

// figure returns a figure; spread is "-" if its lowest and highest are wanted.
func (c cell) figure(name, spread string) (string, error) {
	if name == "good" && spread == "%" {
		return strconv.FormatFloat(c.group.Shares[c.share].GoodPercent(), 'f', 0, 64), nil
	}
	of, format := 1.0, scale
	metric := name
	if name == "good" {
		metric, format = "goodput_rps", func(_ string, v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
		of = c.group.Metrics["offered_rps"].Median
		if capacity := c.from.Capacity[c.group.Load]; capacity > 0 {
			of = min(of, capacity)
		}
	}
	m, known := lab.MetricNamed(metric)
	if !known {
		return "", fmt.Errorf("{%s} is not good or a metric", name)
	}
	v, measured := c.group.Metrics[metric]
	if !measured {
		return "–", nil
	}
	out := format(m.Unit, v.Median/of)
	if spread == "-" {
		out += " (" + format(m.Unit, v.Low/of) + "–" + format(m.Unit, v.High/of) + ")"
	}
	return out, nil
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
