package backup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/store/pebble"
)

// made makes a backup of a store that is closed again, with at least one table
// and ten keys.
func made(t *testing.T) (dir string) {
	t.Helper()
	s := open(t, vfs.Default, pebble.Always)
	s.mustPut("k", 10)
	// A start replays the log into a table.
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, s.Checkpoint(copied))
	c := &subject{t: t, dir: copied, backups: New(copied)}
	c.Store = openStore(t, pebble.Options{Dir: copied, FS: c.backups.FS()})
	dir = c.write()
	require.NotEmpty(t, matching(t, dir, "*.sst"))
	return dir
}

func matching(t *testing.T, dir, glob string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, glob))
	require.NoError(t, err)
	return paths
}

// requireDamaged asserts that exactly those files are said to be damaged, and that
// nothing is restored.
func requireDamaged(t *testing.T, dir string, files ...string) {
	t.Helper()
	report, err := Check(t.Context(), dir)
	require.NoError(t, err)
	named := []string{}
	for _, d := range report.Damage {
		named = append(named, d.File)
	}
	require.Equal(t, files, named, "%v", report.Damage)
	data := filepath.Join(t.TempDir(), "data")
	report, err = Restore(t.Context(), dir, data)
	require.ErrorIs(t, err, ErrDamaged)
	require.Len(t, report.Damage, len(files))
	require.NoDirExists(t, data)
}

// Whatever happens to a file of a backup is found.
func TestCheck_DamagedBackup(t *testing.T) {
	t.Parallel()
	intact := made(t)
	for _, name := range files(t, intact) {
		if name == inventoryName {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(filepath.Join(intact, name))
			require.NoError(t, err)
			for what, damage := range map[string]func(path string) error{
				"missing": os.Remove,
				"cut":     func(path string) error { return os.Truncate(path, int64(len(content)/2)) },
				"longer":  func(path string) error { return os.WriteFile(path, append(content, 0), 0o644) },
				"changed": func(path string) error {
					changed := []byte(string(content))
					changed[len(content)/3] ^= 4
					return os.WriteFile(path, changed, 0o644)
				},
			} {
				if len(content) == 0 && what != "missing" && what != "longer" {
					continue
				}
				dir := filepath.Join(t.TempDir(), what)
				require.NoError(t, os.CopyFS(dir, os.DirFS(intact)))
				require.NoError(t, damage(filepath.Join(dir, name)), what)
				requireDamaged(t, dir, name)
			}
		})
	}
}

func TestRestore_Refusals(t *testing.T) {
	t.Parallel()
	backup := made(t)
	copyOf := func(t *testing.T) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(dir, os.DirFS(backup)))
		return dir
	}
	vacantDir := func(t *testing.T) string {
		t.Helper()
		return filepath.Join(t.TempDir(), "data")
	}
	for _, row := range []struct {
		what     string
		from, to func(t *testing.T) string
		words    []string
	}{
		{"there is no backup", vacantDir, vacantDir, []string{"no such file"}},
		{"the backup was not finished", func(t *testing.T) string {
			t.Helper()
			dir := copyOf(t)
			require.NoError(t, os.Remove(filepath.Join(dir, inventoryName)))
			return dir
		}, vacantDir, []string{"is no finished backup", inventoryName}},
		{"the inventory is damaged", func(t *testing.T) string {
			t.Helper()
			dir := copyOf(t)
			require.NoError(t, os.Truncate(filepath.Join(dir, inventoryName), 100))
			return dir
		}, vacantDir, []string{inventoryName, "damaged"}},
		{"the inventory leads elsewhere", func(t *testing.T) string {
			t.Helper()
			dir := copyOf(t)
			require.NoError(t, os.WriteFile(filepath.Join(dir, inventoryName), []byte(`{"files":[{"name":"../x"}]}`), 0o644))
			return dir
		}, vacantDir, []string{inventoryName, "damaged"}},
		{"a service was started on the backup", func(t *testing.T) string {
			t.Helper()
			dir := copyOf(t)
			openStore(t, pebble.Options{Dir: dir})
			return dir
		}, vacantDir, []string{"is no finished backup", "a service was started on it"}},
		{"the data folder has data", copyOf, copyOf, []string{"is not empty", "move away"}},
		{"the data folder is the backup", func(*testing.T) string { return backup }, func(*testing.T) string { return backup }, []string{"not empty"}},
		{"the data folder is within the backup", func(*testing.T) string { return backup }, func(*testing.T) string { return filepath.Join(backup, "data") },
			[]string{"within the backup"}},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			from, to := row.from(t), row.to(t)
			before := files(t, to)
			_, err := Restore(t.Context(), from, to)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "\n")
			for _, word := range row.words {
				require.ErrorContains(t, err, word)
			}
			require.Equal(t, before, files(t, to))
		})
	}
	report, err := Check(t.Context(), backup)
	require.NoError(t, err)
	require.Empty(t, report.Damage)
}

// A folder that may be the root of a volume, with the backups in it.
func TestRestore_IntoAnEmptyFolder(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	from := filepath.Join(to, Folder, "monday")
	require.NoError(t, os.CopyFS(from, os.DirFS(made(t))))
	require.NoError(t, os.WriteFile(filepath.Join(to, datadir.LockName), nil, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(to, "lost+found"), 0o700))
	_, err := Restore(t.Context(), from, to)
	require.NoError(t, err)
	requireHolds(t, to, map[string]int{"k": 10})
	report, err := Check(t.Context(), from)
	require.NoError(t, err)
	require.Empty(t, report.Damage)
}

// Whatever a restore that was cut off has left behind, no service starts on it, and
// another restore makes it whole.
func TestRestore_CutOff(t *testing.T) {
	t.Parallel()
	from := made(t)
	inv, err := read(filepath.Join(from, inventoryName))
	require.NoError(t, err)
	for n := range len(inv.Files) + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.Mkdir(to, 0o755))
			require.NoError(t, inv.write(to, unfinished))
			for i, f := range inv.Files[:n] {
				content, err := os.ReadFile(filepath.Join(from, f.Name))
				require.NoError(t, err)
				if i == n-1 {
					content = content[:len(content)/2]
				}
				require.NoError(t, os.WriteFile(filepath.Join(to, f.Name), content, 0o644))
			}
			require.ErrorIs(t, Usable(to), ErrUnfinished)
			_, err := Check(t.Context(), to)
			require.ErrorIs(t, err, ErrUnfinished)

			_, err = Restore(t.Context(), from, to)
			require.NoError(t, err)
			require.NoError(t, Usable(to))
			requireHolds(t, to, map[string]int{"k": 10})
		})
	}
}

// A restore that fails on its way leaves nothing behind.
func TestRestore_Fails(t *testing.T) {
	t.Parallel()
	from := made(t)
	inv, err := read(filepath.Join(from, inventoryName))
	require.NoError(t, err)

	t.Run("it is interrupted", func(t *testing.T) {
		t.Parallel()
		for _, exists := range []bool{false, true} {
			to := filepath.Join(t.TempDir(), "data")
			if exists {
				require.NoError(t, os.Mkdir(to, 0o755))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, install(ctx, &inv, from, to), context.Canceled)
			if exists {
				require.Equal(t, []string{datadir.LockName}, files(t, to))
			} else {
				require.NoDirExists(t, to)
			}
			_, err := Restore(ctx, from, to)
			require.ErrorIs(t, err, context.Canceled)
		}
	})
	t.Run("a file is not what was checked", func(t *testing.T) {
		t.Parallel()
		changed := filepath.Join(t.TempDir(), "changed")
		require.NoError(t, os.CopyFS(changed, os.DirFS(from)))
		for _, path := range matching(t, changed, "OPTIONS-*") {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, []byte(strings.ToUpper(string(content))), 0o644))
		}
		to := filepath.Join(t.TempDir(), "data")
		require.ErrorContains(t, install(t.Context(), &inv, changed, to), "changed while")
		require.NoDirExists(t, to)
	})
}

// A folder that a service runs on is left alone: this test starts itself once
// more.
func TestCheck_InUse(t *testing.T) {
	t.Parallel()
	const env, backup = "TEST_IN_USE_DIR", "TEST_IN_USE_BACKUP"
	if dir := os.Getenv(env); dir != "" {
		_, err := Check(t.Context(), dir)
		fmt.Println("check:", err)
		_, err = Restore(t.Context(), os.Getenv(backup), dir)
		fmt.Println("restore:", err)
		return
	}
	s := open(t, vfs.Default, pebble.Always)
	s.mustPut("k", 10)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestCheck_InUse$")
	cmd.Env = append(os.Environ(), env+"="+s.dir, backup+"="+made(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "check: "+s.dir+": it is in use by a running service")
	require.Contains(t, string(out), "restore: the data folder "+s.dir+": it is in use by a running service")
	s.mustPut("k", 10)
}

// A service starts where a store is or can be, and nowhere else.
func TestOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := func(files ...string) string {
		to, err := os.MkdirTemp(dir, "")
		require.NoError(t, err)
		for _, name := range files {
			require.NoError(t, os.WriteFile(filepath.Join(to, name), nil, 0o600))
		}
		return to
	}
	for _, ours := range []string{
		filepath.Join(dir, "absent"), filepath.Join(dir, "absent", "too"), folder(), folder("LOCK"), folder("lost+found", ".snapshot"),
		folder("MANIFEST-000001", "notes.txt"), folder("notes.txt", "marker.manifest.000001.MANIFEST-000001"), folder("a", "000005.log"), folder(unfinished, "a"),
	} {
		require.NoError(t, Ours(ours))
	}
	file := filepath.Join(folder("file"), "file")
	for there, want := range map[string]string{
		file:                                    "is a file",
		filepath.Join(file, "below"):            "is a file",
		folder("notes.txt"):                     `somebody else's files, such as "notes.txt"`,
		folder("LOCK", "a\nb"):                  `such as "a\nb"`,
		folder(".config", "server.log", "LOCK"): `such as "server.log"`,
	} {
		err := Ours(there)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "SPILLWAY_DATA_DIR")
		require.NotContains(t, err.Error(), "\n")
	}
}
