package lab

import (
	"slices"

	"golang.org/x/perf/benchmath"
)

// Alpha is the level of significance of the comparisons: of pairs between which
// there is no difference, one in twenty is nevertheless told apart. Who looks at
// many pairs should expect some of these.
const Alpha = 0.05

// Difference is how two groups differ in one metric.
type Difference struct {
	Metric string
	// A and B are indices of Comparison.Groups.
	A, B int
	// Ratio is the median of B over that of A: 1 if both are 0, and 0 if there
	// is no ratio, because A's is 0 or because one was not measured.
	Ratio float64
	// P is the probability of a difference like this, or a greater one, if there
	// is none: of the two-sided Mann-Whitney U test.
	P float64
	// Significant says that P is below Alpha: the difference is more than noise.
	// That there is none is not what its absence says.
	Significant bool
	// TooFew says that there are too few runs for anything to be significant:
	// fewer than 4 against 4. With 4 against 4 the smallest P is 0.029, and only
	// groups that do not overlap at all reach it.
	TooFew bool
}

// Compare tells how the groups with the indices a and b differ in a metric. It
// assumes nothing of how the figures are distributed.
func (c *Comparison) Compare(metric string, a, b int) Difference {
	d := Difference{Metric: metric, A: a, B: b, P: 1}
	from, to := c.Groups[a].Metrics[metric], c.Groups[b].Metrics[metric]
	d.TooFew = smallestP(len(from.Values), len(to.Values)) >= Alpha
	if len(from.Values) == 0 || len(to.Values) == 0 {
		return d
	}
	switch {
	case from.Median != 0:
		d.Ratio = to.Median / from.Median
	case to.Median == 0:
		d.Ratio = 1
	}
	thresholds := benchmath.Thresholds{CompareAlpha: Alpha}
	// NewSample sorts what it is given.
	d.P = benchmath.AssumeNothing.Compare(
		benchmath.NewSample(slices.Clone(from.Values), &thresholds),
		benchmath.NewSample(slices.Clone(to.Values), &thresholds),
	).P
	d.Significant = d.P < Alpha
	return d
}

// smallestP is the least that the test can say of n against m values: of all
// ways to choose which n of the n+m are the smaller ones, two are the extremes.
func smallestP(n, m int) float64 {
	ways := 1.0
	for i := 1; i <= m; i++ {
		ways *= float64(n+i) / float64(i)
	}
	return min(1, 2/ways)
}

// summary returns the median of the values, of which there is at least one, and
// their spread.
func summary(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Summary{
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		Low:    sorted[0],
		High:   sorted[n-1],
		Values: values,
	}
}
