package httpfront

import (
	"bufio"
	"time"

	"github.com/valyala/fasthttp"
)

// maxRefusals is how many connections beyond the limit are refused in the way
// that lets the client see why, at once. The others are refused in a way that
// costs nothing, and that may show as a reset.
const maxRefusals = 256

// The answers to a connection beyond a limit.
var (
	tooMany          = refusalFor("too many connections are open")
	tooManyOfAddress = refusalFor("too many connections are open from your address")
)

func refusalFor(detail string) *Problem {
	p := Problem{Status: fasthttp.StatusServiceUnavailable, Detail: detail, Lines: "Retry-After: 1\r\n"}
	return p.Ready()
}

// refuse is the goroutine of a connection beyond the limit. It waits a second
// at most for a request to answer, since some clients take an answer that comes
// before their request for an error. The request is not parsed.
func (c *conn) refuse(refusal *Problem) {
	defer c.front.refusals.Add(-1)
	defer c.close()
	arrival := c.now()
	if !c.handshake(lingerTime) {
		return
	}
	c.until = arrival + int64(lingerTime)
	c.arm()
	_, _ = bufio.NewReaderSize(c, 16).Peek(1)
	_ = c.socket.SetWriteDeadline(time.Now().Add(lingerTime))
	if _, c.broken = c.socket.Write(refusal.append(nil, &c.front.clock, "", true, false)); c.broken != nil {
		return
	}
	c.ending, c.lingering = true, true
	c.front.opts.Handler.Refused(arrival)
}

// refuseAtOnce refuses a connection on the goroutine that accepted it. What is
// written fits into the empty buffer of the socket. Under TLS there is nothing
// that could be written at once.
func (c *conn) refuseAtOnce(refusal *Problem) {
	if c.raw != nil {
		if _, err := c.socket.Write(refusal.append(nil, &c.front.clock, "", true, false)); err == nil {
			c.front.opts.Handler.Refused(c.now())
		}
	}
	_ = c.socket.Close()
}
