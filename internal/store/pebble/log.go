package pebble

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
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

// rateLimiter holds back lines of a kind that may come with every read or attempt. It
// lets one through in a second.
type rateLimiter struct {
	mu   sync.Mutex
	next time.Time
	held int
}

// allow reports whether a line may be written now, and how many have been held back
// since the last one.
func (s *rateLimiter) allow(now time.Time) (held int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		s.held++
		return 0, false
	}
	held, s.held, s.next = s.held, 0, now.Add(time.Second)
	return held, true
}

// lines are the kinds of lines that may be many.
type lines struct {
	log                       *slog.Logger
	corrupt, background, read rateLimiter
}

// corruption reports a file that is not what was written to it.
func (l *lines) corruption(path string, err error) {
	if held, ok := l.corrupt.allow(time.Now()); ok {
		l.log.Error("the store found corrupt data", "path", path, "err", err.Error(), "suppressed", held)
	}
}

// backgroundError reports a flush or compaction that has failed.
func (l *lines) backgroundError(err error) {
	if held, ok := l.background.allow(time.Now()); ok {
		l.log.Warn("background work of the store failed, it is tried again", "err", err.Error(), "suppressed", held)
	}
}

// readError reports an error of the disk. Of corruption Pebble tells itself.
func (l *lines) readError(err error) {
	if pebble.IsCorruptionError(err) {
		return
	}
	if held, ok := l.read.allow(time.Now()); ok {
		l.log.Error("the store cannot read", "err", err.Error(), "suppressed", held)
	}
}
