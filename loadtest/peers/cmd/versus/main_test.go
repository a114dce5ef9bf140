package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

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
	} {
		s, err := parse(args, io.Discard)
		if err == nil {
			_, err = s.contestants()
		}
		require.ErrorContains(t, err, want, "%v", args)
	}
}
