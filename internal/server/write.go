package server

import (
	"errors"
	"os"
	"time"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/socket"
)

// flush writes the answers that wait.
func (c *conn) flush() {
	x := c.x
	if len(x.out) > x.sent {
		c.write(x.out[x.sent:])
	}
	x.sent = 0
	if cap(x.out) <= keptBuffer {
		x.out = x.out[:0]
		return
	}
	bufpool.Put(x.out)
	x.out = x.first[:0]
}

// flushTo writes the answers that wait, which end at out[base:]. What is behind
// belongs to a task that is away.
func (c *conn) flushTo(base int) {
	x := c.x
	if base > x.sent {
		c.write(x.out[x.sent:base])
		x.sent = base
	}
}

// write writes b, and notes in c.broken if that fails: then nothing is written
// any more. The client may take its time as long as it takes something within
// each write time-out.
func (c *conn) write(b []byte) {
	if c.broken != nil {
		return
	}
	if c.raw == nil {
		c.broken = c.writeLayered(b)
	} else {
		c.broken = c.writeRaw(b)
	}
	if c.broken != nil {
		c.ending = true
	}
}

// writeRaw writes in one call if the socket has room, and waits otherwise.
func (c *conn) writeRaw(b []byte) error {
	c.outgoing, c.mayWait, c.writeErr = b, false, nil
	defer func() { c.outgoing = nil }()
	if c.server.closed.Load() {
		// The deadline that Close has set may have passed, and past its deadline
		// not even a socket with room takes anything.
		c.armWrite()
	}
	err := c.raw.Write(c.writable)
	if err == nil && c.writeErr == nil && len(c.outgoing) > 0 {
		defer c.socket.SetWriteDeadline(time.Time{}) //nolint:errcheck // a closed socket fails the next write
		c.mayWait = true
		for err == nil && c.writeErr == nil && len(c.outgoing) > 0 {
			c.armWrite()
			before := socket.Unsent(c.raw)
			err = c.raw.Write(c.writable)
			// The socket reports room only when much of it is free. If a slow
			// client has taken something meanwhile, its time starts anew.
			if errors.Is(err, os.ErrDeadlineExceeded) && !c.server.closed.Load() && socket.Unsent(c.raw) < before {
				err = nil
			}
		}
	}
	if err != nil {
		return err
	}
	return c.writeErr
}

// tryWrite writes what the socket has room for. It returns false to be called
// again when there is more room, if that is wanted and there was none.
func (c *conn) tryWrite(fd uintptr) bool {
	n, err := socket.WriteNow(int(fd), c.outgoing)
	c.outgoing = c.outgoing[n:]
	if errors.Is(err, socket.ErrNoRoom) {
		return !c.mayWait
	}
	c.writeErr = err
	return true
}

// writeLayered writes through layers, the lowest of which bounds the time without
// progress.
func (c *conn) writeLayered(b []byte) error {
	if c.server.closed.Load() {
		c.armWrite()
	}
	_, err := c.socket.Write(b)
	return err
}

// armWrite gives the client its time to take something. Once the server closes,
// that is short.
func (c *conn) armWrite() {
	now := time.Now()
	_ = c.socket.SetWriteDeadline(now.Add(c.server.opts.WriteTimeout))
	if c.server.closed.Load() {
		_ = c.socket.SetWriteDeadline(now.Add(min(lastWrites, c.server.opts.WriteTimeout)))
	}
}
