package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// report writes the tables.
func report(to io.Writer, rows []row, worst int) error {
	w := bufio.NewWriter(to)
	goodputs(w, rows)
	refusals(w, rows)
	extremes(w, rows, worst)
	return w.Flush()
}

func write(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // errors are seen by Flush

// where is a part of the cells.
type where struct {
	name string
	has  func(*row) bool
}

const fits = "connections × work ≤ workers × objective"

// goodputs says in how many cells auto has nearly the goodput of the best.
func goodputs(w io.Writer, rows []row) {
	write(w, "| goodput, of the best | from | cells | ≥ 0.97 | ≥ 0.9 |\n|---|---|---|---|---|\n")
	for _, part := range []where{
		{fits, func(r *row) bool { return r.fits() }},
		{"more connections", func(r *row) bool { return !r.fits() }},
	} {
		for clock, from := range [clocks]string{service: "arrival", schedule: "the schedule"} {
			n, near, nearly := 0, 0, 0
			for i := range rows {
				r := &rows[i]
				if !part.has(r) || !r.judged(clock) {
					continue
				}
				n++
				if r.ratio(clock) >= 0.97 {
					near++
				}
				if r.ratio(clock) >= 0.9 {
					nearly++
				}
			}
			write(w, "| %s | %s | %d | %s | %s |\n", part.name, from, n, percent(near, n), percent(nearly, n))
		}
	}
}

// refusals says who is refused although all could be served.
func refusals(w io.Writer, rows []row) {
	parts := []where{{"0.5 ×", func(r *row) bool { return r.load == 0.5 }}}
	for _, shape := range shapes {
		parts = append(parts, where{"0.9 ×, " + shape, func(r *row) bool { return r.load == 0.9 && r.shape == shape }})
	}
	parts = append(parts, where{fits, func(r *row) bool { return r.fits() }})
	write(w, "\n| refused by `auto` | cells | some | over 0.5%% | at most |\n|---|---|---|---|---|\n")
	for _, part := range parts {
		n, some, over, most := 0, 0, 0, 0.
		for i := range rows {
			r := &rows[i]
			if !part.has(r) {
				continue
			}
			n++
			if r.auto.refused > 0 {
				some++
			}
			if r.auto.refused > 0.005 {
				over++
			}
			most = max(most, r.auto.refused)
		}
		write(w, "| %s | %d | %d | %d | %.2f%% |\n", part.name, n, some, over, 100*most)
	}
}

// extremes shows the cells in which auto has least of the best.
func extremes(w io.Writer, rows []row, worst int) {
	judged := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !r.judged(service) })
	slices.SortFunc(judged, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.ratio(service), b.ratio(service)), cmp.Compare(a.String(), b.String()))
	})
	write(w, "\n| the worst | of the best | `auto` | the best | from the schedule | refused |\n|---|---|---|---|---|---|\n")
	for i := range judged[:min(worst, len(judged))] {
		r := &judged[i]
		b := &r.best[service]
		write(w, "| %v | %.3f | %.3f | %.3f `%s` | %.3f, %.3f | %.1f%%, %.1f%% |\n", r.cell, r.ratio(service), r.auto.good[service],
			b.good[service], b.strategy, r.auto.good[schedule], b.good[schedule], 100*r.auto.refused, 100*b.refused)
	}
}

func percent(n, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(of))
}
