package httpfront

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Limits change between two requests: connections beyond the new one stay, bodies that are held
// still count, and the time-out of what comes is the new one.
func TestFront_SetLimits(t *testing.T) {
	t.Parallel()
	f := serve(t)
	first, second := f.dial(), f.dial()
	first.requireOpen()
	second.requireOpen()
	l := f.opts.limits()
	l.MaxConnections = 1
	f.SetLimits(l)
	first.requireOpen()
	second.requireOpen()
	late := f.dial()
	require.Equal(t, 503, late.do("GET", "/"), "one too many")
	l.MaxConnections = 3
	f.SetLimits(l)
	third := f.dial()
	third.requireOpen()

	// A body is held, and the budget shrinks below it.
	const size = 20 << 10
	body := strings.Repeat("v", size)
	first.send("PUT /run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n" + body + "\r\n0\r\n\r\n")
	held := <-f.held
	require.GreaterOrEqual(t, f.Bodies(), int64(size))
	l.MaxBodyBytes = 10 << 10
	f.SetLimits(l)
	require.GreaterOrEqual(t, f.Bodies(), int64(size), "it counts as before")
	second.send("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1400\r\n" + body[:5<<10] + "\r\n0\r\n\r\n")
	resp, _ := second.read("PUT")
	require.Equal(t, 503, resp.StatusCode, "no room")
	held.Done()
	resp, _ = first.read("PUT")
	require.Equal(t, 200, resp.StatusCode)
	eventually(t, func() bool { return f.Bodies() == 0 }, "all is given back")

	l.IdleTimeout = 10 * time.Millisecond
	f.SetLimits(l)
	third.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	third.read("GET")
	third.requireClosed()
}
