package server

import (
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/strategies"
)

// body is the body of the present request.
type body struct {
	value    []byte
	held     int    // how many of its bytes lie in the reader until the answer
	buffer   []byte // where it lies otherwise
	reserved int64  // what it has taken from the budget
}

// The room of a body that is not in the reader begins with so many bytes, and doubles
// when it is full: what a body takes up is at most twice what has arrived of it, however
// long its head says that it is.
const (
	firstRoom      = 16 << 10
	firstChunkRoom = 4 << 10
)

var (
	errTooLarge = errors.New("the body is too large")
	errNoRoom   = errors.New("no room for the body")
	errLong     = errors.New("the lines are too long")
)

// receive waits for the body of the request, drops it if the request needs
// none, and otherwise notes it in c.body. If it would have to wait and may not,
// it returns errNothingYet.
func (c *conn) receive() (*problem, error) {
	q := &c.req
	n := q.bodyLength
	needed := q.method == fasthttp.MethodPut || q.isBatch
	if n == 0 {
		return nil, nil
	}
	inReader := n > 0 && n <= c.reader.Buffered()
	if !inReader && c.fd >= 0 {
		return nil, errNothingYet
	}
	// What cannot find room is told so before its client sends it.
	if needed && (inReader && !c.reserve(int64(n)) || int64(n) > c.server.budget.left.Load()+c.body.reserved) {
		return c.noRoom(), nil
	}
	if inReader {
		c.body.value, _ = c.reader.Peek(n)
		c.body.held = n
		return nil, nil
	}
	if q.expects && c.reader.Buffered() == 0 {
		c.x.out = append(c.x.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
	}
	c.flush()
	if c.broken != nil {
		return nil, c.broken
	}
	c.startClock()
	var err error
	switch {
	case n == chunked:
		err = c.receiveChunks(needed)
	case needed && n <= c.reader.Size():
		if c.body.value, err = c.reader.Peek(n); err == nil {
			c.body.held = n
			if !c.reserve(int64(n)) {
				err = errNoRoom
			}
		}
	default:
		err = c.take(n, n, firstRoom, needed)
	}
	if errors.Is(err, errNoRoom) {
		return c.noRoom(), nil
	}
	return nil, err
}

// receiveChunks receives a chunked body and its trailers.
func (c *conn) receiveChunks(keep bool) error {
	// What never has room is not too large if a value may be so long.
	most, beyond := c.mostBody(), errTooLarge
	if budget := c.server.opts.MaxBodyBytes; keep && budget < int64(most) {
		most, beyond = int(budget), errNoRoom
	}
	var k chunks
	for all := 0; ; {
		n, err := k.next(c.reader)
		if err != nil {
			return err
		}
		if n == 0 {
			return c.takeTrailers()
		}
		if n > c.mostBody()-all {
			return errTooLarge
		}
		if n > most-all {
			return beyond
		}
		all += n
		if err := c.take(n, most, firstChunkRoom, keep); err != nil {
			return err
		}
	}
}

// take receives the next n bytes of a body that has most bytes at the most, and drops
// them, or keeps them in a buffer that begins with so much room.
func (c *conn) take(n, most, first int, keep bool) error {
	if !keep {
		_, err := c.reader.Discard(n)
		return err
	}
	b := &c.body
	for n > 0 {
		if int64(len(b.value)) == b.reserved {
			if _, err := c.reader.Peek(1); err != nil { // nothing is reserved for what does not come
				return err
			}
			if !c.growBody(min(most, max(first, 2*len(b.value)))) {
				return errNoRoom
			}
		}
		have := len(b.value)
		m, err := c.reader.Read(b.buffer[have:min(int(b.reserved), have+n)])
		b.value = b.buffer[:have+m]
		n -= m
		if err != nil {
			return err
		}
	}
	return nil
}

// growBody gives the body room for size bytes, and reports whether they were left.
func (c *conn) growBody(size int) bool {
	b := &c.body
	if !c.reserve(int64(size) - b.reserved) {
		return false
	}
	larger := append(bufpool.Get(size), b.value...)
	bufpool.Put(b.buffer)
	b.buffer = larger[:cap(larger)]
	b.value = larger
	return true
}

// takeTrailers takes the lines behind the last chunk and drops them. They obey the rules
// of the head.
func (c *conn) takeTrailers() error {
	if b, err := c.reader.Peek(len(lineEnd)); err != nil || string(b) == lineEnd {
		_, _ = c.reader.Discard(len(b))
		return err
	}
	if err := c.awaitLines(); err != nil {
		return err
	}
	lines, _ := c.reader.Peek(c.reader.Buffered())
	for len(lines) > 0 {
		line, _, rest, wrong := cutLine(lines)
		if wrong != "" {
			return errors.New(wrong)
		}
		if lines = rest; len(line) == 0 {
			break
		}
	}
	var fields fasthttp.RequestHeader // names and values are checked by whoever checks the head's
	return fields.ReadTrailer(c.reader)
}

// reserve takes n bytes from the budget, until the request is answered.
func (c *conn) reserve(n int64) bool {
	if !c.server.budget.take(n) {
		return false
	}
	c.body.reserved += n
	return true
}

// noRoom refuses a request whose body has no room in the budget.
func (c *conn) noRoom() *problem {
	bad := shedProblem(strategies.ReasonFull, retryAfter(c.server.opts.Dispatcher.DrainTime()))
	bad.detail = "the bodies of other requests leave no room for this one"
	bad.shed = true
	return bad
}

// dropBody is called when the request is answered.
func (c *conn) dropBody() {
	b := &c.body
	if b.held > 0 {
		_, _ = c.reader.Discard(b.held) // they are there
	}
	if b.reserved > 0 {
		c.server.budget.give(b.reserved)
	}
	bufpool.Put(b.buffer)
	*b = body{}
}
