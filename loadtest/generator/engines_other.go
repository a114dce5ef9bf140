//go:build !linux

package generator

import (
	"crypto/tls"
	"errors"
	"time"
)

// hasEpoll reports whether the epoll engine is there.
const hasEpoll = false

func newSockets(*loop, *plan, *tls.Config) (transport, error) {
	return nil, errors.New("the epoll engine is on Linux alone")
}

// alarm wakes a goroutine.
type alarm struct{ timer *time.Timer }

func newAlarm() (*alarm, error) { return &alarm{time.NewTimer(time.Hour)}, nil }

func (a *alarm) set(d time.Duration) { a.timer.Reset(d) }

func (a *alarm) wait() { <-a.timer.C }

func (a *alarm) close() { a.timer.Stop() }
