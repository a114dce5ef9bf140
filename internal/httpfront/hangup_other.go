//go:build !linux

package httpfront

import "syscall"

// hangups notices clients that go while their request waits; here it does not.
type hangups struct{}

func openHangups() (*hangups, error)        { return nil, nil }
func (h *hangups) add(*conn) (key uint64)   { return 0 }
func (h *hangups) remove(uint64)            {}
func (h *hangups) close()                   {}
func manyPending(syscall.RawConn, int) bool { return true }
