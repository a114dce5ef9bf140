// Package datadir holds a data folder, and keeps what is in it private.
//
// A folder that is held is reached by its open handle, not by its path: if another
// volume is mounted over it, or it is moved away, its files stay within reach, and
// nothing at the path is read, made or removed. Check reports it.
//
// Whatever is made is for its user alone, whatever the umask: folders are 0700 and
// files 0600. What is there already keeps its mode.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// LockName is the file in a data folder that is locked while the folder is in use.
const LockName = "LOCK"

var (
	// ErrInUse is returned by Lock and Share for a folder that somebody uses.
	ErrInUse = errors.New("it is in use by a running service")
	// ErrNotOurs is returned by Check when the path does not lead to the folder that
	// was opened any more.
	ErrNotOurs = errors.New("the data folder is not the one that was opened")
	// ErrLockLost is returned by Check when the file that was locked is gone.
	ErrLockLost = errors.New("the file " + LockName + " of the data folder was removed or replaced")
)

// FS is the system's file system with one folder that can be held, by Lock.
type FS struct {
	vfs.FS // for what does not depend on either
	dir    string
	held   atomic.Pointer[os.Root]
}

var _ vfs.FS = (*FS)(nil)

// New returns a file system for that folder, which need not be there yet.
func New(dir string) *FS { return &FS{FS: vfs.Default, dir: filepath.Clean(dir)} }

// within returns the held folder, and the name within, if a path leads to the
// folder itself or a file right in it. Otherwise root is nil.
func (f *FS) within(path string) (root *os.Root, name string) {
	root = f.held.Load()
	switch {
	case root == nil:
		return nil, ""
	case path == f.dir:
		return root, "."
	case filepath.Dir(path) == f.dir:
		return root, filepath.Base(path)
	default:
		return nil, ""
	}
}

func (f *FS) open(path string, flag int) (*os.File, error) {
	if root, name := f.within(path); root != nil {
		return root.OpenFile(name, flag, fileMode)
	}
	return os.OpenFile(path, flag, fileMode)
}

// Create makes a file. One that is there is removed, as others may have links to it.
func (f *FS) Create(path string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	for {
		file, err := f.open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if err == nil {
			return wrap(file), nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := f.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// Open opens a file for reading.
func (f *FS) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	return opened(f.open(path, os.O_RDONLY))(opts)
}

// OpenReadWrite opens a file, or makes it.
func (f *FS) OpenReadWrite(path string, _ vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return opened(f.open(path, os.O_RDWR|os.O_CREATE))(opts)
}

func opened(file *os.File, err error) func([]vfs.OpenOption) (vfs.File, error) {
	return func(opts []vfs.OpenOption) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		wrapped := wrap(file)
		for _, o := range opts {
			o.Apply(wrapped)
		}
		return wrapped, nil
	}
}

// OpenDir opens a folder, to sync it.
func (f *FS) OpenDir(path string) (vfs.File, error) {
	root, _ := f.within(path)
	if root == nil || path != f.dir {
		return f.FS.OpenDir(path)
	}
	file, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	return dirOf(file), nil
}

// List returns the names in a folder.
func (f *FS) List(path string) (names []string, err error) {
	if root, _ := f.within(path); root == nil || path != f.dir {
		return f.FS.List(path)
	}
	dir, err := f.open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	names, err = dir.Readdirnames(-1)
	return names, errors.Join(err, dir.Close())
}

// Stat describes a file.
func (f *FS) Stat(path string) (vfs.FileInfo, error) {
	root, name := f.within(path)
	if root == nil {
		return f.FS.Stat(path)
	}
	return describe(root.Stat(name))
}

// Remove removes a file.
func (f *FS) Remove(path string) error {
	if root, name := f.within(path); root != nil {
		return root.Remove(name)
	}
	return f.FS.Remove(path)
}

// RemoveAll removes a file or a folder.
func (f *FS) RemoveAll(path string) error {
	if root, name := f.within(path); root != nil {
		return root.RemoveAll(name)
	}
	return f.FS.RemoveAll(path)
}

// Rename renames a file within its folder.
func (f *FS) Rename(from, to string) error {
	root, name := f.within(from)
	if root == nil {
		return f.FS.Rename(from, to)
	}
	if _, target := f.within(to); target != "" {
		return root.Rename(name, target)
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: errors.ErrUnsupported}
}

// Link links a file, which becomes as private as one that is made: it may be of a
// version that made others.
func (f *FS) Link(from, to string) error {
	root, name := f.within(from)
	switch _, target := f.within(to); {
	case root == nil:
		return f.FS.Link(from, to)
	case target != "":
		return root.Link(name, target)
	}
	// There is no way to link a file of a held folder to elsewhere but by its path,
	// which may lead to another one.
	if err := f.FS.Link(from, to); err != nil {
		return err
	}
	want, err := root.Stat(name)
	if err == nil {
		var got fs.FileInfo
		if got, err = os.Lstat(to); err == nil && !os.SameFile(want, got) {
			err = ErrNotOurs
		}
	}
	if err == nil && want.Mode().Perm()&^fileMode != 0 {
		err = os.Chmod(to, fileMode)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}

// ReuseForWrite leaves nothing of the old file.
func (f *FS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Remove(from); err != nil {
		return nil, err
	}
	return f.Create(to, c)
}

// MkdirAll makes a folder and those above it.
func (f *FS) MkdirAll(path string, perm fs.FileMode) error {
	return os.MkdirAll(path, perm&dirMode)
}

// Unwrap returns nothing: what lies beneath knows of no held folder.
func (f *FS) Unwrap() vfs.FS { return nil }

// Lock locks the folder, by the name of its lock file, and holds it until the
// returned Lock is closed. The error wraps ErrInUse if somebody has locked it.
func (f *FS) Lock(path string) (io.Closer, error) {
	if !canHold || filepath.Dir(path) != f.dir {
		return f.FS.Lock(path)
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, err
	}
	l := &Lock{fs: f, root: root, name: filepath.Base(path)}
	if l.dir, err = root.Open("."); err == nil {
		if err = lockDir(l.dir); err == nil {
			err = l.lockFile()
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	f.held.Store(root)
	return l, nil
}

// Lock is a folder that is held. The folder itself is locked, which no removal of a
// file undoes, where the system can do that; and a file in it, by which other
// programs and earlier versions tell.
type Lock struct {
	fs   *FS
	root *os.Root
	name string
	dir  *os.File
	file *os.File // nil if there is none yet
}

func (l *Lock) lockFile() error {
	file, err := l.root.OpenFile(l.name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	if err := lockFile(file, true); err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	return nil
}

// Check returns an error that wraps ErrNotOurs if the path of the folder leads
// elsewhere, or nowhere, and one that wraps ErrLockLost if the locked file is not
// there any more.
func (l *Lock) Check() error {
	held, err := l.dir.Stat()
	if err != nil {
		return err
	}
	switch there, err := os.Stat(l.fs.dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is nothing at its path", ErrNotOurs)
	case err != nil:
		return fmt.Errorf("%w, as far as one can see: %w", ErrNotOurs, errnoOf(err))
	case !os.SameFile(held, there):
		return fmt.Errorf("%w: another one lies at its path, such as a volume that was mounted there", ErrNotOurs)
	}
	locked, err := l.file.Stat()
	if err != nil {
		return err
	}
	switch there, err := l.root.Stat(l.name); {
	case errors.Is(err, fs.ErrNotExist):
		return ErrLockLost
	case err != nil:
		return fmt.Errorf("%s: %w", l.name, errnoOf(err))
	case !os.SameFile(locked, there):
		return ErrLockLost
	}
	return nil
}

// Again locks the lock file that there is now, after ErrLockLost. It must not be
// called while Check is.
func (l *Lock) Again() error {
	old := l.file
	if err := l.lockFile(); err != nil {
		return err
	}
	_ = old.Close()
	return nil
}

// Exposed reports whether others than the user and the group of the folder may look
// into it.
func (l *Lock) Exposed() bool {
	info, err := l.dir.Stat()
	return err == nil && exposes(info.Mode())
}

// Close ends the lock. The files are reached by their paths then.
func (l *Lock) Close() error {
	l.fs.held.CompareAndSwap(l.root, nil)
	var errs []error
	for _, file := range []*os.File{l.file, l.dir} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return errors.Join(append(errs, l.root.Close())...)
}

// Share keeps others from locking the folder until the returned function is called.
// It changes nothing, not even the time of a file, and works where nothing can be
// written. The error wraps ErrInUse if somebody has locked it. Locks of this process
// are seen only where folders can be locked, and the file's end with release.
func Share(dir string) (release func(), err error) {
	folder, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := shareDir(folder); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	file, err := os.Open(filepath.Join(dir, LockName))
	switch {
	case errors.Is(err, fs.ErrNotExist): // nobody has opened it, or somebody has removed it
		return func() { _ = folder.Close() }, nil
	case err == nil:
		if err = lockFile(file, false); err == nil {
			return func() { _, _ = file.Close(), folder.Close() }, nil
		}
		_ = file.Close()
	}
	return nil, errors.Join(err, folder.Close())
}

// Same reports whether two descriptions are of the same file, as far as they tell.
func Same(a, b vfs.FileInfo) bool {
	x, ok := a.(info)
	y, also := b.(info)
	return !ok || !also || os.SameFile(x.FileInfo, y.FileInfo)
}

// errnoOf takes from an error of a file the path, which others need not know.
func errnoOf(err error) error {
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		return cause.Err
	}
	return err
}
