package httpfront

import (
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/bufpool"
)

// body is the body of the present request.
type body struct {
	held     int    // how many of its bytes lie in the reader until the answer; then buffer is nil
	buffer   []byte // where it lies otherwise
	reserved int64  // what it has taken from the budget, at least its length if it is kept
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
)

// receiveBody waits for the body of the request, drops it if the request needs
// none, and otherwise notes it. If it would have to wait and may not,
// it returns errNothingYet.
func (x *Exchange) receiveBody() (*Problem, error) {
	c, n, keep := x.conn, x.length, x.wanted.Keep
	if x.wanted.Stream {
		return x.receiveAhead()
	}
	if n == 0 {
		return nil, nil
	}
	inReader := n > 0 && n <= x.reader.Buffered()
	if !inReader && c.fd >= 0 {
		return nil, errNothingYet
	}
	// What cannot find room is told so before its client sends it.
	if keep && (inReader && !x.reserve(int64(n)) || int64(n) > c.front.budget.left.Load()+x.reserved) {
		return x.call.NoRoom(), nil
	}
	if inReader {
		x.hold(n)
		return nil, nil
	}
	if x.expects && x.reader.Buffered() == 0 {
		x.out = append(x.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
	}
	x.flush()
	if c.broken != nil {
		return nil, c.broken
	}
	x.startClock()
	var err error
	switch {
	case n == chunked:
		err = x.takeChunks(keep)
	case keep && n <= x.reader.Size():
		if _, err = x.reader.Peek(n); err == nil && !x.reserve(int64(n)) {
			err = errNoRoom
		}
		if err == nil {
			x.hold(n)
		}
	default:
		err = x.take(n, n, firstRoom, keep)
	}
	if errors.Is(err, errNoRoom) {
		return x.call.NoRoom(), nil
	}
	return nil, err
}

// hold leaves the body in the reader, where n bytes of it are.
func (x *Exchange) hold(n int) {
	x.held = n
	if x.wanted.Keep {
		x.Body, _ = x.reader.Peek(n)
	}
}

// takeChunks receives a chunked body and its trailers.
func (x *Exchange) takeChunks(keep bool) error {
	// What never has room is not too large if a value may be so long.
	most, beyond := x.wanted.Most, errTooLarge
	if budget := x.conn.front.limits.Load().MaxBodyBytes; keep && budget < int64(most) {
		most, beyond = int(budget), errNoRoom
	}
	var k chunks
	for all := 0; ; {
		n, err := k.next(x.reader)
		if err != nil {
			return err
		}
		if n == 0 {
			return x.takeTrailers()
		}
		if n > x.wanted.Most-all {
			return errTooLarge
		}
		if n > most-all {
			return beyond
		}
		all += n
		if err := x.take(n, most, firstChunkRoom, keep); err != nil {
			return err
		}
	}
}

// take receives the next n bytes of a body that has most bytes at the most, and drops
// them, or keeps them in a buffer that begins with so much room.
func (x *Exchange) take(n, most, first int, keep bool) error {
	if !keep {
		_, err := x.reader.Discard(n)
		return err
	}
	b := &x.body
	for n > 0 {
		if int64(len(x.Body)) == b.reserved {
			if _, err := x.reader.Peek(1); err != nil { // nothing is reserved for what does not come
				return err
			}
			if !x.growBody(min(most, max(first, 2*len(x.Body)))) {
				return errNoRoom
			}
		}
		have := len(x.Body)
		m, err := x.reader.Read(b.buffer[have:min(int(b.reserved), have+n)])
		x.Body = b.buffer[:have+m]
		n -= m
		if err != nil {
			return err
		}
	}
	return nil
}

// growBody gives the body room for size bytes, and reports whether they were left.
func (x *Exchange) growBody(size int) bool {
	b := &x.body
	if !x.reserve(int64(size) - b.reserved) {
		return false
	}
	larger := append(bufpool.Get(size), x.Body...)
	bufpool.Put(b.buffer)
	b.buffer = larger[:cap(larger)]
	x.Body = larger
	return true
}

// takeTrailers takes the lines behind the last chunk and drops them. They obey the rules
// of the head.
func (x *Exchange) takeTrailers() error {
	if b, err := x.reader.Peek(len(lineEnd)); err != nil || string(b) == lineEnd {
		_, _ = x.reader.Discard(len(b))
		return err
	}
	if err := x.awaitLines(); err != nil {
		return err
	}
	lines, _ := x.reader.Peek(x.reader.Buffered())
	all := lines
	for len(lines) > 0 {
		line, _, rest, wrong := cutLine(lines)
		if wrong != "" {
			return errors.New(wrong)
		}
		if lines = rest; len(line) == 0 {
			break
		}
		if x.wanted.Stream {
			x.stream.trailers = append(x.stream.trailers, all[len(all)-len(rest)-len(line)-len(lineEnd):len(all)-len(rest)]...)
		}
	}
	var fields fasthttp.RequestHeader // names and values are checked by whoever checks the head's
	return fields.ReadTrailer(x.reader)
}

// Reserve takes n bytes from the budget of bodies, for what a handler makes of a body,
// until the request is answered. It reports whether they were left.
func (x *Exchange) Reserve(n int64) bool {
	if over := x.reserved + n - x.conn.front.limits.Load().MaxBodyBytes; over > 0 { // for what its buffer has to spare
		x.reserved -= over
		x.conn.front.budget.give(over)
	}
	return x.reserve(n)
}

func (x *Exchange) reserve(n int64) bool {
	if !x.conn.front.budget.take(n) {
		return false
	}
	x.reserved += n
	return true
}

// dropBody is called when the request is answered.
func (x *Exchange) dropBody() {
	b := &x.body
	if b.held > 0 {
		_, _ = x.reader.Discard(b.held) // they are there
	}
	if b.reserved > 0 {
		x.conn.front.budget.give(b.reserved)
	}
	bufpool.Put(b.buffer)
	*b = body{}
	x.Body = nil
}
