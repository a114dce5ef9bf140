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
// has never served: it is dormant. When there is something to do another goroutine takes the
// connection over, until it is dormant again.

const (
	// newborn is the age before which no connection goes dormant: many end after one request.
	newborn = 100 * time.Millisecond
	// dormantAfter is for how long a busy connection must be silent before it goes dormant.
	dormantAfter = 10 * time.Second
)

// goDormant reports whether the connection goes dormant, as it must then do. It is called
// when nothing is left to be read.
func (c *conn) goDormant(now int64) bool {
	c.dormant = now >= c.dormantFrom && (c.lately < busyAfter || now-c.answered >= int64(dormantAfter))
	return c.dormant
}

// nextDormant returns when to look again whether the connection may go dormant.
func (c *conn) nextDormant(now int64) int64 {
	switch {
	case c.dormant:
		return math.MaxInt64
	case now < c.dormantFrom:
		return c.dormantFrom
	default:
		return now + int64(dormantAfter)
	}
}

// stayDormant is the goroutine of a dormant connection.
func (c *conn) stayDormant() {
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
	c.dormant = false
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
