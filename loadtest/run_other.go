//go:build !linux

package loadtest

import (
	"context"
	"errors"
)

// Run is there on Linux only: the generator is built on epoll.
func Run(context.Context, Options) (*Result, error) {
	return nil, errors.New("the load generator needs Linux")
}

func checkDescriptors(int) error { return nil }
