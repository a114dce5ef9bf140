//go:build unix

package main

import (
	"math"
	"syscall"
)

// maxDescriptors returns how many file descriptors the process may have open. Go
// has raised the soft limit to the hard one when the process began.
func maxDescriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on some systems
}
