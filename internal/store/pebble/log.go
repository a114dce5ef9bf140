package pebble

import (
	"context"
	"fmt"
	"log/slog"
)

// logger sends Pebble's log lines to slog. What Pebble calls information is
// detail to an operator.
type logger struct {
	log *slog.Logger
	// fatal takes what Pebble cannot go on from. Pebble expects that it does
	// not return; here it does, and the instance is not written to any more.
	fatal func(error)
}

func (l logger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(fmt.Sprintf(format, args...))
	}
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Warn(fmt.Sprintf(format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	l.fatal(fmt.Errorf(format, args...))
}
