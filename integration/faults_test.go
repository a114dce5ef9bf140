//go:build integration

package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder that is not as it was left stops the start with one line that names
// the file and says what to do, and is not changed by it.
func TestStart_DamagedFolder(t *testing.T) {
	t.Parallel()
	// Of a killed service, and of one that was stopped.
	for _, killed := range []bool{false, true} {
		folder := filepath.Join(t.TempDir(), "data")
		for range 2 { // the second start leaves tables
			s := start(t, raced, "SPILLWAY_DATA_DIR="+folder)
			for _, k := range []string{"a", "b", "c"} {
				require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity(k)), "value").status)
			}
			if killed {
				s.kill()
			} else {
				s.stop()
			}
		}
		for _, row := range []struct {
			what, glob string
			damage     func(path string) error
			says       []string
		}{
			{"a table is missing", "*.sst", os.Remove, []string{"does not exist", "spillway restore"}},
			{"a table is cut", "*.sst", func(p string) error { return os.Truncate(p, 10) }, []string{".sst", "spillway restore"}},
			{"the manifest is cut", "MANIFEST-*", func(p string) error { return os.Truncate(p, 100) }, []string{"MANIFEST-", "is damaged", "spillway restore"}},
			{"the manifest is empty", "MANIFEST-*", func(p string) error { return os.Truncate(p, 0) }, []string{"MANIFEST-", "is damaged", "spillway restore"}},
			{"the manifest is missing", "MANIFEST-*", os.Remove, []string{"MANIFEST-", "spillway restore"}},
			{"a bit of the manifest is flipped", "MANIFEST-*", flip, []string{"MANIFEST-", "is damaged", "spillway restore"}},
			{"the marker of the manifest is missing", "marker.manifest.*", os.Remove, []string{"marker.manifest.", "spillway restore"}},
			{"a newer version has written it", "marker.format-version.*", func(p string) error {
				return os.Rename(p, filepath.Join(filepath.Dir(p), "marker.format-version.000099.999"))
			}, []string{"format 999", "newer version"}},
			{"an older program has written it", "marker.*", func(p string) error {
				return os.Rename(p, filepath.Join(filepath.Dir(p), "CURRENT"))
			}, []string{"spillway restore"}},
		} {
			damaged := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.CopyFS(damaged, os.DirFS(folder)))
			paths, err := filepath.Glob(filepath.Join(damaged, row.glob))
			require.NoError(t, err)
			require.NotEmpty(t, paths, row.what)
			for _, p := range paths {
				require.NoError(t, row.damage(p))
			}
			before := names(t, damaged)
			r := run(t, raced, []string{"SPILLWAY_DATA_DIR=" + damaged})
			require.Equal(t, 1, r.code, "%s: %s", row.what, r.stderr)
			r.requireOneLine(t)
			for _, s := range append(row.says, damaged) {
				require.Contains(t, r.stderr, s, row.what)
			}
			for _, name := range before {
				require.FileExists(t, filepath.Join(damaged, name), row.what)
			}
		}
	}
}

// flip flips a bit in the middle of a file.
func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 4
	return os.WriteFile(path, b, 0o644)
}

// names returns the tables and manifests of a folder.
func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	for _, glob := range []string{"*.sst", "MANIFEST-*"} {
		paths, err := filepath.Glob(filepath.Join(folder, glob))
		require.NoError(t, err)
		for _, p := range paths {
			all = append(all, filepath.Base(p))
		}
	}
	return all
}
