package pebble

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"
)

// folder makes a closed data folder with three tables and a log, and returns it
// with the number of its keys.
func folder(t *testing.T) (dir string, keys int64) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	o := Options{Dir: dir}
	o.setDefaults()
	p := o.pebbleOptions()
	p.DisableAutomaticCompactions = true
	p.Logger = quiet{}
	db, err := pebble.Open(dir, p)
	require.NoError(t, err)
	set := func(k string, n int) {
		require.NoError(t, db.Set([]byte(k), []byte(strings.Repeat(k, n)), pebble.Sync))
	}
	for i := range 3 {
		for k := range 20 {
			set(fmt.Sprintf("%d-%d", i, k), 20)
		}
		require.NoError(t, db.Flush())
	}
	for k := range 20 {
		set(fmt.Sprintf("1-%d", k+10), 1000) // replaces ten and adds ten
	}
	require.NoError(t, db.Delete([]byte("2-2"), pebble.Sync))
	require.NoError(t, db.Close())
	return dir, 3*20 + 10 - 1
}

// matching returns the files in dir with such a name, of which there must be
// some.
func matching(t *testing.T, dir, glob string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, glob))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

// contents returns all that is in a folder, to see whether it was changed.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		all[e.Name()] = info.ModTime().String() + string(b)
	}
	return all
}

func flip(t *testing.T, path string, offset int) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[offset] ^= 0x10
	require.NoError(t, os.WriteFile(path, b, 0o644))
}

// requireDamaged asserts that exactly those files are said to be damaged.
func requireDamaged(t *testing.T, dir string, files ...string) {
	t.Helper()
	report, err := Check(t.Context(), dir)
	require.NoError(t, err)
	named := []string{}
	for _, d := range report.Damage {
		requireOneLine(t, d.Err)
		named = append(named, d.File)
	}
	require.Equal(t, files, named, "%v", report.Damage)
	require.Zero(t, report.Keys)
}

func TestCheck_Sound(t *testing.T) {
	t.Parallel()
	dir, keys := folder(t)
	before := contents(t, dir)
	report, err := Check(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	require.Empty(t, report.Unused)
	require.Equal(t, keys, report.Keys)
	require.Greater(t, report.Bytes, int64(20*4000))
	require.Equal(t, 3, report.Tables)
	require.NotZero(t, report.TableBytes)
	require.NotZero(t, report.Logs)
	require.Equal(t, before, contents(t, dir), "nothing is changed")

	// What a crash leaves is no damage: a table that was not finished, a log that
	// ends in the midst of something.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "999999.sst"), []byte("half a table"), 0o644))
	logs := matching(t, dir, "*.log")
	log, err := os.ReadFile(logs[len(logs)-1])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(logs[len(logs)-1], int64(len(bytes.TrimRight(log, "\x00"))-20)))
	report, err = Check(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	require.Equal(t, []string{"999999.sst"}, report.Unused)

	// The store itself agrees.
	s := open(t, Options{Dir: dir})
	require.Equal(t, strings.Repeat("1-12", 1000), get(t, s, "1-12"))
}

// Every bit of a table and of the manifest matters.
func TestCheck_FlippedBits(t *testing.T) {
	t.Parallel()
	dir, _ := folder(t)
	const step = 89
	start := rand.IntN(step)
	t.Logf("from byte %d", start)
	for _, path := range append(matching(t, dir, "*.sst"), matching(t, dir, "MANIFEST-*")...) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		for offset := start; offset < int(info.Size()); offset += step {
			flip(t, path, offset)
			requireDamaged(t, dir, filepath.Base(path))
			flip(t, path, offset)
		}
	}
	// All damaged tables are named at once.
	var names []string
	for _, path := range matching(t, dir, "*.sst") {
		flip(t, path, 100)
		names = append(names, filepath.Base(path))
	}
	requireDamaged(t, dir, names...)
}

func TestCheck_Damage(t *testing.T) {
	t.Parallel()
	remove := func(t *testing.T, path string) {
		t.Helper()
		require.NoError(t, os.Remove(path))
	}
	cutOff := func(t *testing.T, path string) {
		t.Helper()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()-30))
	}
	empty := func(t *testing.T, path string) {
		t.Helper()
		require.NoError(t, os.Truncate(path, 0))
	}
	for _, row := range []struct {
		what, glob string
		damage     func(t *testing.T, path string)
		named      string // "" for the file itself
	}{
		{"a table is missing", "*.sst", remove, ""},
		{"a table is cut off", "*.sst", cutOff, ""},
		{"a table is empty", "*.sst", empty, ""},
		{"the manifest is missing", "MANIFEST-*", remove, ""},
		{"the manifest is cut off", "MANIFEST-*", cutOff, ""},
		{"the manifest is empty", "MANIFEST-*", empty, ""},
		{"nothing says which manifest is in force", "marker.manifest.*", remove, "marker.manifest.*"},
		{"nothing says in which format the store is", "marker.format-version.*", remove, "marker.format-version.*"},
		{"the options are nonsense", "OPTIONS-*", func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, []byte("[nonsense"), 0o644))
		}, ""},
		{"what was synced in the log has changed", "*.log", func(t *testing.T, path string) {
			t.Helper()
			flip(t, path, 300)
		}, ""},
		{"what was synced in a short log has changed", "*.log", func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.Truncate(path, 30<<10))
			flip(t, path, 300)
		}, ""},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			dir, _ := folder(t)
			paths := matching(t, dir, row.glob)
			last := paths[len(paths)-1]
			row.damage(t, last)
			named := row.named
			if named == "" {
				named = filepath.Base(last)
			}
			before := contents(t, dir)
			requireDamaged(t, dir, named)
			require.Equal(t, before, contents(t, dir), "nothing is changed")
		})
	}
}

func TestCheck_Refusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Check(t.Context(), filepath.Join(dir, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Check(t.Context(), dir)
	require.ErrorIs(t, err, ErrNoStore)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644))
	_, err = Check(t.Context(), dir)
	require.ErrorIs(t, err, ErrNoStore)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	full, _ := folder(t)
	_, err = Check(ctx, full)
	require.ErrorIs(t, err, context.Canceled)
}
