package lab

import (
	"cmp"
	"slices"
)

// The metrics by which groups are judged.
const (
	Goodput   = "goodput_rps"
	ServedP99 = "served_p99_ms"
)

// SentGoodput is goodput by a clock that begins when a request is sent. It is of the answers
// that came in the window, so that it differs a little from Goodput anyway.
const SentGoodput = "sent_goodput_rps"

// TwoClocks reports whether requests of g waited for a connection for so long that goodput
// depends on when the clock begins.
func (g *Group) TwoClocks() bool {
	return g.Metrics[SentGoodput].Median > g.Metrics[Goodput].Median+0.05*g.Metrics["offered_rps"].Median
}

// Verdict says which of some groups did best. Groups are indices of
// Comparison.Groups.
type Verdict struct {
	// Measured are the groups that have runs, by median goodput, the highest first. The
	// others are not judged.
	Measured []int
	// Top are the groups that no other is proven to beat, in the order of Measured. One
	// group beats another by more goodput or, if their goodput does not differ, by a lower
	// served p99. A single group in Top is the best; among several no best is known. Top
	// is empty if there are fewer than two groups, or no goodput at all.
	Top []int
	// Runs is the number of repetitions in which all of them were measured. If TooFew is
	// set, nothing can be proven, and all groups are in Top.
	Runs   int
	TooFew bool
	// Less have proven less goodput, and Slower a proven higher served p99, than the first
	// of Top or than another group that beats them.
	Less, Slower []Difference
	// Apart are groups of Top whose goodput is lower than the first one's in every run,
	// although that is no proof.
	Apart []Difference
}

// Best returns the best group, and false if no single one is proven to be the best.
func (v *Verdict) Best() (group int, ok bool) {
	if len(v.Top) != 1 {
		return -1, false
	}
	return v.Top[0], true
}

// Verdict judges groups, which should be of one workload. The probability that it names any
// difference where there is none, in either metric, is at most Alpha.
func (c *Comparison) Verdict(groups []int) Verdict { return c.verdict(groups, drawingOf) }

func (c *Comparison) verdict(groups []int, draw func(settings int) drawing) (v Verdict) {
	for _, g := range groups {
		if len(c.Groups[g].Metrics[Goodput].Values) > 0 {
			v.Measured = append(v.Measured, g)
		}
	}
	median := func(g int) float64 { return c.Groups[g].Metrics[Goodput].Median }
	slices.SortStableFunc(v.Measured, func(a, b int) int { return cmp.Compare(median(b), median(a)) })
	if len(v.Measured) < 2 || median(v.Measured[0]) == 0 {
		return v
	}
	goodput := c.family(Goodput, v.Measured, draw)
	v.Runs, v.TooFew = goodput.runs, goodput.runs < ProofRuns
	v.Top, v.Less = goodput.separate(1)
	served := slices.DeleteFunc(slices.Clone(v.Top), func(g int) bool { return len(c.Groups[g].Metrics[ServedP99].Values) == 0 })
	if len(served) > 1 {
		_, v.Slower = c.family(ServedP99, served, draw).separate(-1)
		v.Top = slices.DeleteFunc(v.Top, func(g int) bool {
			return slices.ContainsFunc(v.Slower, func(d Difference) bool { return d.B == g })
		})
	}
	for _, g := range v.Top[1:] {
		if d := goodput.difference(v.Top[0], g); d.Apart {
			v.Apart = append(v.Apart, d)
		}
	}
	return v
}

// Differences tells how groups differ from a base in a metric, corrected for the number of
// groups.
func (c *Comparison) Differences(metric string, base int, groups []int) []Difference {
	all := slices.Clone(groups)
	if !slices.Contains(all, base) {
		all = append(all, base)
	}
	f := c.family(metric, all, drawingOf)
	differences := make([]Difference, len(groups))
	for i, g := range groups {
		differences[i] = f.difference(base, g)
	}
	return differences
}

// family is the figures of some groups in a metric.
type family struct {
	*Family
	c      *Comparison
	metric string
	groups []int
	runs   int // the repetitions in which all have been measured
}

func (c *Comparison) family(metric string, groups []int, draw func(settings int) drawing) *family {
	f := &family{c: c, metric: metric, groups: groups}
	values := make([][]float64, len(groups))
	summaries := make([]Summary, len(groups))
	for i, g := range groups {
		summaries[i] = c.Groups[g].Metrics[metric]
	}
	for n := range summaries[0].Values {
		in := make([]float64, 0, len(groups))
		for i := range summaries {
			if v, ok := summaries[i].of(summaries[0].repetition(n)); ok {
				in = append(in, v)
			}
		}
		if len(in) < len(groups) {
			continue
		}
		f.runs++
		for i, v := range in {
			values[i] = append(values[i], v)
		}
	}
	f.Family = newFamily(values, draw(len(values)))
	return f
}

// separate returns the groups than which none is proven to be better, and of each
// other how it differs from the first of them, or from the one that is most surely
// better. The sign says whether more is better, 1, or less, -1.
func (f *family) separate(sign float64) (top []int, others []Difference) {
	better := func(a, b int) bool { return sign*(f.mean[a]-f.mean[b]) > 0 && both(f.p(a, b)) < Alpha }
	by := map[int]int{}
	for b, group := range f.groups {
		surest := -1
		for a := range f.groups {
			if f.maxima != nil && better(a, b) && (surest < 0 || f.distance(a, b) > f.distance(surest, b)) {
				surest = a
			}
		}
		if surest < 0 {
			top = append(top, group)
		} else {
			by[b] = surest
		}
	}
	first := slices.Index(f.groups, top[0])
	for b, group := range f.groups {
		if surest, worse := by[b]; worse && better(first, b) {
			others = append(others, f.difference(top[0], group))
		} else if worse {
			others = append(others, f.difference(f.groups[surest], group))
		}
	}
	return top, others
}

func (f *family) difference(a, b int) Difference {
	d := Difference{A: a, B: b, Contrast: f.Compare(slices.Index(f.groups, a), slices.Index(f.groups, b))}
	d.P = both(d.P)
	from, to := f.c.Groups[a].Metrics[f.metric], f.c.Groups[b].Metrics[f.metric]
	d.Apart = from.Low > to.High || to.Low > from.High
	return d
}

// both corrects a probability for that a verdict looks at two metrics.
func both(p float64) float64 { return min(1, 2*p) }
