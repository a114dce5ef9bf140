package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

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
var rule = fmt.Sprintf("Best is the setting that no other is proven to beat: in goodput or, where goodput does not tell them apart, in served p99. "+
	"Settings are compared within each repetition, as ratios. p is the probability that chance alone makes a difference as large as this between any two of them; "+
	"proof is p < %g. A difference that is not proven may still be there.", lab.Alpha)

// verdict says in words what was found under one workload.
type verdict struct {
	lab.Verdict
	Workload string
	// Setting is the one that is spoken of, or those that cannot be told apart, Is how
	// it did, Figures its own, and Rest how the others do against it, a sentence each.
	// If nothing was served there is only Is.
	Setting string
	Is      string
	Figures string
	Rest    []string
	// top are the settings that are best, or cannot be told from the best. With too
	// few runs they are those with the highest median.
	top []string
}

// judge compares the groups of one workload. It reports false if none of them
// has been measured.
func (s *study) judge(w workload) (verdict, bool) {
	v := verdict{Verdict: s.Verdict(w.groups), Workload: w.name}
	if len(v.Measured) == 0 {
		return v, false
	}
	of := func(g int) lab.Summary { return s.Groups[g].Metrics[goodput] }
	if len(v.Top) == 0 {
		most := v.Measured[0]
		switch {
		case !slices.ContainsFunc(v.Measured, func(g int) bool { return of(g).High > 0 }):
			v.Is = unserved
		case of(most).Median == 0:
			v.Is = "most runs served none within the SLO"
		default:
			v.Setting, v.Figures = s.setting[most], s.figures(most)
			if len(s.settings) > 1 {
				v.Is = "is the only one that was measured"
			}
		}
		return v, true
	}
	shown := v.Top
	if v.TooFew {
		shown = slices.DeleteFunc(slices.Clone(shown), func(g int) bool { return of(g).Median < of(v.Top[0]).Median })
	}
	for _, g := range shown {
		v.top = append(v.top, s.setting[g])
	}
	one := len(v.top) == 1
	switch {
	case v.TooFew && one:
		v.Is = "has the highest median, which proves nothing"
	case v.TooFew:
		v.Is = "have the highest median, which proves nothing"
	case one:
		v.Is = "is best"
	default:
		v.Is = "cannot be told apart"
	}
	v.Setting, v.Figures = list(v.top), s.figures(shown...)
	say := func(format string, differences []lab.Difference, more ...any) {
		if len(differences) > 0 {
			first := v.Top[0]
			if !one {
				first = -1
			}
			v.Rest = append(v.Rest, fmt.Sprintf(format, append([]any{s.against(first, differences)}, more...)...))
		}
	}
	say("As much goodput as far as can be told, but slower in served p99: %s (%s).", v.Slower, surest(v.Slower))
	say("Less goodput: %s (%s).", v.Less, surest(v.Less))
	if v.TooFew {
		say("In goodput: %s.", s.Differences(goodput, v.Top[0], v.Top[len(shown):]))
	}
	if doubt := Doubt(&v.Verdict, s.Comparison.Comparison, func(g int) string { return s.setting[g] }); doubt != "" {
		v.Rest = append(v.Rest, doubt)
	}
	return v, true
}

const unserved = "none was served within the SLO"

// Doubt says what is plain to see in a verdict and yet not proven, since there are
// too few runs; it is empty if there is nothing of that kind.
func Doubt(v *lab.Verdict, c *lab.Comparison, name func(group int) string) string {
	if len(v.Top) == 0 {
		return ""
	}
	enough := lab.ProofRuns
	if !v.TooFew {
		enough = 2 * v.Runs
	}
	runs := "in all of " + count(v.Runs, "run", "runs")
	if v.Runs < 2 {
		runs = "in a single run"
	}
	var said []string
	for _, d := range v.Apart {
		said = append(said, fmt.Sprintf("%s %s against %s a second of %s", name(d.B),
			short(c.Groups[d.B].Metrics[goodput].Median), short(c.Groups[d.A].Metrics[goodput].Median), name(d.A)))
	}
	switch {
	case len(said) > 0:
		return fmt.Sprintf("Not even the ranges touch: %s, %s; for proof, --repetitions %d.", list(said), runs, enough)
	case v.TooFew:
		return fmt.Sprintf("Too few runs for proof: --repetitions %d.", enough)
	default:
		return ""
	}
}

// surest says how probable differences are at most, if there are none.
func surest(differences []lab.Difference) string {
	largest := 0.0
	for _, d := range differences {
		largest = max(largest, d.P)
	}
	return probability(largest, len(differences))
}

// against says how groups differ from the first, or from another that is named.
func (s *study) against(first int, differences []lab.Difference) string {
	var said []string
	for _, d := range differences {
		text := s.setting[d.B]
		if len(d.Ratio.Values) > 0 {
			text += " " + percent(d.Ratio.Median)
		}
		if d.A != first {
			text += " against " + s.setting[d.A]
		}
		said = append(said, text)
	}
	return list(said)
}

// figures are those of groups that a sentence names: of one with the spread of its
// runs, of several from the lowest median to the highest.
func (s *study) figures(groups ...int) string {
	of := func(metric, unit string) string {
		var medians []float64
		for _, g := range groups {
			if v, measured := s.Groups[g].Metrics[metric]; measured {
				medians = append(medians, v.Median)
			}
		}
		if len(medians) == 0 {
			return ""
		}
		if one := s.Groups[groups[0]].Metrics[metric]; len(groups) == 1 && metric != cpu {
			return short(one.Median) + unit + around(" (", spread(one), ")")
		}
		low, high := slices.Min(medians), slices.Max(medians)
		return cmp.Or(spread(lab.Summary{Low: low, High: high}), short(low)) + unit
	}
	text := of(goodput, " good answers a second")
	if p99 := of(servedP99, " ms"); p99 != "" {
		text += ", served p99 " + p99
	}
	if c := of(cpu, " µs of server CPU per served request"); c != "" {
		text += ", " + c
	}
	return text
}

// headline says in a sentence which settings did best over all workloads under
// which there is something to compare.
func headline(all []verdict, settings []string) string {
	if len(all) == 0 {
		return "Nothing was measured."
	}
	verdicts := slices.DeleteFunc(slices.Clone(all), func(v verdict) bool { return len(v.Top) == 0 })
	switch {
	case !slices.ContainsFunc(all, func(v verdict) bool { return v.Is != unserved }):
		return fmt.Sprintf("Nothing was served within the SLO, under %s.", loads(len(all)))
	case len(settings) < 2:
		return fmt.Sprintf("One setting, %s, under %s.", settings[0], loads(len(all)))
	case len(verdicts) == 0:
		return "There is nothing to compare: no load has two settings that were measured and served anything within the SLO."
	}
	wins, most, tooFew := map[string]int{}, 0, false
	for _, v := range verdicts {
		tooFew = tooFew || v.TooFew
		for _, name := range v.top {
			wins[name]++
			most = max(most, wins[name])
		}
	}
	var best []string
	for _, name := range settings {
		if wins[name] == most {
			best = append(best, name)
		}
	}
	if tooFew {
		return fmt.Sprintf("Too few runs for proof. Highest median goodput under %d of %s: %s.", most, loads(len(verdicts)), list(best))
	}
	if !slices.ContainsFunc(verdicts, func(v verdict) bool { return len(v.Less)+len(v.Slower) > 0 }) {
		return "No difference goes beyond the noise."
	}
	if len(verdicts) == 1 {
		if len(best) == 1 {
			return best[0] + " is best."
		}
		return fmt.Sprintf("%s cannot be told apart, and no other is better.", list(best))
	}
	if most == 1 && len(best) > 1 {
		return "Each load has another best setting."
	}
	who := best[0] + " is"
	switch {
	case len(best) > 4:
		who = fmt.Sprintf("%d of the %d settings are each", len(best), len(settings))
	case len(best) > 1:
		who = list(best) + " are each"
	}
	return fmt.Sprintf("%s best, or not proven to be worse, under %d of %s.", who, most, loads(len(verdicts)))
}

func loads(n int) string { return english.Plural(n, "load", "loads") }

// caution says whether there were enough runs of what is compared for
// differences to be found.
func caution(verdicts []verdict) string {
	fewest := math.MaxInt
	for _, v := range verdicts {
		if v.TooFew {
			fewest = min(fewest, v.Runs)
		}
	}
	if fewest == math.MaxInt {
		return ""
	}
	return fmt.Sprintf("Some settings were measured together in only %s. To tell a difference from noise takes %d.",
		english.Plural(fewest, "repetition", "repetitions"), lab.ProofRuns)
}
