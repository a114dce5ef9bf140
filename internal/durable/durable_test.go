package durable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestWriteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"one", "another, longer", "", "x"} {
		require.NoError(t, WriteFile(path, []byte(content)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(got))
		require.NoFileExists(t, path+".tmp")
	}
}

func TestWriteFile_Fails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, WriteFile(path, []byte("old")))
	require.NoError(t, os.Mkdir(path+".tmp", 0o755))
	require.Error(t, WriteFile(path, []byte("new")))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	require.ErrorIs(t, WriteFile(filepath.Join(dir, "none", "file"), nil), os.ErrNotExist)
	require.ErrorIs(t, SyncDir(filepath.Join(dir, "none")), os.ErrNotExist)
}
