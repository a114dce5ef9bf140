package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/peers/versus"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args           string
		question, out  string
		rounds, passes int
	}{
		{"", "peers", "reports/peers", lab.ProofRuns, 1},
		{"-strategies=fifo,lifo -peers=bare,plain -rounds=9", "peers", "reports/peers", 9, 1},
		{"-pairs=9", "pairs", "reports/peers", 9, 3},
		{"-pairs=9 -passes=1 -out=here", "pairs", "here", 9, 1},
		{"-against=old", "against", "reports/peers", lab.ProofRuns, 3},
		{"-vary=idle", "idle", "reports/peers-idle", lab.ProofRuns, 1},
		{"-vary=idle -rounds=9 -out=here", "idle", "here", 9, 1},
		{"-vary=idle -quick", "idle", "reports/peers-idle", 1, 1},
	} {
		s, err := parse(strings.Fields(row.args), io.Discard)
		require.NoError(t, err)
		require.Equal(t, row.question, s.question)
		require.Equal(t, row.out, s.out)
		require.Equal(t, row.rounds, s.how.Rounds, row.args)
		require.Equal(t, row.passes, s.how.Passes, row.args)
	}
	for args, large := range map[string]uint64{"": 10e9, "-quick": 20e6, "-quick -large=30MB": 30e6} {
		s, err := parse(strings.Fields("-vary=store "+args), io.Discard)
		require.NoError(t, err)
		require.Equal(t, large, s.Large)
	}
	for args, keys := range map[string]uint64{"-vary=idle": 1e6, "-vary=systems": 1e5, "-vary=systems -keys=7": 7, "-vary=systems -quick": 1e4} {
		s, err := parse(strings.Fields(args), io.Discard)
		require.NoError(t, err)
		require.Equal(t, keys, s.Keys, args)
	}
	s, err := parse([]string{"-strategies", "fifo lifo"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"fifo", "lifo"}, s.Strategies)
}

func TestParse_Wrong(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"no flag":           {"fifo"},
		"more than 0":       {"-rounds=0"},
		"not defined":       {"-strategy=fifo"},
		`no peer "nginx"`:   {"-peers=nginx"},
		`unknown strategy`:  {"-strategies=filo"},
		"parse error":       {"-keys=many"},
		"choose one":        {"-pairs=9", "-against=old"},
		"it or -pairs":      {"-vary=sync", "-pairs=9"},
		"it or -against":    {"-vary=sync", "-against=old"},
		"it or -strategies": {"-vary=sync", "-strategies=lifo"},
		"no question":       {"-vary=weather"},
		"less than 100 kB":  {"-vary=store", "-large=1000"},
		"at most 100000":    {"-vary=systems", "-keys=100001"},
	} {
		_, err := parse(args, io.Discard)
		require.ErrorContains(t, err, want, "%v", args)
	}
}

// TestRun_SaysWhatIsMissing: nothing is left of a comparison that cannot begin.
func TestRun_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "reports", "idle")
	err := run(t.Context(), []string{"-vary=idle", "-quick", "-out", out, "-service", filepath.Join(dir, "spillway")}, io.Discard, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
	left, err := os.ReadDir(filepath.Dir(out))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestSave writes an answer into both files.
func TestSave(t *testing.T) {
	t.Parallel()
	q, err := versus.Ask("idle", versus.Setup{})
	require.NoError(t, err)
	c := new(lab.Comparison)
	for range len(q.Loads) * len(q.Contestants) {
		c.Groups = append(c.Groups, lab.Group{Metrics: map[string]lab.Summary{"served_rps": {Median: 1, Values: []float64{1}}}})
	}
	out := filepath.Join(t.TempDir(), "answer")
	var b strings.Builder
	require.NoError(t, save(q, c, out, &b))
	require.Regexp(t, `(?s)^# .*\n\n.* the generator beside the servers; .*\n\n\| load \|.*\|\n$`, b.String())
	text, err := os.ReadFile(out + ".md")
	require.NoError(t, err)
	require.Equal(t, b.String(), string(text))
	figures, err := os.ReadFile(out + ".json")
	require.NoError(t, err)
	var again lab.Comparison
	require.NoError(t, json.Unmarshal(figures, &again))
	require.Len(t, again.Groups, len(c.Groups))
}
