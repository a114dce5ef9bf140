package httpfront

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readNow reads what is there, or returns errNothingYet.
func readNow(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case err == unix.EAGAIN:
			return 0, errNothingYet
		case err != unix.EINTR:
			return 0, os.NewSyscallError("read", err)
		}
	}
}

// bytesPending reports whether there are bytes to be read, as opposed to
// nothing, the end, or an error.
func bytesPending(raw syscall.RawConn) bool {
	pending := false
	err := raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		pending = err == nil && n > 0
	})
	return err == nil && pending
}

// silent reports whether there is nothing to be read: neither bytes, nor the end, nor
// an error.
func silent(fd int) bool {
	var one [1]byte
	_, _, err := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == unix.EAGAIN
}

// manyPending reports whether there are at least that many bytes to be read.
func manyPending(raw syscall.RawConn, least int) bool {
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n >= least
}
