//go:build !linux

package generator

import "time"

// alarm wakes a goroutine.
type alarm struct{ timer *time.Timer }

func newAlarm() (*alarm, error) { return &alarm{time.NewTimer(time.Hour)}, nil }

func (a *alarm) set(d time.Duration) { a.timer.Reset(d) }

func (a *alarm) wait() { <-a.timer.C }

func (a *alarm) close() { a.timer.Stop() }
