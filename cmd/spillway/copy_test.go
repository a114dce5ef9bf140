package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
)

// What stands in the way of a copy is said in one line, before anything is done.
func TestRun_CopyRefuses(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := launch(t, "SPILLWAY_DATA_DIR="+data)
	put(t, s, "k", "value")
	require.Equal(t, exitOK, s.stop())
	address := testenv.Nobody(t)
	empty := t.TempDir()
	state := filepath.Join(t.TempDir(), "state")

	for _, row := range []struct {
		from, to string
		code     int
		words    []string
	}{
		{"pebble:" + data, "cassandra:" + address, exitFailed, []string{"copy: cassandra at", address, "connection refused"}},
		{"pebble:" + filepath.Join(empty, "missing"), "cassandra:" + address, exitFailed, []string{"copy:", "missing", "no such file"}},
		{"pebble:" + empty, "cassandra:" + address, exitFailed, []string{"copy:", empty, "is no finished backup"}},
		{"cassandra:" + address, "pebble:" + data, exitUsage, []string{"--from", "pebble:DIR"}},
		{data, "cassandra:" + address, exitUsage, []string{"--from", "pebble:DIR"}},
	} {
		code, stdout, stderr := try(t, nil, "copy", "--from", row.from, "--to", row.to, "--state", state)
		require.Equal(t, row.code, code, stderr)
		require.Empty(t, stdout)
		requireLine(t, stderr, row.words...)
		require.NoFileExists(t, state)
	}
	// The folder is as it was.
	s = launch(t, "SPILLWAY_DATA_DIR="+data)
	_, body := get(t, "http://"+s.addr["data"]+"/v0/entity?id=k")
	require.Equal(t, "value", body)
	require.Equal(t, exitOK, s.stop())
}

// Whoever interrupts a copy does not wait until the cluster has been connected to.
func TestUnless(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	begun, goOn := make(chan struct{}), make(chan struct{})
	defer close(goOn)
	go func() {
		<-begun
		interrupt()
	}()
	_, err := unless(ctx, func() (int, error) {
		close(begun)
		<-goOn
		return 0, nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, beforeAll(err), "interrupted before anything was done")

	got, err := unless(t.Context(), func() (int, error) { return 1, io.EOF })
	require.Equal(t, 1, got)
	require.ErrorIs(t, beforeAll(err), io.EOF)
}

// A variable that is misspelt, which may be that of the keyspace, does not pass
// unnoticed.
func TestRun_CopyWarns(t *testing.T) {
	t.Parallel()
	code, _, stderr := try(t, []string{"SPILLWAY_CASSANDRA_KEYSPCE=other"},
		"copy", "--from", "pebble:"+filepath.Join(t.TempDir(), "missing"), "--to", "cassandra:127.0.0.1:1")
	require.Equal(t, exitFailed, code)
	warning, rest, _ := strings.Cut(stderr, "\n")
	require.Contains(t, warning, "SPILLWAY_CASSANDRA_KEYSPCE")
	requireLine(t, rest, "no such file")
}
