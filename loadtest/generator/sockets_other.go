//go:build !linux

package generator

import "errors"

// hasEpoll reports whether the epoll engine is there.
const hasEpoll = false

func newSockets(*loop, *plan) (transport, error) {
	return nil, errors.New("the epoll engine is on Linux alone")
}
