package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize"
)

// page is what a report says, in either of its forms.
type page struct {
	Title    string
	Sections []section
}

// section is about one input.
type section struct {
	ID    string // of the page; unique
	Title string
	// Partial says why it is not all that was asked for.
	Partial string
	// Headline says the finding in a sentence.
	Headline    string
	Question    string
	Expectation string
	// Verdicts has a row for each load, if there are several. Told says what the runs could
	// have detected, if there is one.
	Verdicts *table
	Told     string
	Rule     string
	// Cautions say why the finding is not to be trusted.
	Cautions []string
	// Notes say what is missing.
	Notes []string

	Overview []figure
	Panels   []panel
	Tables   []table
	// Summary are the first of Facts, which a terminal shows as well.
	Summary []fact
	Facts   []fact
}

// panel is a set of figures of which one is shown at a time.
type panel struct {
	Label   string
	Figures []figure
}

// figure is the place of a chart.
type figure struct {
	Chart   string // the key in data.Charts
	Title   string
	Caption string
}

type table struct {
	Caption string
	Head    []string
	Rows    []row
	Wraps   bool  // its cells are text
	Brief   []int // the columns that a terminal shows; nil for all
}

type row struct {
	Best  bool // or not significantly different from the best
	Cells []cell
}

type cell struct{ Text, Spread string }

type fact struct{ Name, Value string }

// newPage sorts the input for being shown: what is said, and what is drawn.
func newPage(in *Input) (page, *data) {
	d := newData()
	p := page{Title: "Load report"}
	add := func(s section) {
		s.ID = fmt.Sprintf("s%d", len(p.Sections)+1)
		s.Notes, d.notes = append(s.Notes, d.notes...), nil
		unknown := func(f fact) bool { return f.Value == "" }
		s.Summary = slices.DeleteFunc(s.Summary, unknown)
		s.Facts = slices.Concat(s.Summary, slices.DeleteFunc(s.Facts, unknown))
		p.Sections = append(p.Sections, s)
	}
	for _, c := range in.Comparisons {
		add(newStudy(c).section(d))
	}
	for _, s := range in.Saturations {
		add(s.section())
	}
	for _, r := range in.Runs {
		add(r.section(d))
	}
	if len(p.Sections) == 1 {
		p.Title = p.Sections[0].Title
	}
	return p, d
}

// counted lists counts, the largest first.
func counted[K ~string](counts map[K]int64) []row {
	var rows []row
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b K) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) }) {
		rows = append(rows, row{Cells: []cell{{Text: string(name)}, {Text: humanize.Comma(counts[name])}}})
	}
	return rows
}
