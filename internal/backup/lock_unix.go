//go:build unix

package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// share keeps others from locking the file until the returned function is called,
// if there is one. It changes nothing, not even the time of the file, and works
// where nothing can be written. The error wraps ErrInUse if somebody has locked
// it. Locks of this process are not seen, and end with the returned function.
func share(path string) (release func(), err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // nobody has opened it
	}
	if err != nil {
		return nil, err
	}
	lock := syscall.Flock_t{Type: syscall.F_RDLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
