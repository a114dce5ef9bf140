package report

import (
	"fmt"
	"math"
	"slices"

	"spillway/loadtest/lab"
)

// The metrics that verdicts name.
const (
	goodput   = lab.Goodput
	servedP99 = lab.ServedP99
	cpu       = "server_cpu_served_us"
)

// rule says how the best is found, in the words of the report.
const rule = "Best is the highest goodput; of those whose goodput cannot be told from it, the lowest served p99. " +
	"“Within the noise” means that a two-sided Mann-Whitney U test finds p ≥ 0.05, which does not say that there is no difference."

// verdict says in words what was found under one workload.
type verdict struct {
	lab.Verdict
	Workload string
	// Setting is the one that is spoken of, Is how it did, Figures its own, and
	// Rest how the others do against it, a sentence each. If nothing was served
	// there is only Is.
	Setting string
	Is      string
	Figures string
	Rest    []string
	// top are the settings that are best or within the noise of it.
	top []string
}

// judge compares the groups of one workload. It reports false if none of them
// has been measured.
func (s *study) judge(w workload) (verdict, bool) {
	v := verdict{Verdict: s.Verdict(w.groups), Workload: w.name}
	if len(v.Measured) == 0 {
		return v, false
	}
	median := func(g int) lab.Summary { return s.Groups[g].Metrics[goodput] }
	most := v.Measured[0]
	if v.Best < 0 {
		switch {
		case !slices.ContainsFunc(v.Measured, func(g int) bool { return median(g).High > 0 }):
			v.Is = unserved
		case median(most).Median == 0:
			v.Is = "most runs served none within the SLO"
		default:
			v.Setting, v.Figures = s.setting[most], s.figures(most)
			if len(s.settings) > 1 {
				v.Is = "is the only one that was measured"
			}
		}
		return v, true
	}

	v.Setting, v.Figures, v.top = s.setting[v.Best], s.figures(v.Best), []string{s.setting[v.Best]}
	switch {
	case v.TooFew:
		v.Is = "has the highest median"
	case v.ByLatency && slices.Contains(v.Same, most):
		v.Is = "is ahead on served p99"
	case v.Ahead():
		v.Is = "is ahead"
	default:
		v.Is = "is best"
	}
	if v.Ahead() {
		v.Is += ", but not beyond the noise"
	}
	say := func(names []string, format string, args ...any) {
		if len(names) > 0 {
			v.Rest = append(v.Rest, fmt.Sprintf(format, append([]any{list(names)}, args...)...))
		}
	}
	if v.TooFew {
		var others []string
		for _, g := range v.Measured[1:] {
			others = append(others, s.against(s.Compare(goodput, v.Best, g)))
		}
		say(others, "Against it in goodput: %s, which too few runs cannot tell from noise.")
		return v, true
	}
	var same []string
	for _, g := range v.Same {
		same = append(same, s.setting[g])
	}
	v.top = append(v.top, same...)
	say(same, "Within the noise of it: %s.")
	slower, p := s.allAgainst(v.Slower)
	say(slower, "Within the noise of it in goodput, but not in served p99: %s (%s).", p)
	less, p := s.allAgainst(v.Less)
	say(less, "Less goodput: %s (%s).", p)
	return v, true
}

const unserved = "none was served within the SLO"

// allAgainst says how groups are against the best one, and how probable that is
// if they do not differ from it.
func (s *study) allAgainst(differences []lab.Difference) (said []string, p string) {
	largest := 0.0
	for _, d := range differences {
		said, largest = append(said, s.against(d)), max(largest, d.P)
	}
	return said, probability(largest, len(differences))
}

func (s *study) against(d lab.Difference) string { return s.setting[d.B] + " " + percent(d.Ratio) }

// figures are those of a group that a sentence names.
func (s *study) figures(g int) string {
	metrics := s.Groups[g].Metrics
	good := metrics[goodput]
	text := fmt.Sprintf("%s good answers a second%s", short(good.Median), bracketed(spread(good)))
	if p99, ok := metrics[servedP99]; ok {
		text += fmt.Sprintf(", served p99 %s ms%s", short(p99.Median), bracketed(spread(p99)))
	}
	if c, ok := metrics[cpu]; ok {
		text += fmt.Sprintf(", %s µs of server CPU a served request", short(c.Median))
	}
	return text
}

func bracketed(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// headline says in a sentence which settings did best over all workloads under
// which there is something to compare.
func headline(all []verdict, settings []string) string {
	if len(all) == 0 {
		return "Nothing was measured."
	}
	verdicts := slices.DeleteFunc(slices.Clone(all), func(v verdict) bool { return v.Best < 0 })
	switch {
	case !slices.ContainsFunc(all, func(v verdict) bool { return v.Is != unserved }):
		return fmt.Sprintf("Nothing was served within the SLO, under %s.", loads(len(all)))
	case len(settings) < 2:
		return fmt.Sprintf("One setting, %s, under %s.", settings[0], loads(len(all)))
	case len(verdicts) == 0:
		return "There is nothing to compare: no load has two settings that were measured and served anything within the SLO."
	}
	wins, most, likely := map[string]int{}, 0, false
	for _, v := range verdicts {
		likely = likely || v.TooFew
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
	if likely {
		return fmt.Sprintf("Highest median goodput under %d of %s: %s. Too few runs to tell it from noise.", most, loads(len(verdicts)), list(best))
	}
	if !slices.ContainsFunc(verdicts, func(v verdict) bool { return !v.Ahead() }) {
		return "No difference goes beyond the noise."
	}
	if len(verdicts) == 1 {
		if len(best) == 1 {
			return best[0] + " is best."
		}
		return fmt.Sprintf("%s are within the noise of each other, and no other is better.", list(best))
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
	return fmt.Sprintf("%s best, or within the noise of the best, under %d of %s.", who, most, loads(len(verdicts)))
}

func loads(n int) string {
	if n == 1 {
		return "1 load"
	}
	return fmt.Sprintf("%d loads", n)
}

// caution says whether there were enough runs of what is compared for
// differences to be found.
func (s *study) caution(verdicts []verdict) string {
	fewest, most := math.MaxInt, 0
	for _, v := range verdicts {
		if v.Best < 0 {
			continue
		}
		for _, g := range v.Measured {
			n := len(s.Groups[g].Metrics[goodput].Values)
			fewest, most = min(fewest, n), max(most, n)
		}
	}
	if most == 0 || fewest >= enoughRuns {
		return ""
	}
	which := "Each setting has"
	if fewest < most {
		which = "Some settings have"
	}
	return fmt.Sprintf("%s only %s. It takes %d of each of two settings for a Mann-Whitney test to reach p < %g, and so for a difference to be told from noise.",
		which, count(fewest, "run", "runs"), enoughRuns, lab.Alpha)
}

// enoughRuns is how many runs of each of two groups it takes for a difference to
// be significant at lab.Alpha: 2 of the 70 ways to order 4 and 4.
const enoughRuns = 4
