package backup

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/store/pebble"
)

// keysOf returns how many keys a source has.
func keysOf(t *testing.T, s *Source) (n int) {
	t.Helper()
	it, err := s.After(nil)
	require.NoError(t, err)
	for it.Next() {
		n++
	}
	require.NoError(t, it.Err())
	require.NoError(t, it.Close())
	return n
}

func TestOpenSource(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.Default, pebble.Always)
	s.mustPut("k", 10)
	began := time.Now()
	dir := s.write()
	ended := time.Now()
	s.mustPut("later", 10)

	// A backup, whose moment is that of the backup whatever becomes of its files.
	old := time.Now().Add(-time.Hour)
	for _, name := range files(t, dir) {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	source, err := OpenSource(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, 10, keysOf(t, source))
	require.False(t, source.Moment.Before(began))
	require.False(t, source.Moment.After(ended))
	require.NoError(t, source.Close())

	// What was restored from it is a data folder, whose moment is the last change.
	data := filepath.Join(t.TempDir(), "data")
	_, err = Restore(t.Context(), dir, data)
	require.NoError(t, err)
	source, err = OpenSource(t.Context(), data)
	require.NoError(t, err)
	require.Equal(t, 10, keysOf(t, source))
	require.Equal(t, source.Changed, source.Moment)
	require.NoError(t, source.Close())

	// And a service can be started on it afterwards.
	again, err := pebble.Open(pebble.Options{Dir: data, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestOpenSource_Refuses(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		spoil func(t *testing.T, dir string)
		words string
	}{
		"nothing": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
		}, "no such file"},
		"an unfinished backup": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, inventoryName)))
		}, "is no finished backup"},
		"a backup without a log": {func(t *testing.T, dir string) {
			logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
			require.NoError(t, err)
			require.NotEmpty(t, logs)
			for _, log := range logs {
				require.NoError(t, os.Remove(log))
			}
		}, "it is missing"},
		"an unfinished restore": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, unfinished), nil, 0o600))
		}, "spillway restore"},
		"an empty data folder": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, datadir.LockName), nil, 0o600))
		}, "no store"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := open(t, vfs.Default, pebble.Always)
			s.mustPut("k", 10)
			dir := s.write()
			row.spoil(t, dir)
			_, err := OpenSource(t.Context(), dir)
			require.ErrorContains(t, err, row.words)
			require.ErrorContains(t, err, dir)
		})
	}
}

// Whoever is interrupted is not told that the backup is damaged.
func TestOpenSource_Interrupted(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.Default, pebble.Always)
	s.mustPut("k", 10)
	dir := s.write()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := OpenSource(ctx, dir)
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "damaged")
}
