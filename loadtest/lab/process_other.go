//go:build !linux

package lab

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func signalGroup(p *os.Process, signal syscall.Signal) error { return p.Signal(signal) }
