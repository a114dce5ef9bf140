package generator

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes a goroutine to a few microseconds, where the runtime's timers round up to a
// millisecond: by a timer of the kernel that the runtime polls as it does sockets.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a timer: %w", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

// set sets the alarm to a time from now, in place of the one that it is set to.
func (a *alarm) set(d time.Duration) {
	_ = unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}, nil)
}

// wait waits for the alarm, which somebody has set.
func (a *alarm) wait() {
	var fired [8]byte
	_, _ = a.file.Read(fired[:])
}

func (a *alarm) close() { _ = a.file.Close() }
