package socket

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

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

// WriteNow writes what there is room for, or returns ErrNoRoom.
func WriteNow(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Write(fd, p) // as package net does, which the race detector knows
		switch {
		case err == nil:
			return n, nil
		case err == syscall.EAGAIN:
			return 0, ErrNoRoom
		case err != syscall.EINTR:
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
