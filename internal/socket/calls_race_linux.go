//go:build race

package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// The calls of these packages tell the race detector what happens before what.

func read(fd int, p []byte) (int, error)  { return syscall.Read(fd, p) }
func write(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }

func peek(fd int) (int, error) {
	var one [1]byte
	n, _, err := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return n, err
}
