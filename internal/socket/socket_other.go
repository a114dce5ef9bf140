//go:build !linux

package socket

import (
	"net"
	"syscall"
)

// Elsewhere connections are read and written by the means of package net.

// Raw returns nil.
func Raw(net.Conn) syscall.RawConn { return nil }

// ReadNow reads nothing.
func ReadNow(int, []byte) (int, error) { return 0, ErrNoBytes }

// WriteNow writes nothing.
func WriteNow(int, []byte) (int, error) { return 0, ErrNoRoom }

// Unsent is not known.
func Unsent(syscall.RawConn) int { return 0 }

// Bound leaves it to the system how much a socket holds.
func Bound(_, _ string, _ syscall.RawConn) error { return nil }

// Silent is not known: it is taken to be so.
func Silent(int) bool { return true }

// Pending is not known: it is taken to be so.
func Pending(int) bool { return true }
