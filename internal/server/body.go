package server

import (
	"errors"
	"io"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/strategies"
)

// body is the body of the present request.
type body struct {
	value    []byte
	held     int    // how many of its bytes lie in the reader until the answer
	reserved int64  // what it has taken from the budget
	buffer   []byte // where it lies, if it is neither in the reader nor in chunks
	chunked  bool   // it lies in the exchange's chunks
}

// receive waits for the body of the request, drops it if the request needs
// none, and otherwise notes it in c.body. If it would have to wait and may not,
// it returns errNothingYet.
func (c *conn) receive() (*problem, error) {
	q := &c.req
	n := q.bodyLength
	// A chunked body does not say how much room it needs, so it takes as much as
	// it may ever have.
	most := int(min(int64(c.mostBody()), c.server.opts.MaxBodyBytes))
	needed := q.method == fasthttp.MethodPut || q.isBatch
	inReader := n >= 0 && n <= c.reader.Buffered()
	if !inReader && c.fd >= 0 {
		return nil, errNothingYet
	}
	switch {
	case n == 0:
		return nil, nil
	case n == chunked:
		if !c.reserve(int64(most)) {
			return c.noRoom(), nil
		}
	case needed:
		if !c.reserve(int64(n)) {
			return c.noRoom(), nil
		}
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
	if n == chunked {
		err := c.receiveChunks(most)
		if errors.Is(err, fasthttp.ErrBodyTooLarge) && most < c.mostBody() {
			return c.noRoom(), nil
		}
		return nil, err
	}
	switch {
	case !needed:
		_, err := c.reader.Discard(n)
		return nil, err
	case n <= c.reader.Size():
		value, err := c.reader.Peek(n)
		if err != nil {
			return nil, err
		}
		c.body.value, c.body.held = value, n
		return nil, nil
	}
	c.body.buffer = bufpool.Get(n)
	c.body.value = c.body.buffer[:n]
	_, err := io.ReadFull(c.reader, c.body.value)
	return nil, err
}

func (c *conn) receiveChunks(most int) error {
	r := &c.x.chunks
	c.body.chunked = true
	c.keepSmallChunks() // what the parser has pooled may be of any size
	if err := r.ReadBody(c.reader, -1, most); err != nil {
		return err
	}
	if err := r.Header.ReadTrailer(c.reader); err != nil {
		return err
	}
	if r.Header.Len() > keptLines { // trailers
		r.Header = fasthttp.RequestHeader{}
	}
	c.body.value = r.Body()
	if rest := most - cap(c.body.value); rest > 0 {
		c.server.budget.give(int64(rest))
		c.body.reserved -= int64(rest)
	}
	return nil
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
	if b.chunked {
		c.keepSmallChunks()
		c.x.chunks.Reset() // pools what was kept
	}
	*b = body{}
}

// keepSmallChunks leaves the parser of chunked bodies its buffer if that is
// small. One that is large would be held by the next body, however short.
func (c *conn) keepSmallChunks() {
	r := &c.x.chunks
	b := r.SwapBody(nil)
	if cap(b) <= smallBuffer {
		r.SwapBody(b[:0])
		return
	}
	bufpool.Put(b)
}
