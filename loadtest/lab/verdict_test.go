package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestComparison_Verdict(t *testing.T) {
	t.Parallel()
	// The ranges of less, more and most do not overlap; those of more and around do.
	var (
		less   = []float64{90, 91, 92, 93, 94}
		more   = []float64{100, 101, 102, 103, 104}
		around = []float64{99, 100.5, 101.5, 102.5, 105}
		fast   = []float64{5, 5.1, 5.2, 5.3, 5.4}
		nearly = []float64{5.05, 5.15, 5.25, 5.35, 5.45}
		slow   = []float64{50, 51, 52, 53, 54}
		none   = []float64{0, 0, 0, 0, 0}
	)
	type group struct{ goodput, p99 []float64 }
	type verdict struct {
		measured               []int
		best                   int
		tooFew, byP99, ahead   bool
		same, slower, lessGood []int
	}
	for _, c := range []struct {
		name   string
		groups []group
		want   verdict
	}{
		{"the highest goodput is best", []group{{less, fast}, {more, slow}}, verdict{measured: []int{1, 0}, best: 1, lessGood: []int{0}}},
		{"of equal goodput the lowest p99 is best", []group{{more, slow}, {around, fast}}, verdict{measured: []int{0, 1}, best: 1, byP99: true, slower: []int{0}}},
		{"nothing may differ", []group{{more, nearly}, {around, fast}}, verdict{measured: []int{0, 1}, best: 1, byP99: true, ahead: true, same: []int{0}}},
		{"of those that do not differ one leads", []group{{around, nearly}, {more, fast}}, verdict{measured: []int{1, 0}, best: 1, ahead: true, same: []int{0}}},
		{
			"all at once",
			[]group{{more, slow}, {around, fast}, {more, nearly}, {less, fast}, {none, nil}, {}},
			verdict{measured: []int{0, 2, 1, 3, 4}, best: 1, byP99: true, same: []int{2}, slower: []int{0}, lessGood: []int{3, 4}},
		},
		{"three runs prove nothing", []group{{less[:3], fast[:3]}, {more[:3], slow[:3]}}, verdict{measured: []int{1, 0}, best: 1, tooFew: true}},
		{"one is not compared", []group{{more, fast}, {}}, verdict{measured: []int{0}, best: -1}},
		{"without goodput none is best", []group{{none, nil}, {none, slow}}, verdict{measured: []int{0, 1}, best: -1}},
		{"nothing was run", []group{{}, {}}, verdict{best: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			comparison, groups := new(Comparison), []int{}
			for i, g := range c.groups {
				metrics := map[string]Summary{}
				for name, values := range map[string][]float64{Goodput: g.goodput, ServedP99: g.p99} {
					if len(values) > 0 {
						metrics[name] = summary(values)
					}
				}
				comparison.Groups, groups = append(comparison.Groups, Group{Metrics: metrics}), append(groups, i)
			}
			v := comparison.Verdict(groups)
			others := func(differences []Difference) (groups []int) {
				for _, d := range differences {
					require.Equal(t, v.Best, d.A)
					groups = append(groups, d.B)
				}
				return groups
			}
			require.Equal(t, c.want, verdict{v.Measured, v.Best, v.TooFew, v.ByLatency, v.Ahead(), v.Same, others(v.Slower), others(v.Less)})
		})
	}
}
