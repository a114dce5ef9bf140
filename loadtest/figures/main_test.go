package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// folder holds a comparison of three strategies at two rates, with shares.
func folder(t *testing.T, change func(*lab.Comparison)) string {
	t.Helper()
	c := &lab.Comparison{
		Version: "spillway 1.2.3 (commit abc1234, go1.2.3)", Command: "loadtest compare", Finished: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Scenario: scenario.Scenario{SLO: 100 * time.Millisecond}, Capacity: map[string]float64{"": 2000},
	}
	c.Machine.CPU, c.Machine.CPUs = "Abacus", 2
	for _, strategy := range []string{"fifo", "mpmc", "auto"} {
		for rate, offered := range map[string]float64{"0.5x": 1000, "2x": 4000} {
			goodput := min(offered, 2000)
			if strategy != "auto" && rate == "2x" {
				goodput = 100
			}
			c.Groups = append(c.Groups, lab.Group{
				Combination: scenario.Combination{Strategy: strategy, Rate: rate, Workers: 8},
				Metrics: map[string]lab.Summary{
					"offered_rps": {Median: offered}, "goodput_rps": {Median: goodput}, "sent_goodput_rps": {Median: goodput / 2},
					"served_p99_ms": {Median: 1234},
				},
				Shares: map[string]result.Share{"client greedy": {Requests: 10, Good: 5}, "client other": {Requests: 10, Good: 10}},
			})
		}
	}
	change(c)
	dir := t.TempDir()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "comparison.json"), text, 0o600))
	return dir
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	const source = "*abc1234, go1.2.3, 2026-01-02, 2 × Abacus*\n\n"
	for what, row := range map[string]struct {
		attributes string
		change     func(*lab.Comparison)
		table      string
	}{
		"rows of the same figures are one": {
			` cells="{good} · {served_p99_ms}" columns="rate" only="rate=2x"`, func(*lab.Comparison) {},
			"|  | 2 × |\n| --- | --- |\n| `fifo`, `mpmc` | 0.05 · 1.23 s |\n| `auto` | 1.00 · 1.23 s |\n\n" + source,
		},
		"by the other clock": {
			` cells="{good} {sent_good}" only="rate=0.5x; strategy=auto"`, func(*lab.Comparison) {},
			"|  | 0.5 × |\n| --- | --- |\n| `auto` | 1.00 0.50 |\n\n" + source,
		},
		"several names": {
			` cells="{goodput_rps}" rows="workers strategy" only="rate=0.5x; strategy=auto"`, func(*lab.Comparison) {},
			"|  |  | 0.5 × |\n| --- | --- | --- |\n| 8 | `auto` | 1000 |\n\n" + source,
		},
		"shares": {
			` cells="{good%}" columns="rate share" only="rate=2x; strategy=auto|fifo"`, func(*lab.Comparison) {},
			"|  | 2 × greedy | 2 × other |\n| --- | --- | --- |\n| `fifo`, `auto` | 50 | 100 |\n\n" + source,
		},
		"late generators and what was not measured": {
			` cells="{good} {server_cpu_us}" only="rate=2x; strategy=auto"`, func(c *lab.Comparison) {
				for _, g := range c.Groups {
					g.Metrics["generator_late_p99_ms"] = lab.Summary{Median: 1, High: 11}
				}
			},
			"|  | 2 × |\n| --- | --- |\n| `auto` | 1.00 – † |\n\n†: in one of the runs the generator was late.\n\n" + source,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			begin := "before\n<!-- table " + folder(t, row.change) + row.attributes + " -->\n"
			page := filepath.Join(t.TempDir(), "page.md")
			for _, old := range []string{"", "what was there\n", "| a table |\n"} {
				require.NoError(t, os.WriteFile(page, []byte(begin+old+"<!-- end of table -->\nbehind\n"), 0o600))
				require.NoError(t, rewrite(page))
				text, err := os.ReadFile(page)
				require.NoError(t, err)
				require.Equal(t, begin+"\n"+row.table+"<!-- end of table -->\nbehind\n", string(text))
			}
		})
	}
}

// A caption says what was measured, when and on what, as far as that is known.
func TestSource(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]lab.Comparison{
		"*abc, go1.2, 0001-01-01, in virtual time*":               {Version: "simulated by loadtest v1 (commit abc, go1.2)"},
		"*abc, go1.2, 0001-01-01, 0 × an unknown processor*":      {Lab: "v1 (commit abc, go1.2)"},
		"*spillway of old, 0001-01-01, 0 × an unknown processor*": {Version: "spillway of old"},
		"*no commit, 0001-01-01, 0 × an unknown processor*":       {},
	} {
		require.Equal(t, want, source(&c))
	}
}

// A page with an error stays as it is.
func TestRewrite_Errors(t *testing.T) {
	t.Parallel()
	dir := folder(t, func(*lab.Comparison) {})
	partial := folder(t, func(c *lab.Comparison) { c.Partial = "interrupted" })
	for text, says := range map[string]string{
		"<!-- table /nowhere -->\n<!-- end of table -->":                      "/nowhere",
		"<!-- table " + dir + " cells=\"{speed}\" -->\n<!-- end of table -->": "{speed} is not",
		"<!-- table " + dir + " colour=\"red\" -->\n<!-- end of table -->":    "colour is not",
		"<!-- table " + dir + " -->\n":                                        "no <!-- end of table -->",
		"<!-- table " + partial + " -->\n<!-- end of table -->":               "partial: interrupted",
	} {
		page := filepath.Join(t.TempDir(), "page.md")
		require.NoError(t, os.WriteFile(page, []byte(text), 0o600))
		require.ErrorContains(t, rewrite(page), says)
		after, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Equal(t, text, string(after))
	}
}
