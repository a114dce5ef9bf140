package report

import (
	"testing"

	"github.com/dustin/go-humanize"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

func TestStudy_NamesWhatDiffers(t *testing.T) {
	t.Parallel()
	group := func(c scenario.Combination, workload string) lab.Group {
		return lab.Group{Combination: c, Workload: workload, Load: workload}
	}
	c := &Comparison{Comparison: &lab.Comparison{Groups: []lab.Group{
		group(scenario.Combination{Strategy: "fifo", Workers: 8, Capacity: 64, Sync: "never"}, "put=100, 64 connections, 0.9x"),
		group(scenario.Combination{Strategy: "fifo", Workers: 8, Capacity: 128, Sync: "never"}, "put=100, 64 connections, 0.9x"),
		group(scenario.Combination{Strategy: "fifo", Workers: 8, Capacity: 512, Sync: "never"}, "put=100, 1 connection, 0.9x"),
		group(scenario.Combination{Strategy: "sync", Sync: "never"}, "put=100, 64 connections, 0.9x"),
	}}, Runs: make([][]*Run, 4)}
	s := newStudy(c)
	require.Equal(t, []string{"fifo (64 waiting)", "fifo (128 waiting)", "fifo", "sync"}, s.setting)
	require.Equal(t, "put=100, 0.9x", s.common)
	require.Equal(t, []string{"fifo (8 workers)", "fifo"}, settingNames([]lab.Group{
		group(scenario.Combination{Strategy: "fifo", Workers: 8}, ""),
		group(scenario.Combination{Strategy: "fifo"}, ""),
	}), "the default differs from what is given")
	require.Equal(t, []string{"fifo (random)", "fifo (power-of-two)"}, settingNames([]lab.Group{
		group(scenario.Combination{Strategy: "fifo", Nodes: 2, Balance: "random"}, ""),
		group(scenario.Combination{Strategy: "fifo", Nodes: 2, Balance: "power-of-two"}, ""),
	}))
	require.Equal(t, []loadGroups{{"64 connections", []int{0, 1, 3}}, {"1 connection", []int{2}}}, s.workloads)
}

// A load that has nothing of its own has a name beside those that have.
func TestStudy_NamesEveryLoad(t *testing.T) {
	t.Parallel()
	loads := func(names ...string) (sets []loadGroups) {
		var groups []lab.Group
		for _, name := range names {
			groups = append(groups, lab.Group{Workload: name})
		}
		sets, _ = gather(groups, func(g lab.Group) string { return g.Workload })
		return sets
	}
	require.Equal(t, []loadGroups{{"plain", []int{0, 2}}, {"retries 4,10ms", []int{1}}}, loads("get=100, 2x", "get=100, retries 4,10ms, 2x", "get=100, 2x"))
	require.Equal(t, []loadGroups{{"", []int{0}}}, loads("get=100, 2x"))
}

func TestFigures_AreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.01234: "0.0123", 1.5: "1.5", 12.345: "12.3", 999.6: "1,000", 1234: "1,234", 9999: "9,999",
		12_345: "12.3 k", 1_234_567: "1.23 M", 2e9: "2 G", -0.5: "-0.5",
	} {
		require.Equal(t, want, short(v))
	}
	require.Equal(t, "1,234,567", humanize.Comma(1_234_567))
	require.Equal(t, "-123", humanize.Comma(-123))
	require.Equal(t, "30.1–31.5 k", spread(lab.Summary{Low: 30_100, High: 31_500}))
	require.Equal(t, "9,800–10.2 k", spread(lab.Summary{Low: 9800, High: 10_200}))
	require.Empty(t, spread(lab.Summary{Low: 30_100, High: 30_101}))
	require.Equal(t, "1.5 GiB", amount(1.5*(1<<30), "bytes"))
}
