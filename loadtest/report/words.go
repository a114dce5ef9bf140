package report

import (
	"fmt"
	"strings"

	"github.com/spillway-go/spillway/loadtest/lab"
)

// The metrics that verdicts name.
const (
	goodput   = lab.Goodput
	servedP99 = lab.ServedP99
	cpu       = "server_cpu_served_us"
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

// verdicts has a row for each load: what did best there, and what its runs could have told.
func (s *study) verdicts(found []lab.Verdict) table {
	t := table{Head: []string{"load", "best, or not proven to be worse", "goodput, /s", "served p99, ms", "goodput is told apart from"}}
	goodputs, _ := lab.MetricNamed(goodput)
	p99, _ := lab.MetricNamed(servedP99)
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
		t.Rows = append(t.Rows, row{Cells: []cell{
			{Text: s.loadName(v.Workload)}, {Text: who}, s.cell(v.Top[0], []lab.Metric{goodputs}), s.cell(v.Top[0], []lab.Metric{p99}), {Text: v.Told()},
		}})
	}
	return t
}

// loadName is what tells a workload apart from the others.
func (s *study) loadName(workload string) string {
	for _, w := range s.workloads {
		if s.Groups[w.groups[0]].Workload == workload {
			return w.name
		}
	}
	return strings.TrimSpace(workload)
}
