package httpfront

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// manyPending reports whether there are at least that many bytes to be read.
func manyPending(raw syscall.RawConn, least int) bool {
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n >= least
}
