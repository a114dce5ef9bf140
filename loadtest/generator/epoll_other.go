//go:build !linux

package generator

import (
	"errors"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// hasEpoll tells whether the epoll engine is there.
const hasEpoll = false

func newEpoll(*workload.Options, *plan, func() time.Duration) (engine, beside, error) {
	return nil, nil, errors.New("the epoll engine is on Linux alone")
}
