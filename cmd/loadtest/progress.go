package main

import (
	"fmt"
	"io"
	"os"

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

// eraseLine takes away what follows on a line.
const eraseLine = "\x1b[K"

// status shows a line in place of the last one. It does nothing if progress is
// not shown.
func (s *session) status(format string, args ...any) {
	if !s.live {
		return
	}
	line := []rune(fmt.Sprintf(format, args...))
	line = line[:min(len(line), s.width()-1)]
	_, _ = fmt.Fprint(s.err, "\r", string(line), eraseLine)
}

// statusDone takes the line away.
func (s *session) statusDone() {
	if s.live {
		_, _ = fmt.Fprint(s.err, "\r", eraseLine)
	}
}

// progress shows the state of a run.
func (s *session) progress(p workload.Progress) {
	s.status("%3.0f%%  %.0f/s  %d errors", 100*p.Done, p.Rate, p.Errors)
}
