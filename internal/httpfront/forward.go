package httpfront

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Answers whose heads are made elsewhere follow: a handler gives one by Forward, then
// WriteNow or Write as often as need be, and End, EndForward or Break.

// Unknown is the length of a body that does not say how long it is, and None that of an
// answer that has none by its status or its method.
const (
	Unknown = -1
	None    = -2
)

// Forwarded is the head of an answer that was made elsewhere.
type Forwarded struct {
	Status int
	Reason []byte
	// Lines are the lines of the head but for those of the framing, each with its CR LF.
	Lines []byte
	// Length is that of the body, Unknown or None. Length of an answer to HEAD is told too.
	Length int
	// Dated says that Date is among the lines.
	Dated bool
}

// Forward begins an answer. It returns a buffer to which the body is appended, in chunks if
// Chunks says so.
func (x *Exchange) Forward(f *Forwarded) []byte {
	x.chunks = f.Length == Unknown && !x.HTTP10 && !x.isHead
	if f.Length == Unknown && x.HTTP10 {
		x.keepAlive = false
	}
	x.status = f.Status
	x.out = append(x.out, "HTTP/1.1 "...)
	x.out = strconv.AppendInt(x.out, int64(f.Status), 10)
	x.out = append(x.out, ' ')
	x.out = append(append(x.out, f.Reason...), lineEnd...)
	x.out = append(x.out, f.Lines...)
	switch {
	case f.Length >= 0:
		x.out = append(x.out, "Content-Length: "...)
		x.out = append(strconv.AppendInt(x.out, int64(f.Length), 10), lineEnd...)
	case x.chunks:
		x.out = append(x.out, "Transfer-Encoding: chunked\r\n"...)
	}
	x.out = x.endHeadDated(x.out, f.Dated)
	return x.out
}

// Chunks reports whether the body of the answer that Forward has begun is in chunks.
func (x *Exchange) Chunks() bool { return x.chunks }

// EndForward ends an answer in chunks, with those lines as its trailers.
func (x *Exchange) EndForward(buf, trailers []byte) {
	if x.out = buf; x.chunks {
		x.out = append(append(append(x.out, "0\r\n"...), trailers...), lineEnd...)
	}
}

// Interim sends an interim answer, of class 1xx, unless the client is one of HTTP/1.0.
func (x *Exchange) Interim(f *Forwarded) {
	if x.HTTP10 {
		return
	}
	x.out = append(x.out, "HTTP/1.1 "...)
	x.out = strconv.AppendInt(x.out, int64(f.Status), 10)
	x.out = append(x.out, ' ')
	x.out = append(append(x.out, f.Reason...), lineEnd...)
	x.out = append(append(x.out, f.Lines...), lineEnd...)
	x.FlushAll()
}

// FlushAll writes what has been answered so far, and waits for a slow client.
func (x *Exchange) FlushAll() {
	x.flush()
	x.base = 0
}

// WriteNow writes of a buffer of Forward or WriteNow, to which the next part was appended,
// what the client takes without being waited for. It returns the buffer with what is left,
// and reports whether the client is there.
func (x *Exchange) WriteNow(buf []byte) (left []byte, ok bool) {
	c := x.conn
	n := c.writeNow(buf[x.sent:])
	rest := copy(buf, buf[x.sent+n:])
	x.out, x.sent, x.base = buf[:rest], 0, 0
	c.ending = c.ending || c.broken != nil
	return x.out, c.broken == nil
}

// WriteSlowly writes what WriteNow has left, and waits for a slow client. Until it returns
// the answer belongs to it; the request may be read meanwhile. If a client is hurried, see
// Hurry, it may fail for that.
func (x *Exchange) WriteSlowly(p []byte) (ok bool) {
	x.conn.write(p)
	return x.conn.broken == nil
}

// EndSlowly ends an answer of which WriteSlowly has written the last.
func (x *Exchange) EndSlowly() {
	c := x.conn
	x.out, x.sent, x.base = x.out[:0], 0, 0
	c.ending = c.ending || c.broken != nil
}

// Hurry sets whether others wait for the client to take its answer: then it is cut off if it
// takes less than 1 KiB a second over 10 s. It is called by any goroutine.
func (x *Exchange) Hurry(on bool) { x.conn.below.Hurry(on) }

// Cut reports whether the client does not take any more.
func (x *Exchange) Cut() bool { return x.conn.broken != nil }

// Watch has f called, once and by another goroutine, when the client leaves: it resets the
// connection, or ends its side of it with nothing left to be read. Unwatch ends that. If the
// client has left already, f is called before Watch returns.
func (x *Exchange) Watch(f func()) {
	c := x.conn
	w := &c.watch
	w.mu.Lock()
	w.more = c.x.reader.Buffered() > c.x.held
	w.left = f
	w.check(c)
	w.mu.Unlock()
}

// Unwatch ends what Watch has begun. Once it has returned f is not being called.
func (x *Exchange) Unwatch() {
	w := &x.conn.watch
	w.mu.Lock()
	w.left = nil
	w.mu.Unlock()
}

// Left reports whether the client has left, as of Watch.
func (x *Exchange) Left() bool {
	w := &x.conn.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.more = x.reader.Buffered() > x.held
	return w.gone(x.conn)
}

// bodyRead is called when all of a body that is streamed has been read.
func (c *conn) bodyRead() {
	w := &c.watch
	w.mu.Lock()
	w.more = c.x.reader.Buffered() > 0
	w.check(c)
	w.mu.Unlock()
}

// watch is whom to tell of a client that leaves.
type watch struct {
	mu   sync.Mutex
	left func()
	more bool   // of what the client has sent is in the reader, or to be read as its body
	seen uint32 // of halfGone and wholeGone
}

// tell is called by the goroutine of hangups.
func (c *conn) tell(event uint32) {
	c.parker.signal(event)
	c.watch.mu.Lock()
	c.watch.seen |= event
	c.watch.check(c)
	c.watch.mu.Unlock()
	if !c.taken.Load() {
		c.interrupt(time.Time{})
	}
}

// check calls left if the client has gone.
func (w *watch) check(c *conn) {
	if w.left != nil && w.gone(c) {
		f := w.left
		w.left = nil
		f()
	}
}

// gone reports whether the client has left.
func (w *watch) gone(c *conn) bool {
	return w.seen&wholeGone != 0 || w.seen&halfGone != 0 && !w.more && !c.pending()
}

// Take hands the connection over, which ends with the request: what is read comes first from
// the reader, which has no time-out from now on. It must be what Head has asked for. Cut, by
// any goroutine, ends both ways.
func (x *Exchange) Take() (nc net.Conn, reader *bufio.Reader, cut func()) {
	c := x.conn
	x.FlushAll()
	c.ending, c.lingering = true, false
	c.taken.Store(true)
	_ = c.socket.SetReadDeadline(time.Time{})
	return c.socket, x.reader, c.cut
}

// takenConn is a connection that was handed over, with what had been read of it.
type takenConn struct {
	net.Conn
	read []byte
}

func (t *takenConn) Read(p []byte) (int, error) {
	if len(t.read) > 0 {
		n := copy(p, t.read)
		t.read = t.read[n:]
		return n, nil
	}
	return t.Conn.Read(p)
}

// preface begins a connection of HTTP/2 (RFC 9113, 3.4), and looks like the head of a request.
var preface = []byte("PRI * HTTP/2.0\r\n\r\n")

var errPreface = errors.New("the connection speaks HTTP/2")

// handOver has HTTP/2 served on the connection, whose first bytes are in read.
func (c *conn) handOver(read []byte) {
	c.taken.Store(true)
	if c.watched != 0 {
		c.front.hangups.remove(c.watched)
	}
	_ = c.socket.SetReadDeadline(time.Time{})
	nc := c.socket
	if len(read) > 0 {
		nc = &takenConn{nc, append([]byte(nil), read...)}
	}
	c.release()
	if !c.front.parting.Load() {
		c.front.opts.HTTP2(nc)
	}
	c.ending, c.broken = true, io.EOF
}

// JSON returns what the problem says.
func (p *Problem) JSON() []byte { return p.body() }

// Reserve takes n bytes from the budget of bodies, for requests that came by Options.HTTP2,
// and reports whether they were left. A negative n gives them back.
func (f *Front) Reserve(n int64) bool {
	if n < 0 {
		f.budget.give(-n)
		return true
	}
	return f.budget.take(n)
}

// CutOff ends all writing to the client, by any goroutine.
func (x *Exchange) CutOff() { _ = x.conn.below.SetWriteDeadline(time.Unix(1, 0)) }

// CutLine splits the lines of a head behind the first, and returns that without its end, and
// where its colon is. The last line is empty. Otherwise it tells what is wrong.
func CutLine(lines []byte) (line []byte, colon int, rest []byte, wrong string) { return cutLine(lines) }

// Chunks finds the data of a chunked body, of at most 16 KiB of extensions, in what a reader
// gives. It leaves the data, and the trailers, to be read by others.
type Chunks struct{ chunks chunks }

// Next takes the line that begins a chunk, and returns how many bytes of data follow, all of
// which have to be read before the next call: 0 if the trailers do.
func (k *Chunks) Next(r *bufio.Reader) (size int, err error) { return k.chunks.next(r) }

// StatusText returns what HTTP calls a status.
func StatusText(status int) string { return fasthttp.StatusMessage(status) }
