package lab

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// Figures of runs. In which repetition one is great is by chance.
var (
	less   = []float64{93, 90, 91, 94, 92}
	more   = []float64{102, 100, 104, 101, 103}
	around = []float64{105, 99, 101.5, 102.5, 100.5}
	unsure = []float64{80, 99, 120, 60, 100}
	fast   = []float64{5, 5.1, 5.2, 5.3, 5.4}
	nearly = []float64{5.02, 5.11, 5.18, 5.32, 5.39}
	late   = []float64{52, 50, 51, 54, 53}
	none   = []float64{0, 0, 0, 0, 0}
	most   = []float64{90, 91, 89, 90, 90}
	half   = []float64{50, 51, 49, 50, 50}
)

// group is what was measured of a setting.
type group struct{ goodput, p99, important []float64 }

// measured returns a comparison of settings under several loads.
func measured(loads ...[]group) *Comparison {
	c := new(Comparison)
	for load, groups := range loads {
		for i, g := range groups {
			metrics := map[string]Summary{}
			for name, values := range map[string][]float64{result.Goodput: g.goodput, result.ServedP99: g.p99, result.ImportantGood: g.important} {
				if len(values) > 0 {
					metrics[name] = Spread(values)
				}
			}
			c.Groups = append(c.Groups, Group{Combination: scenario.Combination{Workers: i + 1}, Workload: fmt.Sprint(load), Metrics: metrics})
		}
	}
	return c
}

func TestComparison_Verdicts(t *testing.T) {
	t.Parallel()
	type verdict struct {
		measured, top []int
		others        map[int]string // the metric, "same", or "?" if it is not proven
	}
	for _, c := range []struct {
		name   string
		groups []group
		want   verdict
	}{
		{"the highest goodput is best", []group{{less, fast, nil}, {more, late, nil}}, verdict{[]int{1, 0}, []int{1}, map[int]string{0: result.Goodput}}},
		{
			"of the same goodput the one that serves the important is best, slow as it is",
			[]group{{more, fast, half}, {more, late, most}}, verdict{[]int{0, 1}, []int{1}, map[int]string{0: result.ImportantGood}},
		},
		{"then the lowest p99", []group{{more, late, most}, {around, fast, most}}, verdict{[]int{0, 1}, []int{1}, map[int]string{0: result.ServedP99}}},
		{"what differs by less than 2% is the same", []group{{more, nearly, nil}, {around, fast, nil}}, verdict{[]int{0, 1}, []int{0, 1}, map[int]string{1: "same"}}},
		{"where goodput may differ, p99 decides nothing", []group{{more, late, nil}, {unsure, fast, nil}}, verdict{[]int{0, 1}, []int{0, 1}, map[int]string{1: "?"}}},
		{
			"all at once", []group{{more, late, nil}, {around, fast, nil}, {more, nearly, nil}, {less, fast, nil}, {none, nil, nil}, {}},
			verdict{[]int{0, 2, 1, 3, 4}, []int{2, 1}, map[int]string{0: result.ServedP99, 1: "same", 3: result.Goodput, 4: result.Goodput}},
		},
		{"three runs prove nothing", []group{{less[:3], fast[:3], nil}, {more[:3], late[:3], nil}}, verdict{[]int{1, 0}, []int{1, 0}, map[int]string{0: "?"}}},
		{"nor do those of which only some have both", []group{{less, fast, nil}, {more[:3], late[:3], nil}}, verdict{[]int{1, 0}, []int{1, 0}, map[int]string{0: "?"}}},
		{"one is not compared", []group{{more, fast, nil}, {}}, verdict{measured: []int{0}}},
		{"without goodput none is best", []group{{none, nil, nil}, {none, late, nil}}, verdict{measured: []int{0, 1}}},
		{"nothing was run", []group{{}, {}}, verdict{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			verdicts := measured(c.groups).Verdicts()
			require.Len(t, verdicts, 1)
			v := verdicts[0]
			got := verdict{measured: v.Measured, top: v.Top}
			for _, d := range v.Others {
				if got.others == nil {
					got.others = map[int]string{}
				}
				switch {
				case d.Same:
					got.others[d.B] = "same"
				case d.Proven():
					got.others[d.B] = d.Metric
				default:
					got.others[d.B] = "?"
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}
