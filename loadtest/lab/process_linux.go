package lab

import (
	"os"
	"syscall"
)

// attributes puts the service into a process group of its own, so that Ctrl-C
// does not reach it before the lab has ended its run, and ends it with the
// thread that has started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signalGroup signals the service and what it has started: the binary may be a
// script.
func signalGroup(p *os.Process, signal syscall.Signal) error { return syscall.Kill(-p.Pid, signal) }
