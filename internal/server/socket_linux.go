package server

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawConn returns access to the descriptor of a connection, or nil.
func rawConn(nc net.Conn) syscall.RawConn {
	c, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

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

// writeNow writes what there is room for, or returns errNoRoom.
func writeNow(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Write(fd, p)
		switch {
		case err == nil:
			return n, nil
		case err == unix.EAGAIN:
			return 0, errNoRoom
		case err != unix.EINTR:
			return 0, os.NewSyscallError("write", err)
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

// bytesUnsent returns how many bytes lie in the socket that the client's side
// has not acknowledged.
func bytesUnsent(raw syscall.RawConn) int {
	unsent := 0
	_ = raw.Control(func(fd uintptr) {
		unsent, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ)
	})
	return unsent
}
