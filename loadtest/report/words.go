package report

import (
	"fmt"
	"slices"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
)

// serving says which answers serve, by the codes that are good if that was said.
func serving(good string) string {
	if good != "" {
		return good
	}
	return "2xx, 304, or 404 to a GET"
}

// rule says how the best is found, in the words of the report.
var rule = fmt.Sprintf("One setting beats another if it is proven to be better in the first of these in which they differ by %.0f%% or more: goodput, "+
	"which share of the important requests was good, served p99. Settings are compared within each repetition. The probability that anything here is "+
	"called different by chance is at most %g, over all settings, loads and these three. What is not proven may still be there.", 100*lab.Same, lab.Alpha)

// name gives the name of a group's setting.
func (s *study) name(group int) string { return s.setting[group] }

// verdicts has a row for each load: what did best there, and from which difference in goodput
// on its runs tell settings apart.
func (s *study) verdicts(found []lab.Verdict) table {
	t := table{Wraps: true, Head: []string{"load", "best, or not proven to be worse", "goodput, /s", "p99, ms", "told apart from"}}
	for i := range found {
		v := &found[i]
		if len(v.Top) == 0 {
			continue
		}
		var names []string
		for _, g := range v.Top {
			names = append(names, s.setting[g])
		}
		who := list(names)
		if len(names) == len(v.Measured) {
			who = "all"
		}
		best, p99 := s.Groups[v.Top[0]].Metrics, "–"
		if of, measured := best[result.ServedP99]; measured {
			p99 = short(of.Median)
		}
		t.Rows = append(t.Rows, row{Cells: []cell{
			{Text: s.workloads[i].name}, {Text: who}, {Text: short(best[result.Goodput].Median)}, {Text: p99}, {Text: v.Told()},
		}})
	}
	const latency = 3 // the column
	if !slices.ContainsFunc(t.Rows, func(r row) bool { return r.Cells[latency].Text != "–" }) {
		t.Head = slices.Delete(t.Head, latency, latency+1)
		for i := range t.Rows {
			t.Rows[i].Cells = slices.Delete(t.Rows[i].Cells, latency, latency+1)
		}
	}
	return t
}
