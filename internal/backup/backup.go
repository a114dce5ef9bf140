// Package backup makes backups of a store that is in use, checks them and data
// folders, and puts a backup in the place of a data folder.
//
// A backup is a folder with what Pebble calls a checkpoint, and an inventory,
// which is written last: see inventory.go. Without it, what is there was not
// finished.
//
// The other way round, a data folder that is being restored has a file that is
// removed last: see restore.go. With it, the service does not start on what is
// there.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/datadir"
)

var (
	// ErrBusy is returned by Write while another backup is being written.
	ErrBusy = errors.New("another backup is being written")
	// ErrClosed is returned by Write when Close was called, before or meanwhile.
	ErrClosed = errors.New("the service is stopping")
)

// Folder is the only place within a data folder where backups may be.
const Folder = "backups"

// Result is what a backup has become.
type Result struct {
	Dir   string // absolute
	Files int
	Bytes int64 // of the files, also of those that are shared with the store
	Took  time.Duration
}

// Backups makes the backups of one store. The store must use the file system
// that FS returns. All methods are safe for concurrent use.
type Backups struct {
	data string // the data folder
	disk *disk
	stop context.Context // ends with Close
	end  context.CancelCauseFunc
	busy sync.Mutex // held while a backup is written
}

// New returns the Backups of a store in the folder data.
func New(data string) *Backups {
	b := &Backups{data: data, disk: newDisk(datadir.New(data))}
	b.stop, b.end = context.WithCancelCause(context.Background())
	return b
}

// FS returns the file system for the store.
func (b *Backups) FS() vfs.FS { return b.disk }

// Close ends the backup that is being written, if there is one, and waits for
// its end. It must be called before the store is closed.
func (b *Backups) Close() {
	b.end(ErrClosed)
	b.busy.Lock()
	defer b.busy.Unlock() // later calls get it, and return ErrClosed
}

// Write makes a backup in dir, an absolute path at which there is nothing, or an
// empty folder. Tables are linked where that is possible. checkpoint is the
// store's.
//
// The backup has all that was acknowledged before Write was called, and nothing
// that was sent after it returned. If it fails, or ctx ends, nothing stays of it.
// The error wraps fs.ErrExist if there is something at dir, fs.ErrInvalid if dir
// cannot be the place of a backup, ErrBusy, ErrClosed, or what checkpoint
// returned.
func (b *Backups) Write(ctx context.Context, dir string, checkpoint func(dir string) error) (Result, error) {
	if !b.busy.TryLock() {
		return Result{}, ErrBusy
	}
	defer b.busy.Unlock()
	if b.stop.Err() != nil {
		return Result{}, ErrClosed
	}
	start := time.Now()
	dir = filepath.Clean(dir)
	dir, mode, err := b.makeRoom(dir)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.stop, func() { cancel(ErrClosed) })()
	b.disk.begin(ctx, dir)
	err = checkpoint(dir)
	b.disk.finish()
	if errors.Is(err, fs.ErrExist) {
		return Result{}, err // somebody else has made the folder meanwhile
	}
	var inv inventory
	if err == nil && mode != 0 {
		err = os.Chmod(dir, mode)
	}
	if err == nil {
		inv, err = takeInventory(ctx, dir)
	}
	if err == nil {
		err = inv.write(dir, inventoryName)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		err = errors.Join(err, os.RemoveAll(dir))
		if mode != 0 {
			err = errors.Join(err, os.Mkdir(dir, 0o700), os.Chmod(dir, mode))
		}
		return Result{}, err
	}
	return Result{Dir: dir, Files: len(inv.Files), Bytes: inv.bytes(), Took: time.Since(start)}, nil
}

// makeRoom sees to it that there is nothing at dir, and that there may be a
// backup. It returns dir without links, and the mode of the empty folder that was
// there and is to be again, or 0.
func (b *Backups) makeRoom(dir string) (at string, mode fs.FileMode, _ error) {
	if !filepath.IsAbs(dir) {
		return "", 0, &placeError{fs.ErrInvalid, fmt.Sprintf("%s is not an absolute path", dir)}
	}
	inside, err := within(b.data, dir)
	if err != nil {
		return "", 0, err
	}
	if inside != "" && !strings.HasPrefix(inside, Folder+string(filepath.Separator)) {
		return "", 0, &placeError{fs.ErrInvalid, fmt.Sprintf("%s is in the data folder, where backups may be in %s only", dir, filepath.Join(b.data, Folder))}
	}
	if at, err = resolve(dir); err != nil {
		return "", 0, err
	}
	entries, err := os.ReadDir(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return at, 0, nil
	case err == nil && len(entries) > 0:
		return "", 0, &placeError{fs.ErrExist, fmt.Sprintf("%s exists already and is not empty", dir)}
	case err != nil:
		return "", 0, err
	}
	info, err := os.Stat(at)
	if err != nil {
		return "", 0, err
	}
	if err := os.Remove(at); err != nil { // a checkpoint makes its folder itself
		return "", 0, &placeError{fs.ErrInvalid, fmt.Sprintf("the empty folder %s cannot be replaced, name one to be made within it (%v)", dir, err)}
	}
	return at, info.Mode() &^ fs.ModeType, nil
}

// placeError says why there can be no backup at some place.
type placeError struct {
	kind error // fs.ErrExist or fs.ErrInvalid
	text string
}

func (e *placeError) Error() string { return e.text }
func (e *placeError) Unwrap() error { return e.kind }

// within returns the path of dir relative to parent if it is parent or within,
// and "" otherwise. Links are followed as far as there is anything, and so are
// mounts: a folder may have several paths.
func within(parent, dir string) (string, error) {
	dir, err := resolve(dir)
	if err != nil {
		return "", err
	}
	folder, err := os.Stat(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for above := dir; ; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err == nil && os.SameFile(info, folder) {
			return filepath.Rel(above, dir)
		}
		if above == filepath.Dir(above) {
			return "", nil
		}
	}
}

// resolve returns the absolute path of a file that may not be there yet, without
// links.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
		return target, err
	}
	parent, err := resolve(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}
