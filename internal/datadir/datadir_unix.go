//go:build unix

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// canHold says that a folder can be held and synced by its handle.
const canHold = true

// lockDir locks a folder for one, where that is possible: some file systems of
// networks lock no folders.
func lockDir(dir *os.File) error { return flock(dir, unix.LOCK_EX) }

// shareDir keeps others from lockDir.
func shareDir(dir *os.File) error { return flock(dir, unix.LOCK_SH) }

func flock(dir *os.File, how int) error {
	if errors.Is(unix.Flock(int(dir.Fd()), how|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return ErrInUse
	}
	return nil
}

// lockFile locks a file, for one if it is exclusive.
func lockFile(file *os.File, exclusive bool) error {
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	if exclusive {
		lock.Type = unix.F_WRLCK
	}
	err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrInUse
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

func exposes(mode fs.FileMode) bool { return mode&0o005 != 0 }
