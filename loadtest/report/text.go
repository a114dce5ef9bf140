package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text writes for a terminal what a report says in brief: the findings, what they are of, and
// the tables, without the columns that only a page has room for.
func Text(w io.Writer, in *Input) error {
	p, _ := newPage(in)
	var b bytes.Buffer
	for i := range p.Sections {
		p.Sections[i].text(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s *section) text(b *bytes.Buffer) {
	if s.Partial != "" {
		fmt.Fprintf(b, "PARTIAL: %s\n", s.Partial)
	}
	fmt.Fprintln(b, s.Headline)
	for _, said := range slices.Concat([]string{s.Told}, s.Cautions, s.Notes) {
		if said != "" {
			fmt.Fprintln(b, said)
		}
	}
	facts := table{}
	for _, f := range s.Summary {
		facts.Rows = append(facts.Rows, row{Cells: []cell{{Text: f.Name}, {Text: f.Value}}})
	}
	facts.text(b)
	if s.Verdicts != nil {
		s.Verdicts.text(b)
	}
	for i := range s.Tables {
		s.Tables[i].text(b)
	}
}

// text writes a table with columns as wide as they need to be.
func (t *table) text(b *bytes.Buffer) {
	if len(t.Rows) == 0 {
		return
	}
	fmt.Fprintln(b)
	if t.Caption != "" {
		fmt.Fprintln(b, t.Caption)
	}
	shown := func(column int) bool {
		return t.Brief == nil || slices.Contains(t.Brief, column)
	}
	var lines bytes.Buffer
	columns := tabwriter.NewWriter(&lines, 0, 0, 2, ' ', 0)
	write := func(cells []string) {
		var line []string
		for i, text := range cells {
			if shown(i) {
				line = append(line, text)
			}
		}
		_, _ = fmt.Fprintf(columns, "  %s\n", strings.Join(line, "\t")) // writes to memory
	}
	if t.Head != nil {
		write(t.Head)
	}
	for _, r := range t.Rows {
		var cells []string
		for _, c := range r.Cells {
			cells = append(cells, c.Text+around(" (", c.Spread, ")"))
		}
		write(cells)
	}
	_ = columns.Flush()
	for line := range strings.Lines(lines.String()) {
		fmt.Fprintln(b, strings.TrimRight(line, " \n"))
	}
}
