package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"spillway/loadtest/workload"
)

// progressLine shows the progress of a run in one line of a terminal, which it
// writes over again and again. It is not safe for concurrent use.
type progressLine struct {
	w     io.Writer
	width func() int
	shown int // columns in use
}

// newProgressLine returns a line on w. Width returns the columns of the terminal;
// it is asked for each time, as people change windows.
func newProgressLine(w io.Writer, width func() int) *progressLine {
	return &progressLine{w: w, width: width}
}

// show shows p in the place of what was shown before.
func (l *progressLine) show(p workload.Progress) {
	// The last column stays free: writing there makes some terminals go on to the
	// next line.
	line := renderProgress(p, l.width()-1)
	columns := utf8.RuneCountInString(line)
	blank := strings.Repeat(" ", max(0, l.shown-columns))
	l.shown = columns
	_, _ = fmt.Fprint(l.w, "\r", line, blank)
}

// done ends the line, so that what is written next begins a new one.
func (l *progressLine) done() {
	if l.shown > 0 {
		_, _ = fmt.Fprintln(l.w)
		l.shown = 0
	}
}

// renderProgress returns the state of a run in at most width columns. What says
// least goes first where there is no room for all.
func renderProgress(p workload.Progress, width int) string {
	const bar = 20
	filled := min(max(int(p.Done*bar), 0), bar)
	parts := []struct {
		text string
		rank int // the higher, the sooner it goes
	}{
		{"[" + strings.Repeat("#", filled) + strings.Repeat(".", bar-filled) + "]", 5},
		{fmt.Sprintf("%3.0f%%", 100*p.Done), 0},
		{fmt.Sprintf("%.0f/s", p.Rate), 1},
		{fmt.Sprintf("%d errors", p.Errors), 2},
		{"p50 " + shortDuration(p.P50), 4},
		{"p99 " + shortDuration(p.P99), 3},
		{clock(p.Left) + " left", 1},
	}
	var line string
	for rank := 5; rank >= 0; rank-- {
		var kept []string
		for _, part := range parts {
			if part.rank <= rank {
				kept = append(kept, part.text)
			}
		}
		line = strings.Join(kept, "  ")
		if utf8.RuneCountInString(line) <= width {
			return line
		}
	}
	return string([]rune(line)[:max(0, min(width, utf8.RuneCountInString(line)))])
}

// shortDuration writes d in three digits or so.
func shortDuration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return clock(d)
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0fms", 1000*d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1fms", 1000*d.Seconds())
	default:
		return fmt.Sprintf("%dus", d.Microseconds())
	}
}

// clock writes d as minutes and seconds, with hours if it has any.
func clock(d time.Duration) string {
	s := int64((d + time.Second - 1) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
