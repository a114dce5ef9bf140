package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble"
	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// subject is a store of which backups are made.
type subject struct {
	*pebble.Store
	t       *testing.T
	dir     string
	backups *Backups
}

// open opens a store over that file system, which is closed with the test.
func open(t *testing.T, beneath vfs.FS, mode pebble.SyncMode) *subject {
	t.Helper()
	s := &subject{t: t, dir: filepath.Join(t.TempDir(), "data")}
	s.backups = New(s.dir)
	s.backups.disk = newDisk(beneath)
	s.Store = openStore(t, pebble.Options{Dir: s.dir, FS: s.backups.FS(), Sync: mode})
	t.Cleanup(s.backups.Close) // before the store is
	return s
}

func openStore(t *testing.T, o pebble.Options) *pebble.Store {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := pebble.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// put writes and waits until the write may be acknowledged.
func (s *subject) put(key, value string) error {
	c, err := s.Apply([]store.Write{{Key: []byte(key), Value: []byte(value)}})
	if err != nil || c == nil {
		return err
	}
	return c.Wait()
}

func (s *subject) mustPut(prefix string, n int) {
	s.t.Helper()
	for i := range n {
		require.NoError(s.t, s.put(fmt.Sprint(prefix, i), strings.Repeat(fmt.Sprint(prefix, i), 50)))
	}
}

// write makes a backup in a new folder.
func (s *subject) write() string {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "deep", "backup")
	result, err := s.backups.Write(s.t.Context(), dir, s.Checkpoint)
	require.NoError(s.t, err)
	require.Equal(s.t, dir, result.Dir)
	require.NotZero(s.t, result.Files)
	require.NotZero(s.t, result.Bytes)
	require.NotZero(s.t, result.Took)
	return dir
}

// requireHolds asserts that a data folder has those keys and no others.
func requireHolds(t *testing.T, dir string, want map[string]int) {
	t.Helper()
	s := openStore(t, pebble.Options{Dir: dir})
	got := make(map[string]int)
	it, err := s.Range([]byte{0}, nil, false)
	require.NoError(t, err)
	for it.Next() {
		key, value, err := it.Entry()
		require.NoError(t, err)
		require.Equal(t, strings.Repeat(string(key), 50), string(value))
		got[strings.TrimRight(string(key), "0123456789")]++
	}
	require.NoError(t, errors.Join(it.Err(), it.Close()))
	require.Equal(t, want, got)
}

// files returns the names in a folder, nil if there is none.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestBackups_Write(t *testing.T) {
	t.Parallel()
	for _, mode := range []pebble.SyncMode{pebble.Always, pebble.Interval, pebble.Never} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := open(t, vfs.Default, mode)
			s.mustPut("before", 100)
			dir := s.write()
			s.mustPut("after", 100)
			report, err := Check(t.Context(), dir)
			require.NoError(t, err)
			require.Empty(t, report.Damage)
			require.True(t, report.Backup)
			require.EqualValues(t, 100, report.Keys)

			data := filepath.Join(t.TempDir(), "deep", "data")
			_, err = Restore(t.Context(), dir, data)
			require.NoError(t, err)
			require.NotContains(t, files(t, data), inventoryName)
			requireHolds(t, data, map[string]int{"before": 100})

			// What was made of it has changed nothing in it, nor has the store.
			again, err := Check(t.Context(), dir)
			require.NoError(t, err)
			require.Equal(t, report, again)
		})
	}
}

func TestBackups_Places(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.Default, pebble.Always)
	s.mustPut("k", 10)
	other := t.TempDir()
	link := filepath.Join(other, "link")
	require.NoError(t, os.Symlink(s.dir, link))
	empty, full, file := filepath.Join(other, "empty"), filepath.Join(other, "full"), filepath.Join(other, "file")
	require.NoError(t, os.Mkdir(empty, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(full, "something"), 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, row := range []struct {
		what, dir string
		err       error
	}{
		{"nothing is there", filepath.Join(other, "a", "b"), nil},
		{"an empty folder", empty, nil},
		{"where backups may be in the data folder", filepath.Join(s.dir, Folder, "monday"), nil},
		{"the same through a link", filepath.Join(link, Folder, "tuesday"), nil},
		{"a backup", empty, fs.ErrExist},
		{"a folder that is not empty", full, fs.ErrExist},
		{"a file", file, syscall.ENOTDIR},
		{"a relative path", "monday", fs.ErrInvalid},
		{"the data folder", s.dir, fs.ErrInvalid},
		{"elsewhere in the data folder", filepath.Join(s.dir, "monday"), fs.ErrInvalid},
		{"the folder of all backups", filepath.Join(s.dir, Folder), fs.ErrInvalid},
		{"elsewhere in the data folder, through a link", filepath.Join(link, "monday"), fs.ErrInvalid},
	} {
		result, err := s.backups.Write(t.Context(), row.dir, s.Checkpoint)
		if row.err != nil {
			require.ErrorIs(t, err, row.err, row.what)
			continue
		}
		require.NoError(t, err, row.what)
		report, err := Check(t.Context(), result.Dir)
		require.NoError(t, err, row.what)
		require.Empty(t, report.Damage, row.what)
	}
	require.Equal(t, []string{"something"}, files(t, full))
	require.NotContains(t, files(t, s.dir), "monday")
	// The store goes on, and starts with backups in its folder.
	s.mustPut("k", 10)
	require.NoError(t, s.Writable())
}

// meddler is a file system that lets a test do something between two reads of a
// log.
type meddler struct {
	vfs.FS
	between atomic.Pointer[func()]
}

func (m *meddler) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := m.FS.Open(name, opts...)
	if between := m.between.Load(); err == nil && between != nil && strings.HasSuffix(name, ".log") {
		return &meddled{f, *between}, nil
	}
	return f, err
}

type meddled struct {
	vfs.File
	between func()
}

func (f *meddled) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.between()
	return n, err
}

// A log that is written while it is copied, over zeros that were there in advance,
// is copied as it was at one moment.
func TestBackups_LogWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	beneath := &meddler{FS: vfs.Default}
	s := open(t, beneath, pebble.Always)
	s.mustPut("before", 10)
	round := 0
	between := func() {
		if round++; round <= 5 {
			s.mustPut(fmt.Sprintf("meanwhile%c", 'a'+round), 200)
		}
	}
	beneath.between.Store(&between)
	dir := s.write()
	beneath.between.Store(nil)
	require.NotZero(t, round)

	data := filepath.Join(t.TempDir(), "data")
	_, err := Restore(t.Context(), dir, data)
	require.NoError(t, err)
	requireHolds(t, data, map[string]int{"before": 10})
}

func TestBackups_Interrupted(t *testing.T) {
	t.Parallel()
	errDisk := errors.New("no disk")
	for _, row := range []struct {
		what string
		// checkpoint runs s.Checkpoint when whatever interrupts it has happened.
		checkpoint func(s *subject, hangUp func(), dir string) error
		err        error
	}{
		{"whoever has asked does not wait any more", func(s *subject, hangUp func(), dir string) error {
			hangUp()
			return s.Checkpoint(dir)
		}, context.Canceled},
		{"the service stops", func(s *subject, _ func(), dir string) error {
			s.backups.end(ErrClosed)
			<-s.backups.disk.ctx.Done()
			return s.Checkpoint(dir)
		}, ErrClosed},
		{"the service stops before the inventory", func(s *subject, _ func(), dir string) error {
			err := s.Checkpoint(dir)
			s.backups.end(ErrClosed)
			<-s.backups.disk.ctx.Done()
			return err
		}, ErrClosed},
		{"the store fails behind the files", func(s *subject, _ func(), dir string) error {
			return errors.Join(s.Checkpoint(dir), errDisk)
		}, errDisk},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			s := open(t, vfs.Default, pebble.Always)
			s.mustPut("k", 10)
			dir := filepath.Join(t.TempDir(), "backup")
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			_, err := s.backups.Write(ctx, dir, func(dir string) error { return row.checkpoint(s, hangUp, dir) })
			require.ErrorIs(t, err, row.err)
			require.NoDirExists(t, dir)
			s.mustPut("k", 10)
			require.NoError(t, s.Writable())
		})
	}
}

// A disk on which there is no room for the backup is not the store's.
func TestBackups_DiskFull(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"MANIFEST", "OPTIONS", ".log", "marker"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "backup")
			s := open(t, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if strings.HasPrefix(op.Path, dir) && strings.Contains(op.Path, part) && op.Kind == errorfs.OpFileWrite ||
					part == "marker" && op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, dir) {
					return syscall.ENOSPC
				}
				return nil
			})), pebble.Always)
			s.mustPut("k", 10)
			_, err := s.backups.Write(t.Context(), dir, s.Checkpoint)
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.NoDirExists(t, dir)
			require.NoError(t, s.Writable())
			s.mustPut("k", 10)
		})
	}
}

func TestBackups_OneAtATime(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.Default, pebble.Always)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := s.backups.Write(t.Context(), dir, func(dir string) error {
		_, err := s.backups.Write(t.Context(), dir, s.Checkpoint)
		require.ErrorIs(t, err, ErrBusy)
		return s.Checkpoint(dir)
	})
	require.NoError(t, err)
	s.backups.Close()
	_, err = s.backups.Write(t.Context(), dir+"2", s.Checkpoint)
	require.ErrorIs(t, err, ErrClosed)
	require.NoDirExists(t, dir+"2")
}

// A backup that hangs while the service stops keeps Close waiting, but not the store:
// what it acknowledges meanwhile is saved by Sync. The backup ends as soon as it can.
func TestBackups_HangsAtAStop(t *testing.T) {
	t.Parallel()
	for _, mode := range []pebble.SyncMode{pebble.Always, pebble.Interval, pebble.Never} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "backup")
			hangs, goOn := make(chan struct{}), make(chan struct{})
			end := sync.OnceFunc(func() { close(goOn) })
			defer end()
			var once sync.Once
			s := open(t, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpFileWrite && strings.HasPrefix(op.Path, dir) {
					once.Do(func() { close(hangs) })
					<-goOn
				}
				return nil
			})), mode)
			s.mustPut("before", 10)
			written, closed := make(chan error, 1), make(chan struct{})
			go func() {
				_, err := s.backups.Write(t.Context(), dir, s.Checkpoint)
				written <- err
			}()
			<-hangs
			go func() {
				s.backups.Close()
				close(closed)
			}()
			<-s.backups.stop.Done()
			s.mustPut("meanwhile", 10)
			require.NoError(t, s.Sync())
			killed := filepath.Join(t.TempDir(), "killed")
			for err := os.CopyFS(killed, os.DirFS(s.dir)); err != nil; err = os.CopyFS(killed, os.DirFS(s.dir)) {
				require.ErrorIs(t, err, fs.ErrNotExist, "what the store has no use for any more goes meanwhile")
				require.NoError(t, os.RemoveAll(killed))
			}
			requireHolds(t, killed, map[string]int{"before": 10, "meanwhile": 10})
			select {
			case <-closed:
				require.Fail(t, "the store would be closed below the backup")
			case err := <-written:
				require.Fail(t, "the backup has ended", "%v", err)
			default:
			}

			end()
			require.ErrorIs(t, <-written, ErrClosed)
			<-closed
			require.NoDirExists(t, dir)
		})
	}
}

// A backup that fails leaves the empty folder that was there, and the link to it.
func TestBackups_FailureKeepsTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, link := filepath.Join(dir, "folder"), filepath.Join(dir, "link")
	require.NoError(t, os.Mkdir(folder, 0o750))
	require.NoError(t, os.Symlink(folder, link))
	b := New(filepath.Join(dir, "data"))
	_, err := b.Write(t.Context(), link, func(string) error { return errors.ErrUnsupported })
	require.ErrorIs(t, err, errors.ErrUnsupported)
	target, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, folder, target)
	info, err := os.Stat(link)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o750), info.Mode().Perm())
}
