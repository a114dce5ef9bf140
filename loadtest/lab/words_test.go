package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The report says one thing in a sentence, and the rest in a few words each.
func TestVerdicts_InWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		loads    [][]group
		headline string
		against  [][]string
	}{
		{"by goodput", [][]group{{{less, fast, nil}, {more, late, nil}}}, "B is best, by goodput.", [][]string{{"−9.8%", "best"}}},
		{
			"by what the important get", [][]group{{{more, fast, half}, {more, late, most}}},
			"B is best, by what the important get.", [][]string{{"important −44%", "best"}},
		},
		{"by p99", [][]group{{{more, late, nil}, {around, fast, nil}}}, "B is best, by served p99.", [][]string{{"p99 10×", "best"}}},
		{
			"several are the same", [][]group{{{more, fast, nil}, {more, fast, nil}, {less, fast, nil}}},
			"A and B are the same, and better than the others by goodput.", [][]string{{"best", "the same", "−9.8%"}},
		},
		{
			"what may be", [][]group{{{more, fast, nil}, {unsure, fast, nil}, {none, nil, nil}}},
			"A and B cannot be told apart, and no other is better.", [][]string{{"highest goodput", "−12%, not proven", "−100%"}},
		},
		{
			"nothing differs", [][]group{{{more, fast, nil}, {more, fast, nil}}},
			"No difference goes beyond the noise: these runs tell goodput apart that differs by 2% or more.", [][]string{{"best", "the same"}},
		},
		{
			"too few runs", [][]group{{{more[:3], fast[:3], nil}, {less[:3], fast[:3], nil}}},
			"Nothing could be told: for that, --repetitions 6 or more.", [][]string{{"highest goodput", "−10%, not proven"}},
		},
		{"one setting", [][]group{{{more, fast, nil}}}, "One setting, A: there is nothing to compare it with.", [][]string{{""}}},
		{
			"one of two was not run", [][]group{{{more, fast, nil}, {}}},
			"There is nothing to compare: no load has two settings that were measured and served anything within the SLO.", [][]string{{"", "not run"}},
		},
		{"nothing was served", [][]group{{{none, nil, nil}, {none, late, nil}}}, "Nothing was served within the SLO.", [][]string{{"", ""}}},
		{"nothing was run", [][]group{{{}, {}}}, "Nothing was measured.", [][]string{{"not run", "not run"}}},
		{
			"over loads goodput counts, and p99 stands in the table", [][]group{
				{{more, late, nil}, {more, fast, nil}}, {{more, fast, nil}, {less, fast, nil}}, {{more, fast, nil}, {more, fast, nil}},
			},
			"By goodput A is unbeaten under 3 of 3 loads.", [][]string{{"p99 10×", "best"}, {"best", "−9.8%"}, {"best", "the same"}},
		},
		{
			"each wins once", [][]group{{{more, fast, nil}, {less, fast, nil}}, {{less, fast, nil}, {more, fast, nil}}},
			"By goodput none of the settings is better than another under more loads.", [][]string{{"best", "−9.8%"}, {"−9.8%", "best"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			comparison := measured(c.loads...)
			name := func(g int) string { return string('A' + rune(comparison.Groups[g].Combination.Workers-1)) }
			verdicts := comparison.Verdicts()
			require.Equal(t, c.headline, Headline(verdicts, name))
			for load, v := range verdicts {
				var against []string
				for _, g := range v.Groups {
					against = append(against, v.Against(g, name))
				}
				require.Equal(t, c.against[load], against)
			}
		})
	}
}

func TestVerdict_Told(t *testing.T) {
	t.Parallel()
	require.Equal(t, "nothing could be told: 1 run is fewer than 4", (&Verdict{Top: []int{0}, Runs: 1}).Told())
	require.Equal(t, "nothing could be told: 3 runs are fewer than 4", (&Verdict{Top: []int{0}, Runs: 3}).Told())
	require.Equal(t, "2.4%", (&Verdict{Top: []int{0}, Runs: 9, Tells: 0.024}).Told())
}
