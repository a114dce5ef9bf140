//go:build !linux

package server

import (
	"net"
	"syscall"
)

// Elsewhere connections are read and written by the means of package net, and
// hold a byte while they are idle.

func rawConn(net.Conn) syscall.RawConn  { return nil }
func readNow(int, []byte) (int, error)  { return 0, errNothingYet }
func writeNow(int, []byte) (int, error) { return 0, errNoRoom }
func bytesPending(syscall.RawConn) bool { return true }
func bytesUnsent(syscall.RawConn) int   { return 0 }
