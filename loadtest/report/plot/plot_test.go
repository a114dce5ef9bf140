package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// write makes a comparison of one load, whose capacity is 100, and returns its
// folder.
func write(t *testing.T, groups ...lab.Group) string {
	t.Helper()
	dir := t.TempDir()
	content, err := json.Marshal(lab.Comparison{
		Capacity: map[string]float64{"load": 100}, Groups: groups,
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "comparison.json"), content, 0o600))
	return dir
}

func group(strategy, rate string, goodput float64, runs ...string) lab.Group {
	return lab.Group{
		Combination: scenario.Combination{Strategy: strategy, Rate: rate}, Load: "load", Runs: runs,
		Metrics: map[string]lab.Summary{"goodput_rps": {Median: goodput}},
	}
}

func TestRead_OverLoad(t *testing.T) {
	t.Parallel()
	panels, err := read(write(t,
		group("fifo", "2x", 0), group("fifo", "0.5x", 50),
		group("lifo", "2x", 98), group("lifo", "0.5x", 50),
		group("auto", "2x", 100), group("auto", "0.5x", 50)))
	require.NoError(t, err)
	// Points are in the order of the load, and lines that look alike are one.
	require.Equal(t, []panel{{
		title: "load", x: "offered load, × capacity", relative: true,
		lines: []line{
			{names: []string{"fifo"}, points: []point{{0.5, 0.5}, {2, 0}}},
			{names: []string{"lifo", "auto"}, points: []point{{0.5, 0.5}, {2, 0.98}}},
		},
	}}, panels)
}

func TestRead_OverTime(t *testing.T) {
	t.Parallel()
	dir := write(t, group("fifo", "0.8x", 0, "1.json", "2.json"))
	for file, good := range map[string]int64{"1.json": 100, "2.json": 300} {
		result := result.Result{TimelineStep: 2, Timeline: []result.Interval{{Good: good}, {Good: 0}}}
		require.NoError(t, result.Save(filepath.Join(dir, file)))
	}
	panels, err := read(dir)
	require.NoError(t, err)
	// 200 in 2 seconds, of 100 a second.
	require.Equal(t, []panel{{
		title: "load", x: "seconds", lines: []line{{names: []string{"fifo"}, points: []point{{1, 1}, {3, 0}}}},
	}}, panels)
}

func TestRead_NoCapacity(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"max", "500", ""} {
		_, err := read(write(t, group("fifo", rate, 0)))
		require.ErrorIs(t, err, errNoCapacity, rate)
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	many := line{names: []string{"a", "b", "c", "<d>"}, points: []point{{0.5, 0.5}, {10, 9}}}
	got := string(draw([]panel{
		{title: "A & B", x: "load", relative: true, lines: []line{many}},
		{title: "C", x: "seconds", lines: []line{many}},
	}))
	for decoder := xml.NewDecoder(strings.NewReader(got)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, got, ">a, b, c,</text>")
	require.Contains(t, got, ">&lt;d&gt;</text>")
	require.Equal(t, 2, strings.Count(got, "clip-path=")) // what is above the axis is cut off
}
