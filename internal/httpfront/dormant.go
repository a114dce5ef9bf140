package httpfront

import (
	"errors"
	"math"
	"os"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
)

// To serve a request takes a stack of 4 KiB or more, which a goroutine keeps while it
// lives. To wait takes 2 KiB. So a connection that is not busy waits on a goroutine that
// has never served: it rests. When there is something to do another goroutine takes the
// connection over, until it rests again.

const (
	// newborn is the age before which no connection rests: many end after one request.
	newborn = 100 * time.Millisecond
	// restAfter is for how long a busy connection must be silent before it rests.
	restAfter = 10 * time.Second
)

// mayRest reports whether the connection shall rest, as it must then do. It is called
// when nothing is left to be read.
func (c *conn) mayRest(now int64) bool {
	c.resting = now >= c.restFrom && (c.lately < busyAfter || now-c.answered >= int64(restAfter))
	return c.resting
}

// nextRest returns when to look again whether the connection may rest.
func (c *conn) nextRest(now int64) int64 {
	switch {
	case c.resting:
		return math.MaxInt64
	case now < c.restFrom:
		return c.restFrom
	default:
		return now + int64(restAfter)
	}
}

// rest is the goroutine of a connection that rests.
func (c *conn) rest() {
	for {
		c.looked = false
		err := c.raw.Read(c.look)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.rearm() {
			c.end()
			return
		}
	}
	c.resting = false
	go c.attend()
}

// look is called by Go's poller in place of tryRead, and returns true when there is
// something to do. Once it has found nothing, it is called again only for that.
func (c *conn) look(fd uintptr) bool {
	if c.looked {
		return true
	}
	c.looked = true
	parting := c.front.parting.Load() // see tryRead
	return parting || !socket.Silent(int(fd))
}
