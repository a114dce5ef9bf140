//go:build !linux

package generator

import (
	"context"
	"errors"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Run is there on Linux only: the generator is built on epoll.
func Run(context.Context, workload.Options) (*result.Result, error) {
	return nil, errors.New("the load generator needs Linux")
}

func checkDescriptors(int) error { return nil }
