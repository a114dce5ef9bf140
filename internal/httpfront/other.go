//go:build !linux

package httpfront

import "syscall"

// Elsewhere connections are read and written by the means of package net, and
// hold a byte while they are idle.

func readNow(int, []byte) (int, error)  { return 0, errNothingYet }
func bytesPending(syscall.RawConn) bool { return true }
func silent(int) bool                   { return true }

// hangups notices clients that go while their request waits; here it does not.
type hangups struct{}

func openHangups() (*hangups, error)        { return nil, nil }
func (h *hangups) add(*conn) (key uint64)   { return 0 }
func (h *hangups) remove(uint64)            {}
func (h *hangups) close()                   {}
func manyPending(syscall.RawConn, int) bool { return true }
