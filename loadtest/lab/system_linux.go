package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// freeBytes returns how many bytes can be written in dir; false if it is unknown.
func freeBytes(dir string) (int64, bool) {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return 0, false
	}
	return int64(disk.Bavail) * disk.Bsize, true
}

// lock keeps other comparisons out of a folder until release is called, or this
// process ends.
func lock(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use by another comparison: wait for its end, or choose another folder with --out", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() {
		// To close it is not enough: a process that is being started has it as well, until it
		// runs its program.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

// attributes puts the service into a process group of its own, so that Ctrl-C
// does not reach it before the lab has ended its run, and ends it with the
// thread that has started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signalGroup signals the service and what it has started: the binary may be a
// script.
func signalGroup(p *os.Process, signal syscall.Signal) error { return syscall.Kill(-p.Pid, signal) }

// processCPU reads the clock of the processor time of a process. Unlike what
// /proc tells, it does not count in hundredths of a second.
func processCPU(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED: the time that it really ran
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// processGroup returns the processes of a group, first the one that leads it.
func processGroup(leader int) []int {
	group := []int{leader}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == leader {
			continue
		}
		if id, err := syscall.Getpgid(pid); err == nil && id == leader {
			group = append(group, pid)
		}
	}
	return group
}
