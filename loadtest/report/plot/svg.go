package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
)

// The measures of a panel, in pixels, and where its vertical axis ends.
const (
	width, height      = 860, 300
	left, top          = 50, 30
	plotWide, plotHigh = 520, 220
	yEnd               = 1.2
)

// colors can be told from white and from black, and from each other by people
// who do not see all of them; so can the dashes.
var (
	colors = []string{"#3b7dd8", "#d9622b", "#1f9e89", "#b0529e", "#b08a00", "#7a7a7a", "#c43d4b"}
	dashes = []string{"", "7 4", "2 3", "10 3 2 3"}
)

const style = `<style>
text{font:13px sans-serif;fill:#333}.grid{stroke:#8884;fill:none}.line{fill:none;stroke-width:2.2}
@media (prefers-color-scheme:dark){text{fill:#ccc}}
</style>
`

// draw returns the panels, one below the other, as an SVG.
func draw(panels []panel) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`+"\n%s",
		width, height*len(panels), style)
	fmt.Fprintf(&b, `<clipPath id="c"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`+"\n", left, top, plotWide, plotHigh+2)
	for i := range panels {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*height)
		panels[i].draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (p *panel) draw(b *bytes.Buffer) {
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
	}
	grid := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %.1fL%.1f %.1f"/>`+"\n", x1, y1, x2, y2)
	}
	x, ticks := p.axis()
	y := func(v float64) float64 { return top + plotHigh*(1-v/yEnd) }
	text(left, 18, "start", "goodput, × capacity: "+p.title)
	for v := 0.; v <= yEnd; v += 0.2 {
		grid(left, y(v), left+plotWide, y(v))
		text(left-8, y(v)+4, "end", fmt.Sprintf("%.1f", v))
	}
	for _, v := range ticks {
		grid(x(v), top, x(v), top+plotHigh)
		text(x(v), top+plotHigh+18, "middle", fmt.Sprint(v))
	}
	text(left+plotWide/2, top+plotHigh+38, "middle", p.x)
	below := float64(top)
	for i, l := range p.lines {
		stroke := fmt.Sprintf(`stroke="%s" stroke-dasharray="%s"`, colors[i%len(colors)], dashes[i%len(dashes)])
		var d strings.Builder
		for j, at := range l.points {
			d.WriteByte("ML"[min(j, 1)])
			fmt.Fprintf(&d, "%.1f %.1f", x(at.x), y(at.y))
		}
		fmt.Fprintf(b, `<path class="line" clip-path="url(#c)" %s d="%s"/>`+"\n", stroke, d.String())
		fmt.Fprintf(b, `<path class="line" %s d="M%d %.1fh26"/>`+"\n", stroke, left+plotWide+16, below+6)
		for names := l.names; len(names) > 0; below += 19 {
			n := min(3, len(names)) // what fits into a row
			row := strings.Join(names[:n], ", ")
			if names = names[n:]; len(names) > 0 {
				row += ","
			}
			text(left+plotWide+50, below+10, "start", row)
		}
		below += 6
	}
}

// axis returns where a value of x is drawn, and which are named.
func (p *panel) axis() (at func(x float64) float64, ticks []float64) {
	points := p.lines[0].points
	first, last := points[0].x, points[len(points)-1].x
	if !p.relative {
		for v := 0.; v <= last; v += 2 {
			ticks = append(ticks, v)
		}
		return func(x float64) float64 { return left + plotWide*x/(last+points[0].x) }, ticks
	}
	for _, at := range points {
		ticks = append(ticks, at.x)
	}
	return func(x float64) float64 { return left + plotWide*math.Log(x/first)/math.Log(last/first) }, ticks
}
