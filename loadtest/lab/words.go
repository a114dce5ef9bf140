package lab

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/spillway-go/spillway/loadtest/result"
)

// Against says in a few words how a group did against the best of its load.
func (v *Verdict) Against(group int, name func(group int) string) string {
	if !slices.Contains(v.Measured, group) {
		return "not run"
	}
	if len(v.Top) == 0 {
		return ""
	}
	at := slices.IndexFunc(v.Others, func(d Difference) bool { return d.B == group })
	if at < 0 {
		if slices.ContainsFunc(v.Others, func(d Difference) bool { return !d.Same && !d.Proven() }) {
			return "highest goodput"
		}
		return "best"
	}
	d := &v.Others[at]
	if d.Same {
		return "the same"
	}
	said := map[string]string{result.Goodput: "", result.ImportantGood: "important ", result.ServedP99: "p99 "}[d.Metric] + change(d.Ratio)
	if d.A != v.Top[0] {
		said += " against " + name(d.A)
	}
	if !d.Proven() {
		said += ", not proven"
	}
	return said
}

// change writes by how much a ratio is above or below 1.
func change(ratio float64) string {
	switch by := 100 * (ratio - 1); {
	case math.IsInf(ratio, 1):
		return "more than none"
	case ratio >= 3:
		return fmt.Sprintf("%.3g×", ratio)
	case math.Abs(by) < 10:
		return strings.Replace(fmt.Sprintf("%+.1f%%", by), "-", "−", 1)
	default:
		return strings.Replace(fmt.Sprintf("%+.0f%%", by), "-", "−", 1)
	}
}

// Told says from which difference on the runs of a load tell its settings apart.
func (v *Verdict) Told() string {
	switch {
	case len(v.Top) == 0:
		return ""
	case v.Runs < ProofRuns:
		return fmt.Sprintf("nothing could be told: %d %s fewer than %d", v.Runs, english.PluralWord(v.Runs, "run is", "runs are"), ProofRuns)
	case math.IsInf(v.Tells, 1):
		return fmt.Sprintf("nothing could be told: the spread is too great for %d runs", v.Runs)
	default:
		return fmt.Sprintf("%.2g%%", 100*v.Tells)
	}
}

// Headline says in one sentence which settings did best over all loads that have something
// to compare. Name gives that of a group's setting.
func Headline(verdicts []Verdict, name func(group int) string) string {
	var compared []Verdict
	settings := []string{}
	measured, served, named := 0, false, false
	most := 0.0 // from which difference on all loads could show one
	for _, v := range verdicts {
		for _, g := range v.Groups {
			if !slices.Contains(settings, name(g)) {
				settings = append(settings, name(g))
			}
		}
		measured += len(v.Measured)
		served = served || len(v.Top) > 0 || len(v.Measured) == 1
		if len(v.Top) > 0 {
			compared = append(compared, v)
			most, named = max(most, v.Tells), named || v.Named()
		}
	}
	switch {
	case measured == 0:
		return "Nothing was measured."
	case len(settings) == 1:
		return "One setting, " + settings[0] + ": there is nothing to compare it with."
	case !served:
		return "Nothing was served within the SLO."
	case len(compared) == 0:
		return "There is nothing to compare: no load has two settings that were measured and served anything within the SLO."
	case !named && math.IsInf(most, 1):
		return fmt.Sprintf("Nothing could be told: for that, --repetitions %d or more.", 2*max(2, compared[0].Runs))
	case !named:
		return fmt.Sprintf("No difference goes beyond the noise: these runs tell goodput apart that differs by %.2g%% or more.", 100*most)
	}
	if len(compared) == 1 {
		return alone(&compared[0], name)
	}
	// Over several loads goodput decides, and what the important get.
	wins, highest := map[string]int{}, 0
	for _, v := range compared {
		for _, g := range v.Measured {
			if !slices.ContainsFunc(v.Others, func(d Difference) bool { return d.B == g && d.Proven() && d.Metric != result.ServedP99 }) {
				wins[name(g)]++
				highest = max(highest, wins[name(g)])
			}
		}
	}
	best := slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return wins[s] < highest })
	who := list(best)
	switch {
	case len(best) == len(settings):
		return "By goodput none of the settings is better than another under more loads."
	case len(best) > 4:
		who = fmt.Sprintf("%d of the %d settings are", len(best), len(settings))
	case len(best) > 1:
		who += " are"
	default:
		who += " is"
	}
	return fmt.Sprintf("By goodput %s unbeaten under %d of %d loads.", who, highest, len(compared))
}

// alone is the headline of one load.
func alone(v *Verdict, name func(group int) string) string {
	var top []string
	for _, g := range v.Top {
		top = append(top, name(g))
	}
	var by []string
	for _, j := range judged {
		if slices.ContainsFunc(v.Others, func(d Difference) bool { return d.Proven() && d.Metric == j.metric }) {
			by = append(by, map[string]string{result.Goodput: "goodput", result.ImportantGood: "what the important get", result.ServedP99: "served p99"}[j.metric])
		}
	}
	sure := !slices.ContainsFunc(v.Others, func(d Difference) bool { return !d.Same && !d.Proven() })
	switch {
	case len(top) == 1:
		return fmt.Sprintf("%s is best, by %s.", top[0], list(by))
	case sure:
		return fmt.Sprintf("%s are the same, and better than the others by %s.", list(top), list(by))
	default:
		return fmt.Sprintf("%s cannot be told apart, and no other is better.", list(top))
	}
}

func list(names []string) string { return english.WordSeries(names, "and") }
