package datadir

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// held returns a folder that is held until the end of the test.
func held(t *testing.T) (f *FS, lock *Lock, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	f = New(dir)
	require.NoError(t, f.MkdirAll(dir, 0o755))
	l, err := f.Lock(filepath.Join(dir, LockName))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return f, l.(*Lock), dir
}

func write(t *testing.T, f *FS, path, text string) {
	t.Helper()
	file, err := f.Create(path, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = file.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, file.SyncData())
	require.NoError(t, file.Close())
}

func read(t *testing.T, f *FS, path string) string {
	t.Helper()
	file, err := f.Open(path, vfs.SequentialReadsOption)
	require.NoError(t, err)
	info, err := file.Stat()
	require.NoError(t, err)
	b := make([]byte, info.Size())
	_, err = file.ReadAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return string(b)
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// What is made is for its user alone, and what is there keeps its mode.
func TestFS_Modes(t *testing.T) {
	t.Parallel()
	f, _, dir := held(t)
	outside := t.TempDir()
	there := filepath.Join(outside, "there")
	require.NoError(t, os.Mkdir(there, 0o750))
	for _, d := range []string{dir, filepath.Join(outside, "deep", "folder"), there} {
		require.NoError(t, f.MkdirAll(d, 0o755))
		write(t, f, filepath.Join(d, "created"), "x")
		opened, err := f.OpenReadWrite(filepath.Join(d, "opened"), vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		require.NoError(t, opened.Close())
		reused, err := f.ReuseForWrite(filepath.Join(d, "opened"), filepath.Join(d, "reused"), vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		require.NoError(t, reused.Close())
		for _, name := range names(t, d) {
			info, err := os.Stat(filepath.Join(d, name))
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "%s in %s", name, d)
		}
	}
	for d, mode := range map[string]fs.FileMode{
		dir: 0o700, filepath.Join(outside, "deep"): 0o700, filepath.Join(outside, "deep", "folder"): 0o700, there: 0o750,
	} {
		info, err := os.Stat(d)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), d)
	}

	// A link of what an earlier version has made is as private.
	old := filepath.Join(dir, "old")
	require.NoError(t, os.WriteFile(old, nil, 0o644))
	require.NoError(t, f.Link(old, filepath.Join(there, "link")))
	info, err := os.Stat(filepath.Join(there, "link"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
}

// What comes to lie at the path of a held folder is neither read nor changed.
func TestFS_Held(t *testing.T) {
	t.Parallel()
	f, lock, dir := held(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, f, a, "ours")
	require.NoError(t, lock.Check())
	moved, outside := dir+"-moved", filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Rename(dir, moved))
	require.ErrorIs(t, lock.Check(), ErrNotOurs)
	require.NoError(t, os.Mkdir(dir, 0o755))
	foreign := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(foreign, []byte("theirs"), 0o644))
	require.ErrorIs(t, lock.Check(), ErrNotOurs)

	require.Equal(t, "ours", read(t, f, a))
	listed, err := f.List(dir)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", LockName}, listed)
	require.ErrorIs(t, f.Link(a, outside), ErrNotOurs)
	require.NoFileExists(t, outside)
	write(t, f, b, "ours, too")
	require.NoError(t, f.Rename(b, filepath.Join(dir, "c")))
	require.NoError(t, f.Remove(a))
	folder, err := f.OpenDir(dir)
	require.NoError(t, err)
	require.NoError(t, folder.Sync())
	require.NoError(t, folder.Close())
	_, err = f.Stat(a)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, []string{"a"}, names(t, dir))
	require.Equal(t, []string{LockName, "c"}, names(t, moved))

	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Rename(moved, dir))
	require.NoError(t, lock.Check())
	require.NoError(t, f.Link(filepath.Join(dir, "c"), outside))
}

// A lock is not undone by removing its file, for others who lock as this does, and it
// notices that the file is gone.
func TestLock(t *testing.T) {
	t.Parallel()
	_, lock, dir := held(t)
	refused := func() {
		t.Helper()
		_, err := New(dir).Lock(filepath.Join(dir, LockName))
		require.ErrorIs(t, err, ErrInUse)
		_, err = Share(dir)
		require.ErrorIs(t, err, ErrInUse)
	}
	refused()
	for _, lose := range []func(string) error{
		os.Remove,
		func(path string) error { return os.WriteFile(path+".new", nil, 0o600) },
	} {
		path := filepath.Join(dir, LockName)
		require.NoError(t, lose(path))
		_ = os.Rename(path+".new", path)
		require.ErrorIs(t, lock.Check(), ErrLockLost)
		refused()
		require.NoError(t, lock.Again())
		require.NoError(t, lock.Check())
		refused()
	}
}

// Who reads keeps others from using the folder, and changes nothing.
func TestShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		release, err := Share(dir)
		require.NoError(t, err)
		again, err := Share(dir)
		require.NoError(t, err)
		_, err = New(dir).Lock(filepath.Join(dir, LockName))
		require.ErrorIs(t, err, ErrInUse)
		again()
		release()
		require.NoFileExists(t, filepath.Join(dir, LockName))
	}
	l, err := New(dir).Lock(filepath.Join(dir, LockName))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	release, err := Share(filepath.Join(dir, "nothing"))
	require.NoError(t, err)
	release()
}

func TestLock_Exposed(t *testing.T) {
	t.Parallel()
	_, lock, dir := held(t)
	for mode, exposed := range map[fs.FileMode]bool{0o700: false, 0o750: false, 0o770: false, 0o755: true, 0o701: true, 0o704: true} {
		require.NoError(t, os.Chmod(dir, mode))
		require.Equal(t, exposed, lock.Exposed(), mode)
	}
}
