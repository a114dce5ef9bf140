package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/durable"
)

// A restore copies the files of a backup to where they belong. The folder may be
// the root of a volume, which cannot be replaced by another folder, so that there
// is no rename by which all would be there at once. Instead:
//
//  1. The backup is checked. Nothing has been changed until here.
//  2. The folder is locked as a service locks it.
//  3. A file named unfinished is written, with the inventory. While it is there,
//     no service starts on the folder: see Usable.
//  4. The files are copied and synced.
//  5. The file named unfinished is removed.
//
// Whoever finds it there later, after a crash, knows by the inventory what was
// copied, and begins anew.

// unfinished is the file in a data folder that is being restored.
const unfinished = "SPILLWAY-RESTORE-UNFINISHED"

// ErrUnfinished is returned by Usable.
var ErrUnfinished = errors.New("a restore into it was interrupted: run spillway restore again")

// ErrDamaged is returned by Restore for a backup that Check finds fault with.
var ErrDamaged = errors.New("the backup is damaged, nothing was restored")

// Usable returns an error that wraps ErrUnfinished if a restore into the folder
// was not finished, so that there is a part of a store in it, and nil otherwise.
func Usable(dir string) error {
	switch _, err := os.Lstat(filepath.Join(dir, unfinished)); {
	case err == nil:
		return fmt.Errorf("the data folder %s cannot be used, as %w", dir, ErrUnfinished)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

// storeFile is what the files are called by which a folder with a store is known.
var storeFile = regexp.MustCompile(`^(\d{6,}\.(log|sst)|MANIFEST-.*|OPTIONS-.*|marker\..*|MARK|LOGS|OPENED|` + unfinished + `)`)

// Ours returns nil if a store can be in that folder: there is one, or nothing, or
// no folder. The error says what else is there.
func Ours(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("the data folder %s is a file, or within one: choose a folder with SPILLWAY_DATA_DIR", dir)
	case err != nil:
		return err
	}
	stranger := ""
	for _, e := range entries {
		switch name := e.Name(); {
		case storeFile.MatchString(name):
			return nil
		case name == datadir.LockName, name == unfinished+".tmp", name == Folder, name == "lost+found", strings.HasPrefix(name, "."):
		default:
			stranger = name
		}
	}
	if stranger != "" {
		return fmt.Errorf("the data folder %s holds no store, but somebody else's files, such as %.100q: choose an empty or a new one with SPILLWAY_DATA_DIR", dir, stranger)
	}
	return nil
}

// Restore copies the backup in the folder from to the data folder to, which must not
// exist, or be empty but for Folder and what a service without data leaves behind.
// The backup is checked first, and not changed. If the restore fails, or ctx ends,
// what was copied is removed; the folder may stay, and its lock. The report is on the
// backup, and valid with ErrDamaged as well.
func Restore(ctx context.Context, from, to string) (Report, error) {
	inv, err := backupOf(from)
	if err != nil {
		return Report{}, err
	}
	// Before the backup is read, which may take long.
	release, err := datadir.Share(to)
	if err != nil {
		return Report{}, fmt.Errorf("the data folder %s: %w", to, err)
	}
	release()
	if err := vacant(to); err != nil {
		return Report{}, err
	}
	switch inside, err := within(from, to); {
	case err != nil:
		return Report{}, err
	case inside != "":
		return Report{}, fmt.Errorf("the data folder %s is within the backup %s", to, from)
	}
	report, err := check(ctx, from)
	switch {
	case err != nil:
		return report, err
	case len(report.Damage) > 0:
		return report, ErrDamaged
	}
	return report, install(ctx, &inv, from, to)
}

// vacant returns nil if there is no store in the data folder, nor anything else
// that could be somebody's.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == unfinished }) {
		return nil // which says what is there
	}
	for _, e := range entries {
		switch e.Name() {
		case datadir.LockName, unfinished + ".tmp", Folder, "lost+found":
		default:
			return fmt.Errorf("the data folder %s is not empty, it has %s: move away what is there", dir, e.Name())
		}
	}
	return nil
}

// install does what has to be done from the lock on.
func install(ctx context.Context, inv *inventory, from, to string) (err error) {
	made, err := makeDir(to)
	if err != nil {
		return err
	}
	lock, err := datadir.New(to).Lock(filepath.Join(to, datadir.LockName))
	if err != nil {
		return fmt.Errorf("the data folder %s is in use: %w", to, err)
	}
	defer func() {
		err = errors.Join(err, lock.Close())
		if err != nil && made {
			_ = os.Remove(filepath.Join(to, datadir.LockName))
			_ = os.Remove(to)
		}
	}()
	if err := vacant(to); err != nil {
		return err
	}
	marker := filepath.Join(to, unfinished)
	switch before, err := read(marker); {
	case err == nil:
		if err := before.remove(to); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := inv.write(to, unfinished); err != nil {
		return errors.Join(err, removeAll(marker+".tmp", marker))
	}
	for i := 0; i < len(inv.Files) && err == nil; i++ {
		err = inv.Files[i].copy(ctx, from, to)
	}
	if err == nil {
		err = durable.SyncDir(to)
	}
	if err != nil {
		// In this order, so that the folder is not used before it is empty.
		return errors.Join(err, inv.remove(to), removeAll(marker))
	}
	return errors.Join(os.Remove(marker), durable.SyncDir(to))
}

// makeDir makes a folder and those above it, durably, and reports whether there
// was none.
func makeDir(dir string) (made bool, err error) {
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = makeDir(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil // if it is no folder, that is found out next
	}
	if err != nil {
		return false, err
	}
	return true, durable.SyncDir(filepath.Dir(dir))
}

// copy copies the file and makes its content durable.
func (f *file) copy(ctx context.Context, from, to string) error {
	src, err := os.Open(filepath.Join(from, f.Name))
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(filepath.Join(to, f.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w, h := io.Writer(dst), hash.Hash(nil)
	if f.SHA256 != "" {
		h = sha256.New()
		w = io.MultiWriter(dst, h)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, &interruptible{ctx, src}, make([]byte, 1<<20))
	if err = errors.Join(err, dst.Sync(), dst.Close()); err != nil {
		return err
	}
	if n != f.Bytes || h != nil && hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%s has changed while it was copied", src.Name())
	}
	return nil
}

// remove removes the files of the inventory that are in dir.
func (i *inventory) remove(dir string) error {
	var paths []string
	for _, f := range i.Files {
		paths = append(paths, filepath.Join(dir, f.Name))
	}
	return errors.Join(removeAll(paths...), durable.SyncDir(dir))
}

// removeAll removes the files that there are.
func removeAll(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
