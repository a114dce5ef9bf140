package generator

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pacer waits to a few microseconds, where the runtime's timers round up to a
// millisecond: by a timer of the kernel that the runtime polls as it does sockets. One
// goroutine at a time waits.
type pacer struct {
	fd   int
	file *os.File // nil if there is no such timer
}

func newPacer() *pacer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return new(pacer)
	}
	return &pacer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}
}

func (p *pacer) wait(d time.Duration) {
	var fired [8]byte
	if p.file != nil && unix.TimerfdSettime(p.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}, nil) == nil {
		if _, err := p.file.Read(fired[:]); err == nil {
			return
		}
	}
	time.Sleep(d)
}

func (p *pacer) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}
