//go:build !linux

package generator

import (
	"crypto/tls"
	"errors"
)

// hasEpoll reports whether the epoll engine is there.
const hasEpoll = false

func newSockets(*loop, *plan, *tls.Config) (transport, error) {
	return nil, errors.New("the epoll engine is on Linux alone")
}
