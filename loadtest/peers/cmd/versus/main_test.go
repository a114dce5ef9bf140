package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spillway/loadtest"
	"spillway/loadtest/peers/versus"
	"spillway/strategies"
)

func names(all []versus.Contestant) (names []string) {
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}

func TestSettings_WhatIsMeasured(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args  []string
		names []string
		loads []string
	}{
		// The table: six ways to be loaded, each as fast as it goes and paced.
		{
			nil,
			[]string{"bare", "plain", "nethttp", "limiter", "fifo", "sync", "mpmc"},
			[]string{
				"GET, 1 connection", "GET, 1 connection, 2000/s", "GET, 64 connections", "GET, 64 connections, 8000/s",
				"GET, 1024 connections", "GET, 1024 connections, 8000/s",
				"PUT, 1 connection", "PUT, 1 connection, 2000/s", "PUT, 64 connections", "PUT, 64 connections, 8000/s",
				"PUT, 1024 connections", "PUT, 1024 connections, 8000/s",
			},
		},
		// The goals: every strategy there is, beside the two that goals are of.
		{
			[]string{"-pairs", "9"},
			append([]string{"bare", "plain"}, strategies.Names()...),
			[]string{"GET, 64 connections", "PUT, 64 connections"},
		},
		{
			[]string{"-pairs=9", "-strategies", "fifo lifo", "-peers=bare,plain,nethttp"},
			[]string{"bare", "plain", "nethttp", "fifo", "lifo"},
			[]string{"GET, 64 connections", "PUT, 64 connections"},
		},
		// Two builds of the service, each strategy beside itself.
		{
			[]string{"-against=old", "-strategies=fifo,lifo"},
			[]string{"fifo-other", "fifo", "lifo-other", "lifo"},
			[]string{"GET, 64 connections", "PUT, 64 connections"},
		},
	} {
		s, err := parse(row.args, io.Discard)
		require.NoError(t, err)
		all, err := s.contestants()
		require.NoError(t, err)
		require.Equal(t, row.names, names(all))
		var loads []string
		for _, load := range s.loads() {
			loads = append(loads, load.String())
		}
		require.Equal(t, row.loads, loads)
	}
}

func TestSettings_Pairs(t *testing.T) {
	t.Parallel()
	s, err := parse([]string{"-pairs=9"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 9, s.rounds)
	require.Equal(t, 3, s.passes)
	s, err = parse([]string{"-pairs=9", "-passes=1"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 1, s.passes)
}

func TestSettings_Vary(t *testing.T) {
	t.Parallel()
	for _, name := range versus.Questions() {
		s, err := parse([]string{"-vary", name}, io.Discard)
		require.NoError(t, err)
		require.Equal(t, "reports/peers-"+name, s.out)
		require.Equal(t, 5, s.rounds)
		require.Equal(t, loadtest.ByteCount(10e9), s.large)
		o, _, err := s.options()
		require.NoError(t, err)
		require.NotEmpty(t, o.Contestants)
		require.NotEmpty(t, o.Loads)
		require.Equal(t, "bin/spillway", o.Filler)
		require.Equal(t, uint64(1_000_000), o.Keys)
	}
	s, err := parse([]string{"-vary=store", "-quick"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, loadtest.ByteCount(20e6), s.large)
	s, err = parse([]string{"-vary=store", "-quick", "-large=30MB", "-out=here"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, loadtest.ByteCount(30e6), s.large)
	require.Equal(t, "here", s.out)
	require.Equal(t, 1, s.rounds)
	s, err = parse([]string{"-vary=idle", "-rounds=9"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 9, s.rounds)
}

func TestSettings_Wrong(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"no flag":           {"fifo"},
		"more than 0":       {"-rounds=0"},
		"not defined":       {"-strategy=fifo"},
		`no peer "nginx"`:   {"-peers=nginx"},
		`unknown strategy`:  {"-strategies=filo"},
		"parse error":       {"-rate=much"},
		"choose one":        {"-pairs=9", "-against=old"},
		"rates must be mor": {"-rate=-1"},
		"it or -pairs":      {"-vary=sync", "-pairs=9"},
		"it or -against":    {"-vary=sync", "-against=old"},
		"it or -strategies": {"-vary=sync", "-strategies=lifo"},
		"no question":       {"-vary=weather"},
		"less than 100KB":   {"-vary=store", "-large=1000"},
	} {
		s, err := parse(args, io.Discard)
		if err == nil {
			_, _, err = s.options()
		}
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

// TestSettings_Save writes each kind of answer into both files.
func TestSettings_Save(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"-pairs=1"}, {"-against=old", "-strategies=fifo"}, {"-vary=idle"}} {
		s, err := parse(append(args, "-out", filepath.Join(t.TempDir(), "answer")), io.Discard)
		require.NoError(t, err)
		o, write, err := s.options()
		require.NoError(t, err)
		r := &versus.Result{Loads: o.Loads, Rounds: [][][]versus.Figures{make([][]versus.Figures, len(o.Loads))}}
		for i := range o.Loads {
			r.Rounds[0][i] = make([]versus.Figures, len(o.Contestants))
		}
		r.Contestants = names(o.Contestants)
		var b strings.Builder
		require.NoError(t, s.save(r, write, &b))
		require.Regexp(t, `(?s)^# .*\n\n.* the generator beside the servers; .*\n\n\| load \|.*\|\n$`, b.String())
		text, err := os.ReadFile(s.out + ".md")
		require.NoError(t, err)
		require.Equal(t, b.String(), string(text))
		figures, err := os.ReadFile(s.out + ".json")
		require.NoError(t, err)
		var again versus.Result
		require.NoError(t, json.Unmarshal(figures, &again))
		require.Equal(t, r.Contestants, again.Contestants)
	}
}
