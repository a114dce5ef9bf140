package httpfront

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// What only a handler needs that forwards requests follows.

// Interim sends an interim answer, of class 1xx, unless the client is one of HTTP/1.0.
func (x *Exchange) Interim(h *Head) {
	if !x.HTTP10 {
		x.out = append(h.append(x.out), lineEnd...)
		x.flush()
	}
}

// FlushBefore writes the answers before the present one, before what may take long, and waits for a
// slow client. It reports whether there still is one.
func (x *Exchange) FlushBefore() (ok bool) {
	x.flushBefore()
	return x.conn.broken == nil
}

// WriteNow writes of a buffer of Start or WriteNow, to which the next part was appended,
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
// Hurry, it may fail for that. Write with an empty buffer ends it.
func (x *Exchange) WriteSlowly(p []byte) (ok bool) {
	x.conn.write(p)
	return x.conn.broken == nil
}

// Hurry sets whether others wait for the client to take its answer: then it is cut off if it
// takes less than 1 KiB a second over 10 s, and at once when it leaves as of Watch, which must
// have been called. It is called by any goroutine.
func (x *Exchange) Hurry(on bool) {
	c := x.conn
	c.below.Hurry(on)
	c.watch.mu.Lock()
	c.watch.hurried = on
	c.watch.check(c)
	c.watch.mu.Unlock()
}

// Watch has f called, once and by another goroutine, when the client leaves: it resets the
// connection, or ends its side of it with nothing left to be read. Unwatch ends that. If the
// client has left already, f is called before Watch returns.
func (x *Exchange) Watch(f func()) {
	w := &x.conn.watch
	w.mu.Lock()
	w.unread, w.left = x.unread(), f
	w.check(x.conn)
	w.mu.Unlock()
}

// Unwatch ends what Watch has begun. Once it has returned f is not being called.
func (x *Exchange) Unwatch() {
	w := &x.conn.watch
	w.mu.Lock()
	w.left = nil
	w.mu.Unlock()
}

// Left reports whether the client has left, as of Watch. Nobody may read the body meanwhile.
func (x *Exchange) Left() bool { return x.conn.left(x.unread()) }

// bodyRead is called when all of a body that is streamed has been read.
func (x *Exchange) bodyRead() {
	w := &x.conn.watch
	w.mu.Lock()
	w.unread = x.unread()
	w.check(x.conn)
	w.mu.Unlock()
}

// watch is whom to notify of a client that leaves.
type watch struct {
	mu      sync.Mutex
	left    func()
	unread  bool // of what the client has sent, some is in the reader, or to be read as its body
	hurried bool // others wait for the client to take its answer
}

// check calls left if the client has gone. Nothing else tells a write that waits for it: a client
// that has ended its side alone may still take bytes, but takes none.
func (w *watch) check(c *conn) {
	if w.left == nil && !w.hurried || !c.left(w.unread) {
		return
	}
	if w.hurried {
		c.cutOff()
	}
	if f := w.left; f != nil {
		w.left = nil
		f()
	}
}

// Take hands the connection over, which ends with the request: what is read comes first from
// the reader, which has no time-out from now on. It must be what Head has asked for. The
// function returned ends both ways, and may be called by any goroutine.
func (x *Exchange) Take() (nc net.Conn, reader *bufio.Reader, cut func()) {
	c := x.conn
	x.flush()
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
func (x *Exchange) CutOff() { x.conn.cutOff() }

func (c *conn) cutOff() { _ = c.below.SetWriteDeadline(time.Unix(1, 0)) }
