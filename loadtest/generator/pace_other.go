//go:build !linux

package generator

import "time"

// pacer waits.
type pacer struct{}

func newPacer() *pacer { return new(pacer) }

func (*pacer) wait(d time.Duration) { time.Sleep(d) }

func (*pacer) close() {}
