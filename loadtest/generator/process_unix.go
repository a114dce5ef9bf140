//go:build linux || darwin

package generator

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time of this process so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// checkDescriptors reports more connections than the process may open.
func checkDescriptors(connections int) error {
	var limit unix.Rlimit
	const others = 64
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && uint64(connections)+others > limit.Cur {
		return fmt.Errorf("connections: %d are more than the %d files that this process may open; raise it with ulimit -n (%w)",
			connections, limit.Cur, os.ErrInvalid)
	}
	return nil
}
