package server

import (
	"time"

	"github.com/spillway-go/spillway/internal/bufpool"
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
	if s := c.server; s.closed.Load() {
		// The deadline that Close has set may have passed, and past its deadline
		// not even a socket with room takes anything.
		_ = c.socket.SetWriteDeadline(time.Now().Add(min(lastWrites, s.opts.WriteTimeout)))
	}
	c.inTurn = len(b) > longPiece
	for len(b) > 0 && c.broken == nil {
		piece := b[:min(len(b), longPiece)]
		b = b[len(piece):]
		c.waits(false)
		_, c.broken = c.socket.Write(piece)
		c.waits(true)
	}
	c.inTurn = false
	c.ending = c.ending || c.broken != nil
}

// waits gives the turn of a long answer to others while its client takes its time.
func (c *conn) waits(begins bool) {
	switch {
	case !c.inTurn:
	case begins:
		c.server.turns.give()
	default:
		c.server.turns.take()
	}
}
