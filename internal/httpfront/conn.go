package httpfront

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// conn is a connection: a wire, and while bytes of a request or an answer are there, an
// exchange. All fields belong to its goroutine, of which there is one at a time, but for
// the parker, and the deadlines of the socket, which others set to interrupt it. See the
// package comment for its states.
type conn struct {
	wire
	x *Exchange // nil while the connection is idle

	parker  parker
	timer   *time.Timer   // signals timeUp; nil until first needed
	watched uint64        // the key of the connection in hangups, 0 if it is not there
	gone    atomic.Uint32 // halfGone and wholeGone; set by others

	readable    func(fd uintptr) bool // tryRead
	waitError   error                 // what it found
	dormantFrom int64                 // it does not go dormant before
	dormant     bool                  // see stayDormant
	looked      bool                  // look has been called

	answered int64 // when the last request was, or the connection was made
	lately   int   // how many were, each within busyWithin of the one before

	watch watch       // see Exchange.Watch
	taken atomic.Bool // the socket is somebody else's: it is not interrupted

	peer string // the IP address
	name string // see Exchange.Intern

	// ending is set when the connection shall end after the present answer,
	// lingering when the client may still be sending the present request then.
	ending, lingering bool
}

// A connection is busy that has had so many requests answered, each so soon after
// the one before it.
const (
	busyAfter  = 2
	busyWithin = int64(time.Second)
)

func newConn(f *Front, nc net.Conn) *conn {
	c := &conn{parker: newParker()}
	c.wire.open(f, nc)
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		c.peer = host
	}
	c.readable = c.tryRead
	c.answered = c.now()
	c.dormantFrom = c.answered + int64(newborn)
	return c
}

func (c *conn) now() int64 { return c.front.opts.Now() }

// serve is the first goroutine of a connection.
func (c *conn) serve() {
	if !c.handshake(c.front.limits.Load().ReadTimeout) {
		c.end()
		return
	}
	if t, ok := c.socket.(*tls.Conn); ok && c.front.opts.HTTP2 != nil && t.ConnectionState().NegotiatedProtocol == "h2" {
		c.handOver(nil)
		c.end()
		return
	}
	if c.below.Raw() != nil && c.front.hangups != nil {
		c.watched = c.front.hangups.add(c)
	}
	c.attend()
}

// handshake reports whether there is nothing to agree upon, or that succeeds in time.
func (c *conn) handshake(within time.Duration) bool {
	t, ok := c.socket.(*tls.Conn)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return t.HandshakeContext(ctx) == nil
}

// attend is the goroutine of a connection until it goes dormant, or is over.
func (c *conn) attend() {
	for !c.ending && c.await() {
		for !c.ending && c.serveOne() {
		}
		if !c.ending {
			c.release()
		}
	}
	if c.dormant {
		go c.stayDormant()
		return
	}
	c.end()
}

// end closes the connection, and has the front forget it.
func (c *conn) end() {
	c.close()
	c.front.uncount(c)
	c.front.forget(c)
}

// close closes the connection for good.
func (c *conn) close() {
	if c.watched != 0 {
		c.front.hangups.remove(c.watched)
	}
	if c.ending && c.broken == nil && (c.lingering || c.bytesLeft()) {
		c.linger()
	}
	c.release()
	_ = c.socket.Close()
}

// bytesLeft reports whether the client has sent what nobody will read, such as
// requests behind one that ends the connection.
func (c *conn) bytesLeft() bool {
	return c.x != nil && c.x.reader.Buffered() > 0 || c.raw != nil && bytesPending(c.raw)
}

// arm makes sure that the alarm rings at c.until at the latest. It may ring earlier, and
// then waiting is taken up again: so requests that come in time cost no call, and the
// alarm is set anew about once in a time-out.
func (c *conn) arm() {
	if c.isArmed() {
		return
	}
	now, soonest := c.now(), int64(math.MaxInt64)
	if c.raw != nil && !c.ending {
		soonest = c.nextDormant(now)
	}
	c.setAlarm(now, soonest)
	// Looked up after the alarm was set: an interruption before would be overridden.
	if c.front.closed.Load() {
		c.interrupt(time.Time{})
	}
}

// rearm is called when the alarm has rung. It reports whether there is time
// left to wait.
func (c *conn) rearm() bool {
	c.armed = 0
	if c.now() >= c.until || c.front.closed.Load() {
		return false
	}
	c.arm()
	return true
}

// await waits for the first bytes of a request, and reports whether they came. If they
// did not, the connection goes dormant or is over.
func (c *conn) await() bool {
	c.startIdling(c.now())
	for {
		err := c.waitReadable()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !c.rearm() {
			return err == nil
		}
	}
}

// startIdling starts the time that the client has to send another request.
func (c *conn) startIdling(now int64) {
	c.until = now + int64(c.front.limits.Load().IdleTimeout)
	c.arm()
}

// waitReadable waits until bytes of a request are in the reader. When the front
// parts from its clients it does not wait, but takes what is there: whether it does is
// looked up after the alarm was set, so that an interruption before is seen
// then, and one after rings the alarm.
func (c *conn) waitReadable() error {
	if c.raw != nil {
		if err := c.raw.Read(c.readable); err != nil {
			return err
		}
		return c.waitError
	}
	if c.front.parting.Load() {
		return io.EOF
	}
	for {
		n, err := c.socket.Read(c.one[:])
		if n == 1 {
			c.acquire()
			c.carried = c.one[:]
			_, err = c.x.reader.Peek(1)
			return err
		}
		if err != nil {
			return err
		}
	}
}

// tryRead is called by Go's poller with the descriptor, at first and then
// whenever there may be something new to read, until it returns true. It serves
// all requests that have arrived as a whole, so that in the common case a
// request costs one read: to leave the poller for each and come back would cost
// another one, which finds nothing. It returns true when more has to be waited
// for, or the connection is over.
//
// The poller reports only what is new. So tryRead must not return false before
// it knows that nothing is left to read: because a read said so, or because one
// gave less than there was room for. In the latter case the end of the stream
// may be left, if it came together with the last bytes. That is
// reported by hangups, with an interruption.
func (c *conn) tryRead(fd uintptr) bool {
	for {
		// Looked up before the read: what has arrived before is not left. If it is
		// set after this, the interruption ends the wait.
		parting := c.front.parting.Load()
		c.acquire()
		c.fd = int(fd)
		if _, c.waitError = c.x.reader.Peek(1); c.waitError != nil {
			c.fd = -1
			c.release()
			return parting || !errors.Is(c.waitError, errNothingYet) || c.goDormant(c.now())
		}
		for c.serveOne() {
		}
		c.fd = -1
		if c.ending || c.x.parsed || c.x.reader.Buffered() > 0 {
			return true
		}
		c.release()
		// Interruptions that the alarm has swallowed are looked up after it.
		c.startIdling(c.answered)
		if c.drained && c.gone.Load() == 0 && !c.front.parting.Load() {
			c.waitError = errNothingYet
			return c.goDormant(c.answered)
		}
	}
}

// Read is for the reader of the exchange.
func (c *conn) Read(p []byte) (int, error) {
	if c.x != nil && c.x.stream.reading {
		return c.readPaced(p)
	}
	return c.read(p, c.rearm)
}

// serveOne receives and serves the request whose first bytes are in the reader, and
// reports whether another one has begun to arrive. If it may not wait and the
// request has not arrived as a whole, receiving is to be taken up again when it may.
func (c *conn) serveOne() bool {
	x := c.x
	bad, err := x.receive()
	if errors.Is(err, errNothingYet) {
		x.flush()
		return false
	}
	if errors.Is(err, errPreface) {
		read, _ := x.reader.Peek(x.reader.Buffered())
		c.handOver(read)
		return false
	}
	if x.Arrival == 0 { // its head was not even parsed
		x.Arrival = c.now()
	}
	x.base = len(x.out)
	assert(x.sent <= x.base && !c.isLong, "an answer is being written as a request is served")
	assert(x.held == 0 || x.buffer == nil, "a body lies in two places")
	assert(x.reserved >= int64(len(x.Body)) || !x.wanted.Keep, "a body has more bytes than are reserved")
	switch {
	case err != nil:
		x.fail(err)
	case bad != nil:
		x.refuse(bad)
	default:
		x.call.Serve()
	}
	assert(x.sent <= len(x.out) && (x.status != 0 || c.broken != nil), "a request has no answer")
	x.stream.reading = false
	x.dropBody()
	// Answers are written together while further requests are there.
	more := !c.ending && x.reader.Buffered() > 0
	if !more || len(x.out)-x.sent >= smallBuffer {
		x.flush()
	}
	if x.status != 0 {
		before := c.answered
		c.answered = c.now()
		if c.lately++; c.answered-before > busyWithin {
			c.lately = 0
		}
		x.call.Answered(x.status, c.broken != nil, c.answered)
	}
	return more && c.broken == nil
}

// linger lets a client that may be sending still see the answer: it ends our
// side of the connection, and drops what comes until the client ends its side,
// for a while. Closing at once would reset the connection, and the answer with
// it.
func (c *conn) linger() {
	w, ok := c.socket.(interface{ CloseWrite() error })
	if !ok || w.CloseWrite() != nil {
		return
	}
	now := c.now()
	c.until = now + int64(lingerTime)
	c.setAlarm(now, c.until) // also once the front closes: the client should see its answer
	if c.x == nil {
		c.acquire()
	}
	r := c.x.reader
	for left := lingerBytes - r.Buffered(); left > 0; {
		_, _ = r.Discard(r.Buffered())
		if _, err := r.Peek(1); err != nil {
			return
		}
		left -= r.Buffered()
	}
}

const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
	// lastWrites is the time that Close gives to answers on their way.
	lastWrites = time.Second
)

// acquire takes an exchange.
func (c *conn) acquire() {
	x := c.front.exchanges.Get().(*Exchange)
	x.conn = c
	x.reader.Reset(c)
	c.x = x
}

// release gives the exchange back.
func (c *conn) release() {
	x := c.x
	if x == nil {
		return
	}
	assert(x.reserved == 0 && x.held == 0 && x.buffer == nil, "a body is left in an exchange")
	if x.reader != x.small {
		x.reader.Reset(nil)
		c.front.largeReaders.Put(x.reader)
		x.reader = x.small
	}
	x.reader.Reset(nil)
	x.conn, c.x = nil, nil
	c.front.exchanges.Put(x)
}

// notify is called by the goroutine of hangups.
func (c *conn) notify(event uint32) {
	c.gone.Or(event)
	c.parker.signal(hungUp)
	c.watch.mu.Lock()
	c.watch.check(c)
	c.watch.mu.Unlock()
	if !c.taken.Load() {
		c.interrupt(time.Time{})
	}
}

// left reports whether the client has gone: it has reset the connection, or ended its side of
// it with nothing left to be read. A client that has sent further requests before it ended
// its side waits for their answers.
func (c *conn) left(unread bool) bool {
	gone := c.gone.Load()
	return gone&wholeGone != 0 || gone&halfGone != 0 && !unread && !c.pending()
}

// How a client has gone.
const (
	halfGone  = 1 << iota // it has ended its side of the connection
	wholeGone             // the connection was reset
)

// unread reports whether the client has sent more than the present request.
func (x *Exchange) unread() bool { return x.reader.Buffered() > x.held }

// pending reports whether there are bytes of requests in the socket. Under TLS its last record
// is a close_notify, which is shorter than one with a request.
func (c *conn) pending() bool {
	raw := c.below.Raw()
	if raw == nil {
		return false
	}
	if c.raw == nil {
		return manyPending(raw, shortestRecord)
	}
	return bytesPending(raw)
}

// shortestRecord is how long the record of TLS is at least that has a request.
const shortestRecord = 5 + 16 + len("GET / HTTP/1.0\r\n\r\n")
