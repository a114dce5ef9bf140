package httpfront

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
)

// A body that is streamed begins to arrive before the request is served, so that a client
// that is slow to send a small one holds nothing that others need. The rest is read by the
// handler, by one goroutine, while another may write the answer.

// stream is the body of the present request, as it is read. It belongs to the goroutine that
// reads it.
type stream struct {
	chunks   Chunks
	left     int         // of the present chunk, or of the body if its length is known
	ended    atomic.Bool // all of it has been read
	stopped  atomic.Bool // nobody wants the rest
	trailers []byte      // behind it, with the end of each line
	reading  bool        // by ReadBody

	pace socket.Pace
}

// begin makes s that of another request.
func (s *stream) begin(length int) {
	s.chunks, s.left, s.trailers, s.reading = Chunks{}, max(0, length), s.trailers[:0], false
	s.pace = socket.Pace{}
	s.ended.Store(length == 0)
	s.stopped.Store(false)
}

// took notes that the next n bytes of a body are read.
func (x *Exchange) took(n int) {
	s := &x.stream
	if s.left -= n; s.left == 0 && x.length >= 0 {
		s.ended.Store(true)
	}
}

// nextChunk begins the next chunk if the present one has been read.
func (x *Exchange) nextChunk() error {
	s := &x.stream
	if s.left > 0 || s.ended.Load() {
		return nil
	}
	size, err := s.chunks.Next(x.reader)
	if err != nil {
		return err
	}
	if s.left = size; size > 0 {
		return nil
	}
	if err = x.takeTrailers(); err == nil {
		s.ended.Store(true)
	}
	return err
}

// Streams reports whether there is more of the body than was received ahead.
func (x *Exchange) Streams() bool { return !x.stream.ended.Load() }

// Trailers are the lines behind a body that is streamed and has been read, each with its end.
func (x *Exchange) Trailers() []byte { return x.stream.trailers }

// ContentLength is the length of the body that the head of the request states, -1 if it
// comes in chunks. Framed reports whether the head announces a body at all.
func (x *Exchange) ContentLength() int { return x.length }

// Framed reports whether the head says how long the body is, be it 0.
func (x *Exchange) Framed() bool { return x.contentLength != nil || x.transferEncoding != nil }

// Continue sends 100 Continue to a client that waits for it.
func (x *Exchange) Continue() {
	if x.expects && x.Streams() {
		x.proceed()
	}
}

// ReadBody reads more of a body that is streamed, or returns io.EOF at its end. A client
// that sends nothing for the read time-out, or less than 1 KiB a second over 10 s of waiting
// for it, is ErrSlow; any other error is its, too. One goroutine may call it while another
// uses the rest of the exchange.
func (x *Exchange) ReadBody(p []byte) (n int, err error) {
	s := &x.stream
	s.reading = true
	if err = x.nextChunk(); err == nil && !s.ended.Load() {
		n, err = x.reader.Read(p[:min(len(p), s.left)])
		x.took(n)
	}
	if err == nil && s.ended.Load() {
		x.bodyRead()
		if n == 0 {
			return 0, io.EOF
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// ErrSlow is returned for a client that is too slow.
var ErrSlow = errors.New("the client is too slow")

// StopBody has ReadBody return an error, now and later. It is called by any goroutine while another
// reads, or is about to, which must be waited for.
func (x *Exchange) StopBody() {
	x.stream.stopped.Store(true)
	x.conn.interrupt(time.Time{})
}

// readPaced reads for a body that is streamed.
func (c *conn) readPaced(p []byte) (int, error) {
	s, begin := &c.x.stream, c.now()
	c.until = begin + int64(c.front.limits.Load().ReadTimeout)
	c.armPaced(begin)
	n, err := c.read(p, c.ringsPaced)
	c.armed = 0
	if s.pace.TooSlow(time.Duration(c.now()-begin), n) && err == nil {
		err = ErrSlow
		c.readErr = err
	}
	return n, err
}

// ringsPaced is called when the alarm has rung, and reports whether there is time left.
func (c *conn) ringsPaced() bool {
	now := c.now()
	if now >= c.until || c.front.closed.Load() || c.x.stream.stopped.Load() {
		return false
	}
	c.armPaced(now)
	return true
}

// armPaced sets the alarm. What ends the reading is looked up after that: an interruption before would be
// overridden.
func (c *conn) armPaced(now int64) {
	c.setAlarm(now, c.until)
	if c.front.closed.Load() || c.x.stream.stopped.Load() {
		c.interrupt(time.Time{})
	}
}
