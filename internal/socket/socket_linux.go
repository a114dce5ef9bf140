package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// bufferSize is what a socket is asked to hold each way, of what its client has not
// acknowledged and of what has not been read. Linux takes twice of it, for its own
// records, and no more than twice of net.core.wmem_max and rmem_max. Left alone it
// would let these buffers grow to 4 and 6 MiB, for clients that read slowly or send
// ahead too, and a container is charged for them.
const bufferSize = 256 << 10

// Bound is for net.ListenConfig. What is accepted inherits the bounds.
func Bound(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		for _, option := range []int{syscall.SO_SNDBUF, syscall.SO_RCVBUF} {
			if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, bufferSize); err != nil {
				failed = os.NewSyscallError("setsockopt", err)
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// Raw returns access to the descriptor of a connection, or nil.
func Raw(c net.Conn) syscall.RawConn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// ReadNow reads what is there, or returns ErrNoBytes, and at the end io.EOF.
func ReadNow(fd int, p []byte) (int, error) {
	for {
		n, err := read(fd, p)
		switch {
		case n > 0 || len(p) == 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case errors.Is(err, syscall.EAGAIN):
			return 0, ErrNoBytes
		case !errors.Is(err, syscall.EINTR):
			return 0, os.NewSyscallError("read", err)
		}
	}
}

// WriteNow writes what there is room for, or returns ErrNoRoom.
func WriteNow(fd int, p []byte) (int, error) {
	for {
		n, err := write(fd, p)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, syscall.EAGAIN):
			return 0, ErrNoRoom
		case !errors.Is(err, syscall.EINTR):
			return 0, os.NewSyscallError("write", err)
		}
	}
}

// Unsent returns how many bytes lie in the socket that the other side has not
// acknowledged.
func Unsent(raw syscall.RawConn) int {
	unsent := 0
	_ = raw.Control(func(fd uintptr) {
		unsent, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ)
	})
	return unsent
}

// Silent reports whether there is nothing to be read: neither bytes, nor the end, nor an error.
func Silent(fd int) bool {
	_, err := peek(fd)
	return errors.Is(err, syscall.EAGAIN)
}

// Pending reports whether there are bytes to be read, as opposed to nothing, the end, or an
// error.
func Pending(fd int) bool {
	n, err := peek(fd)
	return err == nil && n > 0
}
