// Command plot draws a comparison, or a simulation, as one SVG for a page of the
// documentation:
//
//	go run ./loadtest/report/plot FOLDER FILE.svg
//
// If the rates differ, goodput over the offered load, both in multiples of the
// capacity; else goodput over time. Closed loops are left out. There is a panel for each load. Strategies
// whose lines are nowhere farther apart than one can see are one line.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plot FOLDER FILE.svg")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(folder, file string) error {
	panels, err := read(folder)
	if err != nil {
		return err
	}
	return os.WriteFile(file, draw(panels), 0o644)
}

// panel is one chart.
type panel struct {
	title, x string
	relative bool // x is in multiples of the capacity, on a logarithmic axis
	lines    []line
}

// line is what one strategy did, or several did alike.
type line struct {
	names  []string
	points []point
}

// point has a multiple of the capacity, or a time in seconds, and the goodput in
// multiples of the capacity.
type point struct{ x, y float64 }

var errNoCapacity = errors.New("the rates are not multiples of a capacity")

// read returns the panels of the comparison in a folder.
func read(folder string) ([]panel, error) {
	c, err := lab.LoadComparison(folder)
	if err != nil {
		return nil, err
	}
	// A closed loop has its capacity beside the lines, and is none.
	c.Groups = slices.DeleteFunc(c.Groups, func(g lab.Group) bool { return g.Combination.Rate == "max" })
	if len(c.Groups) == 0 {
		return nil, errNoCapacity
	}
	var rates []string
	for _, g := range c.Groups {
		if !slices.Contains(rates, g.Combination.Rate) {
			rates = append(rates, g.Combination.Rate)
		}
	}
	var panels []panel
	for i := range c.Groups {
		g := &c.Groups[i]
		multiple, relative := strings.CutSuffix(g.Combination.Rate, "x")
		x, err := strconv.ParseFloat(multiple, 64)
		capacity := c.Capacity[g.Load]
		if err != nil || !relative || !(capacity > 0) {
			return nil, fmt.Errorf("%s: %w", g.Label, errNoCapacity)
		}
		p := panelOf(&panels, g.Load)
		if len(rates) > 1 {
			p.relative, p.x = true, "offered load, × capacity"
			l := p.lineOf(g.Combination.Strategy)
			l.points = append(l.points, point{x, g.Metrics["goodput_rps"].Median / capacity})
			continue
		}
		p.x = "seconds"
		if p.lineOf(g.Combination.Strategy).points, err = overTime(folder, g.Runs, capacity); err != nil {
			return nil, err
		}
	}
	for i := range panels {
		for _, l := range panels[i].lines {
			slices.SortFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		}
		panels[i].lines = merged(panels[i].lines)
	}
	return panels, nil
}

func panelOf(panels *[]panel, title string) *panel {
	i := slices.IndexFunc(*panels, func(p panel) bool { return p.title == title })
	if i < 0 {
		i = len(*panels)
		*panels = append(*panels, panel{title: title})
	}
	return &(*panels)[i]
}

func (p *panel) lineOf(name string) *line {
	i := slices.IndexFunc(p.lines, func(l line) bool { return l.names[0] == name })
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, line{names: []string{name}})
	}
	return &p.lines[i]
}

// overTime returns the mean goodput of several runs for each of their intervals.
func overTime(folder string, runs []string, capacity float64) ([]point, error) {
	var points []point
	for _, run := range runs {
		result, err := result.Load(filepath.Join(folder, run))
		if err != nil {
			return nil, err
		}
		for i, interval := range result.Timeline {
			if i == len(points) {
				points = append(points, point{x: (float64(i) + 0.5) * result.TimelineStep})
			}
			points[i].y += float64(interval.Good) / result.TimelineStep / capacity / float64(len(runs))
		}
	}
	return points, nil
}

// visible is how far apart two lines are that one can tell apart.
const visible = 0.05

// merged makes one line of those that look alike.
func merged(lines []line) []line {
	var distinct []line
	for _, l := range lines {
		i := slices.IndexFunc(distinct, func(d line) bool { return alike(d.points, l.points) })
		if i < 0 {
			distinct = append(distinct, l)
			continue
		}
		distinct[i].names = append(distinct[i].names, l.names...)
	}
	return distinct
}

// alike reports whether lines look the same where they can be seen.
func alike(a, b []point) bool {
	return slices.EqualFunc(a, b, func(a, b point) bool {
		return a.x == b.x && max(min(a.y, yEnd)-min(b.y, yEnd), min(b.y, yEnd)-min(a.y, yEnd)) < visible
	})
}
