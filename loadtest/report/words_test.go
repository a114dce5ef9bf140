package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// measured is a group of a strategy with the figures of its runs.
type measured struct {
	strategy     string
	goodput, p99 []float64
}

func comparisonOf(groups ...measured) *Comparison {
	c := &Comparison{Comparison: &lab.Comparison{Scenario: scenario.Scenario{Repetitions: len(groups[0].goodput)}}, Runs: make([][]*Run, len(groups))}
	summary := func(values []float64) lab.Summary {
		sorted := slices.Sorted(slices.Values(values))
		s := lab.Summary{Median: sorted[len(values)/2], Low: values[0], High: values[0], Values: values}
		for _, v := range values {
			s.Low, s.High = min(s.Low, v), max(s.High, v)
		}
		return s
	}
	for _, g := range groups {
		group := lab.Group{Combination: scenario.Combination{Strategy: g.strategy}, Workload: "put=100, closed loop", Metrics: map[string]lab.Summary{}}
		if g.goodput != nil {
			group.Metrics[goodput] = summary(g.goodput)
		}
		if g.p99 != nil {
			group.Metrics[servedP99] = summary(g.p99)
		}
		c.Groups = append(c.Groups, group)
	}
	return c
}

func TestStudy_JudgesInWords(t *testing.T) {
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
	for _, c := range []struct {
		name     string
		groups   []measured
		headline string
		says     string
		caution  bool
	}{
		{
			"the highest goodput is best",
			[]measured{{"fifo", less, fast}, {"lifo", more, slow}},
			"lifo is best.",
			"lifo is best: 102 good answers a second (100–104), served p99 52 ms (50–54). Less goodput: fifo −10.0% (p &lt; 0.001).", false,
		},
		{
			"of equal goodput, the lowest p99 is best",
			[]measured{{"fifo", more, slow}, {"lifo", around, fast}},
			"lifo is best.",
			"lifo is best: 102 good answers a second (99–105), served p99 5.2 ms (5–5.4). " +
				"As much goodput as far as can be told, but slower in served p99: fifo 9.81× (p &lt; 0.001).", false,
		},
		{
			"what cannot be told apart is called so",
			[]measured{{"fifo", more, nearly}, {"lifo", around, fast}, {"sync", less, slow}},
			"fifo and lifo cannot be told apart, and no other is better.",
			"fifo and lifo cannot be told apart: 102 good answers a second, served p99 5.2–5.25 ms. " +
				"Less goodput: sync −10.0% against fifo (p = 0.002).", false,
		},
		{
			"nothing may differ",
			[]measured{{"fifo", more, nearly}, {"lifo", around, fast}},
			"No difference goes beyond the noise.",
			"fifo and lifo cannot be told apart: 102 good answers a second, served p99 5.2–5.25 ms.", false,
		},
		{
			"nobody wins by being listed first",
			[]measured{{"fifo", more, fast}, {"lifo", more, fast}},
			"No difference goes beyond the noise.",
			"fifo and lifo cannot be told apart: 102 good answers a second, served p99 5.2 ms.", false,
		},
		{
			"a group without any goodput has no p99",
			[]measured{{"fifo", more, fast}, {"unbounded", none, nil}},
			"fifo is best.",
			"fifo is best: 102 good answers a second (100–104), served p99 5.2 ms (5–5.4). Less goodput: unbounded −100% (p &lt; 0.001).", false,
		},
		{
			"three runs prove nothing",
			[]measured{{"fifo", more[:3], fast[:3]}, {"lifo", less[:3], fast[:3]}},
			"Too few runs for proof. Highest median goodput under 1 of 1 load: fifo.",
			"fifo has the highest median, which proves nothing: 102 good answers a second (100–104), served p99 5.1 ms (5–5.2). " +
				"In goodput: lifo −10.0%. Not even the ranges touch: lifo 91 against 102 a second of fifo, in all of 3 runs; for proof, --repetitions 4.", true,
		},
		{
			"two that do not even touch",
			[]measured{{"fifo", []float64{1, 1}, slow[:2]}, {"lifo", []float64{1785, 1784}, fast[:2]}, {"auto", []float64{1784, 1785}, fast[:2]}},
			"Too few runs for proof. Highest median goodput under 1 of 1 load: lifo and auto.",
			"lifo and auto have the highest median, which proves nothing: 1,785 good answers a second, served p99 5.1 ms. " +
				"In goodput: fifo −100% against lifo. Not even the ranges touch: fifo 1 against 1,785 a second of lifo, in all of 2 runs; for proof, --repetitions 4.", true,
		},
		{
			"a tie of too few",
			[]measured{{"fifo", more[:2], fast[:2]}, {"lifo", more[:2], fast[:2]}},
			"Too few runs for proof. Highest median goodput under 1 of 1 load: fifo and lifo.",
			"fifo and lifo have the highest median, which proves nothing: 102 good answers a second, served p99 5.1 ms. Too few runs for proof: --repetitions 4.", true,
		},
		{
			"one setting is not compared",
			[]measured{{"fifo", more[:1], fast[:1]}},
			"One setting, fifo, under 1 load.",
			"fifo: 102 good answers a second, served p99 5 ms.", false,
		},
		{
			"a group that was not run is left out",
			[]measured{{"fifo", more[:1], fast[:1]}, {"lifo", nil, nil}},
			"There is nothing to compare: no load has two settings that were measured and served anything within the SLO.",
			"fifo is the only one that was measured: 102 good answers a second, served p99 5 ms.", false,
		},
		{
			"nothing was served",
			[]measured{{"fifo", none, nil}, {"lifo", none, slow}},
			"Nothing was served within the SLO, under 1 load.",
			"none was served within the SLO.", false,
		},
		{
			"next to nothing was served",
			[]measured{{"fifo", []float64{0, 0, 0, 0, 7}, slow}, {"lifo", none, nil}},
			"There is nothing to compare: no load has two settings that were measured and served anything within the SLO.",
			"most runs served none within the SLO.", false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStudy(comparisonOf(c.groups...))
			require.Len(t, s.workloads, 1)
			v, ok := s.judge(s.workloads[0])
			require.True(t, ok)
			says := strings.TrimPrefix(v.Markdown(), escape(v.Workload)+": ")
			require.Equal(t, c.says, strings.ReplaceAll(says, "**", ""))
			require.Equal(t, c.headline, headline([]verdict{v}, s.settings))
			require.Equal(t, c.caution, caution([]verdict{v}) != "")
		})
	}
}

func TestStudy_JudgesNothing(t *testing.T) {
	t.Parallel()
	s := newStudy(comparisonOf(measured{strategy: "fifo"}))
	_, ok := s.judge(s.workloads[0])
	require.False(t, ok)
	require.Equal(t, "Nothing was measured.", headline(nil, s.settings))
}

func TestHeadline_CountsLoads(t *testing.T) {
	t.Parallel()
	won := func(names ...string) verdict {
		return verdict{Setting: list(names), Is: "is best", top: names, Verdict: lab.Verdict{Top: make([]int, len(names)), Less: make([]lab.Difference, 1)}}
	}
	alone := verdict{Setting: "sync", Is: "is the only one that was measured"}
	none := verdict{Is: unserved}
	settings := []string{"fifo", "lifo", "sync"}
	for _, c := range []struct {
		verdicts []verdict
		want     string
	}{
		{[]verdict{won("lifo"), won("lifo", "fifo"), won("fifo", "lifo")}, "lifo is best, or not proven to be worse, under 3 of 3 loads."},
		{[]verdict{won("lifo", "fifo"), won("fifo", "lifo")}, "fifo and lifo are each best, or not proven to be worse, under 2 of 2 loads."},
		{[]verdict{won("lifo"), won("fifo")}, "Each load has another best setting."},
		{[]verdict{won("lifo"), alone, won("lifo", "fifo"), none}, "lifo is best, or not proven to be worse, under 2 of 2 loads."},
		{[]verdict{alone, won("lifo")}, "lifo is best."},
	} {
		require.Equal(t, c.want, headline(c.verdicts, settings))
	}
}

func TestStudy_NamesWhatDiffers(t *testing.T) {
	t.Parallel()
	group := func(c scenario.Combination, workload string) lab.Group {
		return lab.Group{Combination: c, Workload: workload, Load: workload}
	}
	c := &Comparison{Comparison: &lab.Comparison{Groups: []lab.Group{
		group(scenario.Combination{Strategy: "fifo", Workers: 8, Capacity: 64, Sync: "never"}, "put=100, 64 connections, 0.9x"),
		group(scenario.Combination{Strategy: "fifo", Workers: 8, Capacity: 128, Sync: "never"}, "put=100, 1 connection, 0.9x"),
		group(scenario.Combination{Strategy: "sync", Sync: "never"}, "put=100, 64 connections, 0.9x"),
	}}, Runs: make([][]*Run, 3)}
	s := newStudy(c)
	require.Equal(t, []string{"fifo (64 waiting)", "fifo (128 waiting)", "sync"}, s.setting)
	require.Equal(t, "put=100, 0.9x", s.common)
	require.Equal(t, []string{"fifo (8 workers)", "fifo"}, settingNames([]lab.Group{
		group(scenario.Combination{Strategy: "fifo", Workers: 8}, ""),
		group(scenario.Combination{Strategy: "fifo"}, ""),
	}), "the default differs from what is given")
	require.Equal(t, []string{"fifo (random)", "fifo (power-of-two)"}, settingNames([]lab.Group{
		group(scenario.Combination{Strategy: "fifo", Nodes: 2, Balance: "random"}, ""),
		group(scenario.Combination{Strategy: "fifo", Nodes: 2, Balance: "power-of-two"}, ""),
	}))
	require.Equal(t, []workload{{"64 connections", []int{0, 2}}, {"1 connection", []int{1}}}, s.workloads)
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
	require.Equal(t, "−18%", percent(0.82))
	require.Equal(t, "+1.5%", percent(1.015))
	require.Equal(t, "4.5×", percent(4.5))
	require.Equal(t, "30.1–31.5 k", spread(lab.Summary{Low: 30_100, High: 31_500}))
	require.Equal(t, "9,800–10.2 k", spread(lab.Summary{Low: 9800, High: 10_200}))
	require.Empty(t, spread(lab.Summary{Low: 30_100, High: 30_101}))
	require.Equal(t, "1.5 GiB", amount(1.5*(1<<30), "bytes"))
}
