package lab

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// Alpha bounds the probability that a verdict names a difference where there is none,
	// however many settings it compares.
	Alpha = 0.05
	// ProofRuns is the least number of repetitions that can prove a difference: with fewer,
	// a stray run looks like any other.
	ProofRuns = 4
)

// Difference is how two groups differ in a metric.
type Difference struct {
	// A and B are indices of Comparison.Groups.
	A, B int
	Contrast
	// Apart says that not even the ranges of their values touch.
	Apart bool
}

// Contrast is how two settings of a family differ.
type Contrast struct {
	// Ratio is that of B to A within each repetition: the median, the smallest and the
	// largest. A repetition in which only A is 0 has none.
	Ratio Summary
	// Low and High bound the ratio: with a probability of 1-Alpha the true ratios of
	// all pairs of the family lie between theirs. Without proof they are 0 and +Inf.
	Low, High float64
	// P is the probability of a difference at least as great between any two of the family,
	// if none of them differ.
	P float64
}

// Significant reports whether the difference is more than noise. False does not prove that
// there is no difference.
func (c *Contrast) Significant() bool { return c.P < Alpha }

// Family is the figures of some settings that are compared with each other, in the
// same repetitions.
//
// A repetition is run within minutes. If the machine becomes slower, a whole repetition
// becomes slower, so only ratios within a repetition count. Their logarithms are assumed to
// be normal. Each setting has its own spread; one that is smaller than usual in the family
// is raised, because in so few runs it is chance.
//
// The greatest difference between any two settings, divided by its error, is compared with
// that of many random families in which no two differ. That corrects for the number of
// settings, and for looking at the best of them. Longer tails than normal ones make this
// find fewer differences, not more. The tests of this package simulate how often it errs.
type Family struct {
	values [][]float64 // by setting and repetition
	mean   []float64   // of the logarithms
	spread []float64   // their variance within a repetition
	maxima []float64   // of the families that were drawn, sorted; nil without proof
	sorted []float64   // scratch
}

const (
	// resolution is how exact figures are, at best: to three digits.
	resolution = 1e-3
	// negligible is what share of the largest value is like nothing.
	negligible = 1e-3
)

// drawing says how families are drawn: how many there are, and at random.
type drawing struct {
	families int
	random   *rand.Rand
}

// drawingOf returns that for a family of so many settings: the fewer, the more. The
// same figures have the same verdict.
func drawingOf(settings int) drawing {
	const comparisons = 1 << 19
	return drawing{max(99, min(4999, comparisons/(settings*settings))), rand.New(rand.NewPCG(1, 2))}
}

// newFamily returns the family of values[setting][repetition]: at least one setting, and as
// many values for each.
func newFamily(values [][]float64, draw drawing) *Family {
	f := &Family{values: values}
	if len(values[0]) < ProofRuns || len(values) < 2 {
		return f
	}
	largest := 0.0
	for _, v := range values {
		largest = max(largest, slices.Max(v))
	}
	logs := make([][]float64, len(values))
	for g, v := range values {
		for _, x := range v {
			logs[g] = append(logs[g], math.Log(max(x, negligible*largest, math.SmallestNonzeroFloat64)))
		}
	}
	f.fit(logs, resolution*resolution)
	drawn := &Family{}
	for range draw.families {
		for g := range logs {
			deviation := math.Sqrt(f.spread[g])
			for r := range logs[g] {
				logs[g][r] = deviation * draw.random.NormFloat64()
			}
		}
		drawn.fit(logs, 0)
		greatest := 0.0
		for a := range logs {
			for b := range a {
				greatest = max(greatest, drawn.distance(a, b))
			}
		}
		f.maxima = append(f.maxima, greatest)
	}
	slices.Sort(f.maxima)
	return f
}

// fit learns the means and the spreads. What a repetition does to all settings is
// the median over them, which those with wild figures do not move. No spread is less
// than the least.
func (f *Family) fit(logs [][]float64, least float64) {
	n := len(logs[0])
	if f.mean == nil {
		f.mean, f.spread, f.sorted = make([]float64, len(logs)), make([]float64, len(logs)), make([]float64, len(logs))
	}
	clear(f.mean)
	clear(f.spread)
	for g := range logs {
		for _, v := range logs[g] {
			f.mean[g] += v / float64(n)
		}
	}
	for r := range n {
		for g := range logs {
			f.sorted[g] = logs[g][r] - f.mean[g]
		}
		slices.Sort(f.sorted)
		common := middle(f.sorted)
		for g := range logs {
			d := logs[g][r] - f.mean[g] - common
			f.spread[g] += d * d / float64(n-1)
		}
	}
	copy(f.sorted, f.spread)
	slices.Sort(f.sorted)
	usual := f.sorted[len(logs)/2]
	for g := range f.spread {
		f.spread[g] = max(f.spread[g], usual, least)
	}
}

// distance is the difference of two settings in terms of its error, squared, but
// for the number of repetitions, which is the same for all.
func (f *Family) distance(a, b int) float64 {
	d := f.mean[b] - f.mean[a]
	if d == 0 {
		return 0
	}
	return d * d / (f.spread[a] + f.spread[b])
}

// p is the probability of a difference like that of two settings.
func (f *Family) p(a, b int) float64 {
	below, _ := slices.BinarySearch(f.maxima, f.distance(a, b))
	return float64(1+len(f.maxima)-below) / float64(1+len(f.maxima))
}

// Compare tells how setting b differs from setting a.
func (f *Family) Compare(a, b int) Contrast {
	c := Contrast{P: 1, High: math.Inf(1)}
	var ratios []float64
	for r, from := range f.values[a] {
		switch to := f.values[b][r]; {
		case from != 0:
			ratios = append(ratios, to/from)
		case to == 0:
			ratios = append(ratios, 1)
		}
	}
	if len(ratios) > 0 {
		c.Ratio = summary(ratios)
	}
	if f.maxima == nil {
		return c
	}
	c.P = f.p(a, b)
	critical := f.maxima[int((1-Alpha)*float64(len(f.maxima)))]
	margin := math.Sqrt(critical * (f.spread[a] + f.spread[b]))
	c.Low, c.High = math.Exp(f.mean[b]-f.mean[a]-margin), math.Exp(f.mean[b]-f.mean[a]+margin)
	return c
}

// summary returns the median of the values, of which there is at least one, and
// their spread.
func summary(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	return Summary{Median: middle(sorted), Low: sorted[0], High: sorted[len(sorted)-1], Values: values}
}

// Median returns that of values, of which there is at least one.
func Median(values []float64) float64 { return middle(slices.Sorted(slices.Values(values))) }

// middle returns the median of sorted values.
func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
