package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSimulate_ShowsAndReports(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	args := []string{
		"simulate", "--strategies=fifo,lifo", "--workers=8", "--capacities=256", "--rates=2x", "--service=exp:4ms", "--duration=300ms",
		"--warmup=200ms", "--repetitions=4", "--clients=greedy=95,other*19=5", "--retries=2,10ms", "--seed=7", "--out", dir,
	}
	first := try(t, args...)
	require.Equal(t, exitOK, first.code, first)
	require.Contains(t, first.stdout, "  lifo  ")
	require.Contains(t, first.stdout, "client other  ")
	require.FileExists(t, filepath.Join(dir, "report.html"))
	// The same command replaces what is there by the same.
	again := try(t, args...)
	require.Equal(t, first, again)
	// report takes it as it takes a comparison.
	page := filepath.Join(t.TempDir(), "a.html")
	o := try(t, "report", dir, "-o", page)
	require.Equal(t, exitOK, o.code, o)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "simulated by loadtest ")
	// Of one load no table needs to say which it is of.
	text, err = os.ReadFile(filepath.Join(dir, "report.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "**good, % of what each asked for**")
}

// Without rates it is a closed loop, over as many connections as in compare; with
// rates nobody waits for a connection.
func TestSimulate_Connections(t *testing.T) {
	t.Parallel()
	o := try(t, "simulate", "--strategies=fifo", "--workers=8", "--service=4ms", "--duration=1s", "--repetitions=1", "--out", t.TempDir())
	require.Equal(t, exitOK, o.code, o)
	require.Contains(t, o.stdout, "closed loop\n")
	require.Contains(t, o.stdout, "  2,000 ", "64 connections are less than 8 workers and room for 256")
	o = try(t, "simulate", "--strategies=sync", "--workers=8", "--rates=max,1.5x", "--service=4ms", "--store-parallel=0,8",
		"--duration=1s", "--repetitions=1", "--out", t.TempDir())
	require.Equal(t, exitOK, o.code, o)
	require.Contains(t, o.stdout, "20000 connections, 8 at once, 1.5x")
}

func TestSimulate_Scenario(t *testing.T) {
	t.Parallel()
	o := try(t, "simulate", "--scenario=overload", "--short", "--nodes=2", "--balance=power-of-two",
		"--duration=100ms", "--warmup=0s", "--repetitions=1", "--out", t.TempDir())
	require.Equal(t, exitOK, o.code, o)
	require.Contains(t, o.stdout, "2 nodes, get=100")
}

func TestSimulate_Usage(t *testing.T) {
	t.Parallel()
	measured, unfinished := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(measured, "comparison.json"), []byte(`{"version": "spillway 1"}`), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(unfinished, "runs"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(unfinished, "runs", "001-fifo-r1.json"), nil, 0o600))
	for _, tt := range []struct {
		word string
		args []string
	}{
		{"what?", nil},
		{"nodes: \"0\" is not a whole number from 1 to 10000", []string{"--strategies=fifo", "--nodes=0"}},
		{"slow_node: \"0\" is not a speed", []string{"--strategies=fifo", "--slow-node=0"}},
		{"--scan-cost", []string{"--strategies=fifo", "--scan-cost=0"}},
		{"--costs: [1 0]", []string{"--strategies=fifo", "--costs=1,0"}},
		{"--timeout", []string{"--strategies=fifo", "--timeout=-1s"}},
		{"--service", []string{"--strategies=fifo", "--service=soon"}},
		{"balance: \"best\" is not one of round-robin", []string{"--strategies=fifo", "--balance=best"}},
		{"unknown strategy", []string{"--strategies=best"}},
		{"retries", []string{"--strategies=fifo", "--retries=many"}},
		{"no scenario is named", []string{"--scenario=best"}},
		// A real comparison is not replaced by a simulated one.
		{"of a real service", []string{"--strategies=fifo", "--out", measured}},
		{"of a real service", []string{"--strategies=fifo", "--out", unfinished}},
	} {
		try(t, append([]string{"simulate"}, tt.args...)...).requireFailed(t, exitUsage, tt.word)
	}
}
