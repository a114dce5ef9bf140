package secure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// MaxFile is how many bytes a file of settings, a token, a certificate or a key may have.
const MaxFile = 64 << 10

// ErrTooLarge says that a file has more.
var ErrTooLarge = fmt.Errorf("it has more bytes than the %d that are allowed", MaxFile)

var errNotRegular = errors.New("it is no regular file")

// ReadFile reads a regular file or, if pipe, whatever it is: what is no regular file may never end, or
// never begin. The error is a *fs.PathError.
func ReadFile(name string, pipe bool) ([]byte, error) {
	how := os.O_RDONLY
	if !pipe {
		how |= syscall.O_NONBLOCK // a pipe that nobody writes to opens too
	}
	f, err := os.OpenFile(name, how, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !pipe && !info.Mode().IsRegular() {
		return nil, cmp.Or(err, error(&fs.PathError{Op: "read", Path: name, Err: errNotRegular}))
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(content) > MaxFile {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrTooLarge}
	}
	return content, err
}
