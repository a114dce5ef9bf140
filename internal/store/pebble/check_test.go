package pebble

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// closedFolder makes a closed data folder with three tables and a log, and returns it
// with the number of its keys.
func closedFolder(t *testing.T) (dir string, keys int64) {
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
	manifest := matching(t, dir, format.ManifestPrefix+"*")[0]
	b, err := os.ReadFile(manifest)
	require.NoError(t, err)
	var e format.Extent
	_, _ = e.Write(b)
	require.NoError(t, os.WriteFile(filepath.Join(dir, format.MarkName), []byte(format.Mark(filepath.Base(manifest), e)), 0o644))
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
	dir, keys := closedFolder(t)
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

	// So is the last record of the manifest, if the mark does not vouch for it.
	manifest := matching(t, dir, format.ManifestPrefix+"*")[0]
	b, err := os.ReadFile(manifest)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(manifest, append(b, 1, 2, 3, 4, 100, 0, format.ManifestFull, 'h', 'a', 'l', 'f'), 0o644))
	report, err = Check(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	require.Equal(t, keys+1, report.Keys, "the end of the log was a delete")

	// The store itself agrees.
	s := open(t, Options{Dir: dir})
	require.Equal(t, strings.Repeat("1-12", 1000), get(t, s, "1-12"))
}

// Every bit of a table and of the manifest matters.
func TestCheck_FlippedBits(t *testing.T) {
	t.Parallel()
	dir, _ := closedFolder(t)
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
	report, err := Check(t.Context(), dir)
	require.NoError(t, err)
	for _, d := range report.Damage {
		require.True(t, d.Starts, d.File)
	}
	s, err := Open(Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_ = s.Close()
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
			dir, _ := closedFolder(t)
			paths := matching(t, dir, row.glob)
			last := paths[len(paths)-1]
			row.damage(t, last)
			named := row.named
			if named == "" {
				named = filepath.Base(last)
			}
			before := contents(t, dir)
			requireDamaged(t, dir, named)
			report, err := Check(t.Context(), dir)
			require.NoError(t, err)
			require.False(t, report.Damage[0].Starts)
			require.Equal(t, before, contents(t, dir), "nothing is changed")
		})
	}
}

// TestCheck_PowerCuts checks what power cuts leave, on which a store starts.
func TestCheck_PowerCuts(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(6, 6))
			mem := vfs.NewCrashableMem()
			o := Options{Dir: "d", FS: mem, Sync: mode, memTableBytes: 32 << 10}
			s := openOnly(t, o)
			for i := range 20 {
				for k := range 40 {
					require.NoError(t, apply(s, put(fmt.Sprint(k), strings.Repeat(fmt.Sprint(i, "."), 200))))
				}
				left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 10, 50, 90, 100}[i%5], RNG: r})
				dir := filepath.Join(t.TempDir(), "data")
				_, err := vfs.Clone(left, vfs.Default, "d", dir)
				require.NoError(t, err)
				report, err := Check(t.Context(), dir)
				require.NoError(t, err, "cut %d", i)
				require.Empty(t, report.Damage, "cut %d", i)
				o.FS = left
				again := openOnly(t, o)
				keys := int64(0)
				for k := range 40 {
					if get(t, again, fmt.Sprint(k)) != "absent" {
						keys++
					}
				}
				require.Equal(t, keys, report.Keys, "cut %d", i)
				require.NoError(t, again.Close())
			}
			require.NoError(t, s.Close())
		})
	}
}

// What says nothing of the data is no damage.
func TestCheck_NoDamage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what, glob, says string
		change           func(t *testing.T, path string)
	}{
		{"a newer version has written it", format.VersionMarker + "*", format.ErrNewer.Error(), func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.Rename(path, strings.TrimSuffix(path, filepath.Ext(path))+".999"))
		}},
		{"the mark cannot be read", format.MarkName, format.MarkName, unreadable},
		{"the manifest cannot be read", format.ManifestPrefix + "*", format.ManifestPrefix, unreadable},
		{"a log cannot be read", "*.log", ".log", unreadable},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			dir, _ := closedFolder(t)
			paths := matching(t, dir, row.glob)
			row.change(t, paths[len(paths)-1])
			report, err := Check(t.Context(), dir)
			require.ErrorContains(t, err, row.says, "%v", report)
			require.Empty(t, report.Damage)
		})
	}
}

// unreadable makes of a file one that cannot be opened, also by root.
func unreadable(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(filepath.Base(path), path))
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
	full, _ := closedFolder(t)
	_, err = Check(ctx, full)
	require.ErrorIs(t, err, context.Canceled)
}
