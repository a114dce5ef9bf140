package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"spillway/loadtest/workload"
)

func TestProgressLine_FitsItsWidth(t *testing.T) {
	t.Parallel()
	p := workload.Progress{
		Elapsed: 4 * time.Second, Left: 5500 * time.Millisecond, Done: 0.42, Requests: 80_000, Errors: 3, Rate: 19_987.4,
		P50: 412 * time.Microsecond, P99: 2345 * time.Microsecond,
	}
	for width, want := range map[int]string{
		100: "[########............]   42%  19987/s  3 errors  p50 412us  p99 2.3ms  0:06 left",
		78:  " 42%  19987/s  3 errors  p50 412us  p99 2.3ms  0:06 left",
		50:  " 42%  19987/s  3 errors  p99 2.3ms  0:06 left",
		40:  " 42%  19987/s  3 errors  0:06 left",
		30:  " 42%  19987/s  0:06 left",
		20:  " 42%",
		3:   " 42",
		0:   "",
		-1:  "",
	} {
		require.Equal(t, want, renderProgress(p, width), "width %d", width)
	}
	for width := range 120 {
		require.LessOrEqual(t, utf8.RuneCountInString(renderProgress(p, width)), width)
	}
}

func TestProgressLine_WritesDurationsInFewDigits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0us", 999 * time.Microsecond: "999us", time.Millisecond: "1.0ms", 9900 * time.Microsecond: "9.9ms",
		10 * time.Millisecond: "10ms", 999 * time.Millisecond: "999ms", time.Second: "1.0s", 61 * time.Second: "1:01",
		3 * time.Hour: "3:00:00",
	} {
		require.Equal(t, want, shortDuration(d))
	}
	require.Equal(t, "0:00", clock(0))
	require.Equal(t, "0:01", clock(time.Millisecond))
	require.Equal(t, "26:01:40", clock(93_700*time.Second))
}

func TestProgressLine_WritesOverItself(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	width := 25
	line := newProgressLine(&out, func() int { return width })
	line.done()
	require.Empty(t, out.String(), "nothing to end")
	line.show(workload.Progress{Rate: 123, Left: time.Second})
	width = 10
	line.show(workload.Progress{Done: 1})
	line.done()
	line.done()
	require.Equal(t, "\r  0%  123/s  0:01 left\r100%"+strings.Repeat(" ", 18)+"\n", out.String())
}
