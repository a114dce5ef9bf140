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

// receiveBody waits for the body of the request, or as much of it as is wanted before Serve,
// and drops it if the request needs none. If it would have to wait and may not, it returns
// errNothingYet.
func (x *Exchange) receiveBody() (*Problem, error) {
	c, n, w := x.conn, x.length, &x.wanted
	if n == 0 && !w.Stream {
		return nil, nil
	}
	ahead, keep := w.Most, w.Keep || w.Stream
	if w.Stream {
		ahead = w.Ahead
	}
	inReader := n >= 0 && n <= min(ahead, x.reader.Buffered())
	if c.fd >= 0 && (!inReader || w.Takes) {
		return nil, errNothingYet
	}
	x.stream.begin(n)
	if n == 0 || w.Stream && x.expects {
		return nil, nil
	}
	// What the budget does not hold is refused before its client sends it.
	if keep && (inReader && !x.reserve(int64(n)) || int64(min(n, ahead)) > c.front.budget.left.Load()+x.reserved) {
		return x.call.NoRoom(), nil
	}
	if inReader {
		x.hold(n, keep)
		return nil, nil
	}
	x.proceed()
	if c.broken != nil {
		return nil, c.broken
	}
	x.startClock()
	err := x.takeAhead(ahead, keep)
	if errors.Is(err, errNoRoom) {
		return x.call.NoRoom(), nil
	}
	return nil, err
}

// proceed sends 100 Continue to a client that waits for it, and writes the answers before.
func (x *Exchange) proceed() {
	if x.expects && x.reader.Buffered() == 0 {
		x.out = append(x.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
	}
	x.flush()
}

// hold leaves the body in the reader, where n bytes of it are: all.
func (x *Exchange) hold(n int, keep bool) {
	x.held = n
	if keep {
		x.Body, _ = x.reader.Peek(n)
	}
	x.took(n)
}

// takeAhead receives so much of the body, or all of one that is not streamed.
func (x *Exchange) takeAhead(ahead int, keep bool) error {
	s, most, first := &x.stream, ahead, firstChunkRoom
	if s.left > 0 { // its length is known
		most, first = min(ahead, s.left), firstRoom
	}
	if x.wanted.Keep && s.left == most && most <= x.reader.Size() {
		_, err := x.reader.Peek(most)
		switch {
		case err != nil:
			return err
		case !x.reserve(int64(most)):
			return errNoRoom
		}
		x.hold(most, true)
		return nil
	}
	if keep { // what never has room is not too large if a value may be so long
		most = int(min(int64(most), x.conn.front.limits.Load().MaxBodyBytes))
	}
	for room := ahead; room > 0 || !x.wanted.Stream; {
		if err := x.nextChunk(); err != nil || s.ended.Load() {
			return err
		}
		n := min(s.left, room)
		if s.left > room && !x.wanted.Stream {
			return errTooLarge
		}
		if keep && n > most-len(x.Body) {
			return errNoRoom
		}
		if err := x.take(n, most, first, keep); err != nil {
			return err
		}
		x.took(n)
		room -= n
	}
	return nil
}

// take receives the next n bytes of a body of which most bytes are wanted at the most, and
// drops them, or keeps them in a buffer that begins with so much room.
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

// takeTrailers takes the lines behind the last chunk. They obey the rules of the head.
func (x *Exchange) takeTrailers() error {
	if b, err := x.reader.Peek(len(lineEnd)); err != nil || string(b) == lineEnd {
		_, _ = x.reader.Discard(len(b))
		return err
	}
	if err := x.awaitLines(); err != nil {
		return err
	}
	lines, _ := x.reader.Peek(x.reader.Buffered())
	for left := lines; ; {
		line, _, rest, wrong := cutLine(left)
		if wrong != "" {
			return errors.New(wrong)
		}
		if len(line) == 0 {
			lines = lines[:len(lines)-len(left)]
			break
		}
		left = rest
	}
	if x.wanted.Stream {
		x.stream.trailers = append(x.stream.trailers, lines...)
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
