package report

import "fmt"

// data is what the page's script draws. The names are short where there are
// thousands of them.
type data struct {
	Charts map[string]*chart `json:"charts"`

	notes []string // what could not be drawn, since they were last taken
}

func newData() *data { return &data{Charts: map[string]*chart{}} }

func (d *data) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// chart is what one chart shows.
type chart struct {
	X axis `json:"x,omitzero"`
	Y axis `json:"y"`
	// Ideal draws the line y = x.
	Ideal  bool     `json:"ideal,omitempty"`
	Series []series `json:"series,omitempty"`
}

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
	percentile  scale = "percentile" // HdrHistogram's: logarithmic, of 1/(1-p)
)

// series is a line: points of x, y and, if there are several runs, the smallest
// and the largest y.
type series struct {
	Name   string  `json:"name"`
	Style  int     `json:"style"`
	Points [][]num `json:"points"`
}

// add stores a chart and returns its figure; nothing if it would be empty.
func (d *data) add(title, caption string, c *chart) []figure {
	drawn := false
	for _, s := range c.Series {
		drawn = drawn || len(s.Points) > 0
	}
	if !drawn {
		return nil
	}
	key := fmt.Sprintf("c%d", len(d.Charts)+1)
	d.Charts[key] = c
	return []figure{{Chart: key, Title: title, Caption: caption}}
}
