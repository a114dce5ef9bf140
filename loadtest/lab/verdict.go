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

// Verdict says which of some groups did best. Best is the highest goodput; of
// those whose goodput cannot be told from it, the lowest served p99. Groups are
// indices of Comparison.Groups.
type Verdict struct {
	// Measured are the groups of which there are runs, by their median goodput,
	// the highest first. The others are not judged.
	Measured []int
	// Best is the best of them, or -1 if there is none: with fewer than two
	// there is nothing to compare, and without goodput nothing to prefer.
	Best int
	// TooFew says that there are too few runs to tell differences from noise.
	// Best is then merely the highest median, and nothing is said of the others.
	TooFew bool
	// ByLatency says that another group has a higher median goodput, though not
	// beyond the noise: what speaks for Best is its served p99.
	ByLatency bool
	// All others are in one of these, in the order of Measured: what cannot be
	// told from Best, what cannot in goodput but in served p99, and what has less
	// goodput. The differences are from Best.
	Same   []int
	Slower []Difference
	Less   []Difference
}

// Ahead reports whether Best leads without any other group differing from it by
// more than noise.
func (v *Verdict) Ahead() bool {
	return v.Best >= 0 && !v.TooFew && len(v.Slower) == 0 && len(v.Less) == 0
}

// Verdict judges groups, which should be of one workload.
func (c *Comparison) Verdict(groups []int) Verdict {
	v := Verdict{Best: -1}
	for _, g := range groups {
		if len(c.Groups[g].Metrics[Goodput].Values) > 0 {
			v.Measured = append(v.Measured, g)
		}
	}
	median := func(g int, metric string) float64 { return c.Groups[g].Metrics[metric].Median }
	slices.SortStableFunc(v.Measured, func(a, b int) int { return cmp.Compare(median(b, Goodput), median(a, Goodput)) })
	if len(v.Measured) < 2 || median(v.Measured[0], Goodput) == 0 {
		return v
	}

	most := v.Measured[0]
	v.Best = most
	for _, g := range v.Measured[1:] {
		d := c.Compare(Goodput, most, g)
		if d.TooFew {
			v.Best, v.TooFew = most, true
			return v
		}
		_, served := c.Groups[g].Metrics[ServedP99]
		if served && !d.Significant && median(g, ServedP99) < median(v.Best, ServedP99) {
			v.Best = g
		}
	}
	v.ByLatency = median(v.Best, Goodput) < median(most, Goodput)
	for _, g := range v.Measured {
		if g == v.Best {
			continue
		}
		inGoodput, inP99 := c.Compare(Goodput, v.Best, g), c.Compare(ServedP99, v.Best, g)
		switch {
		// A group may beat the best in goodput by a hair that is significant, when
		// both are within the noise of the highest: that is no less.
		case inGoodput.Significant && median(g, Goodput) < median(v.Best, Goodput):
			v.Less = append(v.Less, inGoodput)
		case inP99.Significant:
			v.Slower = append(v.Slower, inP99)
		default:
			v.Same = append(v.Same, g)
		}
	}
	return v
}
