package lab

import (
	"math"
	"slices"
)

const (
	// Alpha bounds the probability that the verdicts of a report name a difference where
	// there is none, however many settings, loads and metrics it has.
	Alpha = 0.05
	// ProofRuns is the least number of repetitions that can prove a difference.
	ProofRuns = 4
	// Same is how much two figures may differ and still be the same: 2%.
	Same = 0.02

	// caution is by how much tests are made stricter than the t distribution asks for. With
	// few runs of skewed figures, t is too sure. The simulations of this package chose it.
	caution = 6
	// resolution is how exact a figure is at best, as a share of it.
	resolution = 1e-3
)

// contrast is how setting b differs from setting a in a metric under one load. Only figures
// of one repetition are compared: it is run within minutes, and where the machine becomes
// slower it does so for all. In each repetition the contrast is (b-a)/(b+a): half the
// relative difference where they are near, and never beyond ±1, so that a figure near 0 is
// as good as any.
type contrast struct {
	mean     float64
	variance float64
	runs     int
}

func contrastOf(a, b []float64) contrast {
	c := contrast{runs: len(a)}
	each := make([]float64, len(a))
	for i := range a {
		if a[i]+b[i] > 0 {
			each[i] = (b[i] - a[i]) / (b[i] + a[i])
		}
		c.mean += each[i] / float64(len(a))
	}
	for _, v := range each {
		c.variance += (v - c.mean) * (v - c.mean) / float64(max(1, len(a)-1))
	}
	c.variance = max(c.variance, resolution*resolution/2)
	return c
}

// same reports whether the figures differ by less than [Same].
func (c *contrast) same() bool { return math.Abs(c.mean) < Same/2 }

// p is the probability of a contrast at least as great if there is no difference, among so
// many comparisons; 1 with too few runs.
func (c *contrast) p(comparisons float64) float64 {
	if c.runs < ProofRuns {
		return 1
	}
	t := math.Abs(c.mean) / math.Sqrt(c.variance/float64(c.runs))
	return min(1, caution*comparisons*tails(t, c.runs-1))
}

// margin is the least contrast that would have been proven; +Inf if none would.
func (c *contrast) margin(comparisons float64) float64 {
	if c.runs < ProofRuns {
		return math.Inf(1)
	}
	return critical(c.runs-1, comparisons) * math.Sqrt(c.variance/float64(c.runs))
}

// critical is the least t that is proof.
func critical(freedom int, comparisons float64) float64 {
	low, high := 0.0, 1e9
	for high > low*(1+1e-9) {
		if t := (low + high) / 2; caution*comparisons*tails(t, freedom) < Alpha {
			high = t
		} else {
			low = t
		}
	}
	return high
}

// tails is the probability that Student's t with so many degrees of freedom, 2 or more, is beyond ±t:
// the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
func tails(t float64, freedom int) float64 {
	angle := math.Atan(t / math.Sqrt(float64(freedom)))
	sine, cosine := math.Sincos(angle)
	term, sum := 1.0, 0.0
	if freedom%2 == 1 {
		term = cosine
	}
	for k := freedom % 2; k < freedom; k += 2 {
		if k > 1 {
			term *= cosine * cosine * float64(k-1) / float64(k)
		}
		sum += term
	}
	if freedom%2 == 1 {
		return max(0, 1-2/math.Pi*(angle+sine*sum))
	}
	return max(0, 1-sine*sum)
}

// Ratio returns that of one figure to another within each repetition that has both: the
// median, the smallest and the largest; false if there is none.
func Ratio(of, to Summary) (Summary, bool) {
	var ratios []float64
	base, values := together(to, of)
	for i, v := range base {
		if v > 0 {
			ratios = append(ratios, values[i]/v)
		}
	}
	if len(ratios) == 0 {
		return Summary{}, false
	}
	return Spread(ratios), true
}

// usual returns the upper median of values, of which there is at least one.
func usual(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// Spread returns the median of the values, of which there is at least one, and
// their spread.
func Spread(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Summary{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[0], High: sorted[n-1], Values: values}
}
