package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal tells whether a person is looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// What terminals are told: to cut a line off at their edge, to go on with it in the next one, and
// to erase what follows on a line.
const cutOff, goOn, erase = "\x1b[?7l", "\x1b[?7h", "\x1b[K"

// status shows a line in place of the last one. It does nothing if progress is
// not shown.
func (s *session) status(format string, args ...any) {
	if s.live {
		_, _ = fmt.Fprint(s.err, cutOff, "\r", fmt.Sprintf(format, args...), erase, goOn)
	}
}

// statusDone takes the line away.
func (s *session) statusDone() { s.status("%s", "\r") }
