//go:build !race

package socket

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls on sockets that do not wait leave Go's scheduler alone. It would be told of each
// that it may take long, and, if the process was idle, wake a thread that looks every 20 µs
// whether it does: a third of the CPU time that it takes to forward a request.

func read(fd int, p []byte) (int, error) {
	return result(unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

func write(fd int, p []byte) (int, error) {
	return result(unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// peek reads a byte, and leaves it there.
func peek(fd int) (int, error) {
	var one [1]byte
	return result(unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&one)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0))
}

func result(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
