package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestComparison_Verdict(t *testing.T) {
	t.Parallel()
	// The ranges of less and more do not touch; those of more and around do. In which
	// repetition a figure is great is by chance.
	var (
		less   = []float64{93, 90, 91, 94, 92}
		more   = []float64{102, 100, 104, 101, 103}
		around = []float64{105, 99, 101.5, 102.5, 100.5}
		fast   = []float64{5, 5.1, 5.2, 5.3, 5.4}
		nearly = []float64{5.35, 5.05, 5.45, 5.15, 5.25}
		slow   = []float64{52, 50, 51, 54, 53}
		none   = []float64{0, 0, 0, 0, 0}
	)
	type group struct{ goodput, p99 []float64 }
	type verdict struct {
		measured, top          []int
		tooFew                 bool
		slower, less, apartAll []int
	}
	for _, c := range []struct {
		name   string
		groups []group
		want   verdict
	}{
		{"the highest goodput is best", []group{{less, fast}, {more, slow}}, verdict{measured: []int{1, 0}, top: []int{1}, less: []int{0}}},
		{"of equal goodput the lowest p99 is best", []group{{more, slow}, {around, fast}}, verdict{measured: []int{0, 1}, top: []int{1}, slower: []int{0}}},
		{"of those that do not differ none is", []group{{more, nearly}, {around, fast}}, verdict{measured: []int{0, 1}, top: []int{0, 1}}},
		{"whoever is listed first", []group{{more, fast}, {more, fast}}, verdict{measured: []int{0, 1}, top: []int{0, 1}}},
		{
			"all at once",
			[]group{{more, slow}, {around, fast}, {more, nearly}, {less, fast}, {none, nil}, {}},
			verdict{measured: []int{0, 2, 1, 3, 4}, top: []int{2, 1}, slower: []int{0}, less: []int{3, 4}},
		},
		{
			"three runs prove nothing, but do not touch", []group{{less[:3], fast[:3]}, {more[:3], slow[:3]}, {around[:3], fast[:3]}},
			verdict{measured: []int{1, 2, 0}, top: []int{1, 2, 0}, tooFew: true, apartAll: []int{0}},
		},
		{"nor do those of which only some have both", []group{{less, fast}, {more[:3], slow[:3]}}, verdict{measured: []int{1, 0}, top: []int{1, 0}, tooFew: true, apartAll: []int{0}}},
		{"one is not compared", []group{{more, fast}, {}}, verdict{measured: []int{0}}},
		{"without goodput none is best", []group{{none, nil}, {none, slow}}, verdict{measured: []int{0, 1}}},
		{"nothing was run", []group{{}, {}}, verdict{}},
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
					require.Contains(t, v.Measured, d.A)
					groups = append(groups, d.B)
				}
				return groups
			}
			require.Equal(t, c.want, verdict{v.Measured, v.Top, v.TooFew, others(v.Slower), others(v.Less), others(v.Apart)})
			best, ok := v.Best()
			require.Equal(t, len(v.Top) == 1, ok)
			require.True(t, !ok || best == v.Top[0])
		})
	}
}
