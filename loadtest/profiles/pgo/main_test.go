package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

func TestRun(t *testing.T) {
	t.Parallel()
	recorded, err := filepath.Glob("../testdata/*cpu*")
	require.NoError(t, err)
	require.NotEmpty(t, recorded)
	b, err := os.ReadFile(recorded[0])
	require.NoError(t, err)
	one, err := profiles.Parse(b)
	require.NoError(t, err)

	to := filepath.Join(t.TempDir(), "default.pgo")
	require.NoError(t, run(to, []string{recorded[0], recorded[0]}))
	b, err = os.ReadFile(to)
	require.NoError(t, err)
	merged, err := profiles.Parse(b)
	require.NoError(t, err)

	for i := range merged.SampleType {
		var before, after int64
		for _, s := range one.Sample {
			before += s.Value[i]
		}
		for _, s := range merged.Sample {
			after += s.Value[i]
		}
		require.Equal(t, 2*before, after)
	}
	for _, m := range merged.Mapping {
		require.Equal(t, "spillway", m.File)
	}
}

func TestRun_BadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("no profile"), 0o600))
	to := filepath.Join(dir, "default.pgo")
	require.ErrorContains(t, run(to, []string{broken}), broken)
	require.ErrorIs(t, run(to, []string{filepath.Join(dir, "absent")}), os.ErrNotExist)
	require.NoFileExists(t, to)
}
