package report

import (
	"fmt"
	"slices"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

// data is what the page's script draws. The names are short where there are
// thousands of them.
type data struct {
	Charts map[string]*chart `json:"charts"`
	// Parts are those of bars. The last is unsampled.
	Parts []profiles.Part `json:"parts"`

	notes []string // what could not be drawn, since they were last taken
}

func newData() *data {
	return &data{Charts: map[string]*chart{}, Parts: append(slices.Clone(parts), unsampled)}
}

func (d *data) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

var parts = profiles.Costs

// unsampled is what was measured of a cost beyond all parts.
const unsampled profiles.Part = "not sampled, admin plane"

// chart is what one chart shows.
type chart struct {
	Kind chartKind `json:"kind"`
	X    axis      `json:"x,omitzero"`
	Y    axis      `json:"y"`
	// Ideal draws the line y = x.
	Ideal  bool     `json:"ideal,omitempty"`
	Mark   *mark    `json:"mark,omitempty"`
	Series []series `json:"series,omitempty"`
	Bars   []bar    `json:"bars,omitempty"`
}

type chartKind string

const (
	linesChart chartKind = "lines"
	barsChart  chartKind = "bars"  // with their spread
	stackChart chartKind = "stack" // each bar divided by part
)

type axis struct {
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Scale scale  `json:"scale,omitempty"`
	// End is where the axis ends; if it is 0, at the first tick beyond all values.
	End num `json:"end,omitempty"`
}

// scale is how an axis is divided; linear by default.
type scale string

const (
	logarithmic scale = "log"
	fromZero    scale = "log1p"      // logarithmic, of 1 more than the value
	percentile  scale = "percentile" // HdrHistogram's: logarithmic, of 1/(1-p)
)

// mark is a vertical line.
type mark struct {
	X     num    `json:"x"`
	Label string `json:"label"`
}

// series is a line: points of x, y and, if there are several runs, the smallest
// and the largest y. Dots are single points beside it; those with a third
// coordinate are drawn as crosses.
type series struct {
	Name   string  `json:"name"`
	Style  int     `json:"style"`
	Points [][]num `json:"points"`
	Dots   [][]num `json:"dots,omitempty"`
}

// bar is one of a bar chart. Head begins a new set of bars.
type bar struct {
	Label string `json:"label"`
	Head  string `json:"head,omitempty"`
	Style int    `json:"style"`
	// Value, Low and High are of a bar; Value is the end of a stack, and Values
	// are by data.Parts.
	Value  num   `json:"value"`
	Low    num   `json:"low"`
	High   num   `json:"high"`
	Values []num `json:"values,omitempty"`
}

// add stores a chart and returns its figure; nothing if it would be empty.
func (d *data) add(title, caption string, c *chart) []figure {
	drawn := len(c.Bars) > 0
	for _, s := range c.Series {
		drawn = drawn || len(s.Points) > 0
	}
	if !drawn {
		return nil
	}
	key := fmt.Sprintf("c%d", len(d.Charts)+1)
	d.Charts[key] = c
	width := 6
	if c.Kind == barsChart {
		width = 3 // there are four of them
	} else if c.X.Title == offered.Title {
		width = 4 // there are three of them
	}
	return []figure{{Chart: key, Title: title, Caption: caption, Width: width}}
}
