package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// isTerminal tells whether a person is looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width returns how many columns the terminal has, 80 if it is none.
func (s *session) width() int {
	if f, ok := s.err.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

// status shows a line in place of the last one. It does nothing if progress is
// not shown.
func (s *session) status(format string, args ...any) {
	if !s.live {
		return
	}
	line := []rune(fmt.Sprintf(format, args...))
	room := s.width() - 1
	if len(line) > room {
		line = line[:room]
	}
	_, _ = fmt.Fprintf(s.err, "\r%s%s", string(line), strings.Repeat(" ", room-len(line)))
}

// statusDone takes the line away.
func (s *session) statusDone() {
	if s.live {
		_, _ = fmt.Fprintf(s.err, "\r%s\r", strings.Repeat(" ", s.width()-1))
	}
}

// progress shows the state of a run. What matters most comes first, as a narrow
// terminal cuts the rest off.
func (s *session) progress(p workload.Progress) {
	s.status("%3.0f%%  %v left  %.0f/s  %d errors  p99 %v  p50 %v", 100*p.Done, p.Left.Round(time.Second), p.Rate, p.Errors,
		p.P99.Round(10*time.Microsecond), p.P50.Round(10*time.Microsecond))
}
