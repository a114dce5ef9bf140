package lab

import (
	"cmp"
	"math"
	"slices"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// judged are the figures by which settings are judged, in this order; sign is that of what is
// better.
var judged = []struct {
	metric string
	sign   float64
}{{result.Goodput, 1}, {result.ImportantGood, 1}, {result.ServedP99, -1}}

// TwoClocks reports whether requests of g waited for a connection for so long that goodput
// depends on when the clock begins.
func (g *Group) TwoClocks() bool {
	return g.Metrics[result.SentGoodput].Median > g.Metrics[result.Goodput].Median+0.05*g.Metrics["offered_rps"].Median
}

// Verdict says which settings did best under one load. Groups are indices of
// Comparison.Groups.
type Verdict struct {
	Workload string
	Groups   []int
	// Measured are those that have runs, by median goodput, the highest first.
	Measured []int
	// Top are those that no other is proven to beat, in the order of Measured; empty if there
	// are fewer than two to compare, or no goodput at all.
	Top []int
	// Others has for each other one of Measured how it differs from the first of Top; or,
	// if only that is proven, from one that beats it.
	Others []Difference
	// Runs is the number of repetitions in which all of them were measured, and Tells from
	// which difference in goodput on, as a share, these runs could have distinguished two
	// settings; +Inf if they could not, whatever the difference.
	Runs  int
	Tells float64
}

// Difference is how group B differs from group A.
type Difference struct {
	A, B int
	// Metric is the first one in which they are not the same, served p99 if they are in all.
	Metric string
	// Ratio is that of B to A, the mean over the repetitions; +Inf if A is 0.
	Ratio float64
	// P is the probability of any such difference in the whole report if there is none.
	P float64
	// Same says that they are the same in all metrics.
	Same bool
}

// Proven reports whether the difference is more than noise. False does not prove that
// there is none.
func (d *Difference) Proven() bool { return !d.Same && d.P < Alpha }

// Named reports whether any difference is proven.
func (v *Verdict) Named() bool {
	return slices.ContainsFunc(v.Others, func(d Difference) bool { return d.Proven() })
}

// Verdicts judges the settings under each load of the comparison. One setting beats another
// if it is proven to be better in the first metric in which they are not the same: goodput,
// what the important classes got, served p99. With a probability of at most [Alpha] any of
// the verdicts names a difference where there is none, whatever the spreads are. The tests
// of this package simulate how often they do.
func (c *Comparison) Verdicts() []Verdict { return judge(c).verdicts }

// judging is what judges a comparison.
type judging struct {
	c        *Comparison
	verdicts []Verdict
	// pairs has the contrasts of two groups, by metric.
	pairs map[[2]int][]contrast
	// comparisons is how many there are that chance could decide, over all loads and metrics.
	comparisons float64
}

func judge(c *Comparison) *judging {
	r := &judging{c: c, pairs: map[[2]int][]contrast{}}
	for i := range c.Groups {
		g := &c.Groups[i]
		at := slices.IndexFunc(r.verdicts, func(v Verdict) bool { return v.Workload == g.Workload })
		if at < 0 {
			at = len(r.verdicts)
			r.verdicts = append(r.verdicts, Verdict{Workload: g.Workload})
		}
		v := &r.verdicts[at]
		v.Groups = append(v.Groups, i)
		if len(g.Metrics[result.Goodput].Values) > 0 {
			v.Measured = append(v.Measured, i)
		}
	}
	r.contrast()
	for i := range r.verdicts {
		r.judge(&r.verdicts[i])
	}
	return r
}

// median returns that of a group's goodput.
func (r *judging) median(group int) float64 { return r.c.Groups[group].Metrics[result.Goodput].Median }

// contrast compares all pairs. By chance, few runs of figures with great spreads may look alike. So
// a pair's variance is at least what is usual among the pairs of its load, and for the same two
// settings under all loads. Who serves
// nobody in time differs from all others by as much in every run: that tells nothing of it, and
// is no difference that chance could make.
func (r *judging) contrast() {
	type pair struct {
		a, b int
		of   [2]any // its load, and its two settings
		good bool   // both serve somebody in time
	}
	var pairs []pair
	names, count := make([]string, len(r.c.Groups)), 0.0
	for i := range names {
		names[i] = describe(&r.c.Groups[i].Combination, func(_ int, s *scenario.Setting) bool { return !s.Demand() })
	}
	for at, v := range r.verdicts {
		for i, a := range v.Measured {
			for _, b := range v.Measured[:i] {
				p := pair{a, b, [2]any{at, [2]string{names[max(a, b)], names[min(a, b)]}}, r.median(a) > 0 && r.median(b) > 0}
				if pairs = append(pairs, p); p.good {
					count++
				}
			}
		}
	}
	for _, j := range judged {
		contrasts, variances, used := make([]contrast, len(pairs)), map[any][]float64{}, false
		for i, p := range pairs {
			one := contrastOf(together(r.c.Groups[p.a].Metrics[j.metric], r.c.Groups[p.b].Metrics[j.metric]))
			contrasts[i], used = one, used || one.runs > 0
			for _, of := range p.of {
				if p.good && one.runs > 0 {
					variances[of] = append(variances[of], one.variance)
				}
			}
		}
		for i, p := range pairs {
			one := contrasts[i]
			for _, of := range p.of {
				if all := variances[of]; all != nil {
					one.variance = max(one.variance, usual(all))
				}
			}
			r.pairs[[2]int{p.a, p.b}] = append(r.pairs[[2]int{p.a, p.b}], one)
			one.mean = -one.mean
			r.pairs[[2]int{p.b, p.a}] = append(r.pairs[[2]int{p.b, p.a}], one)
		}
		if used {
			r.comparisons += max(1, count)
		}
	}
}

// together returns the values of two summaries in the repetitions that both have.
func together(a, b Summary) (from, to []float64) {
	for n, v := range a.Values {
		if w, ok := b.of(a.repetition(n)); ok {
			from, to = append(from, v), append(to, w)
		}
	}
	return from, to
}

// difference tells how b differs from a, and in a's favour if sign is above 0.
func (r *judging) difference(a, b int) (d Difference, sign float64) {
	d = Difference{A: a, B: b, P: 1, Same: true}
	for m, j := range judged {
		one := r.pairs[[2]int{a, b}][m]
		if one.runs == 0 {
			continue
		}
		if d.Metric, d.Ratio = j.metric, (1+one.mean)/(1-one.mean); one.same() {
			continue
		}
		d.Same, d.P = false, one.p(r.comparisons)
		return d, -j.sign * one.mean
	}
	return d, 0
}

func (r *judging) judge(v *Verdict) {
	slices.SortStableFunc(v.Measured, func(a, b int) int { return cmp.Compare(r.median(b), r.median(a)) })
	if len(v.Measured) < 2 || r.median(v.Measured[0]) == 0 {
		return
	}
	v.Runs = math.MaxInt
	var spreads []float64          // of goodput
	beaten := map[int]Difference{} // most surely, by whoever beats it
	for i, a := range v.Measured {
		for _, b := range v.Measured[:i] {
			by := r.pairs[[2]int{a, b}][0]
			v.Runs = min(v.Runs, by.runs)
			// Who serves nobody in time differs from all others by as much in every run.
			if r.median(a) > 0 && r.median(b) > 0 {
				spreads = append(spreads, by.variance)
			}
			d, sign := r.difference(a, b)
			if sign < 0 {
				d, _ = r.difference(b, a)
			}
			if before, known := beaten[d.B]; d.Proven() && (!known || d.P < before.P) {
				beaten[d.B] = d
			}
		}
	}
	for _, g := range v.Measured {
		if _, worse := beaten[g]; !worse {
			v.Top = append(v.Top, g)
		}
	}
	if len(v.Top) == 0 { // each is beaten by another, in different metrics
		v.Top = v.Measured[:1]
	}
	// A contrast m is a ratio of (1-m)/(1+m).
	v.Tells = math.Inf(1)
	if len(spreads) == 0 {
		spreads = []float64{0} // one has goodput, and the others none
	}
	typical := contrast{variance: usual(spreads), runs: v.Runs}
	if m := typical.margin(r.comparisons); m < 1 {
		v.Tells = max(Same, 2*m/(1+m))
	}
	for _, g := range v.Measured {
		if g == v.Top[0] {
			continue
		}
		d, sign := r.difference(v.Top[0], g)
		if by, worse := beaten[g]; worse && !(sign > 0 && d.Proven()) {
			d = by
		}
		v.Others = append(v.Others, d)
	}
}
