package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/socket"
)

var (
	errNothingYet = errors.New("no bytes yet")
	errTooSlow    = errors.New("the client is too slow")
)

// conn is a connection. All fields belong to its goroutine, of which there is one at a
// time, but for the parker, and the deadlines of the socket, which others set to
// interrupt it.
type conn struct {
	server *Server
	socket net.Conn
	// raw gives access to the file descriptor. It is nil if there is none that
	// carries the bytes themselves, as under TLS: then waiting takes a buffer, of
	// one byte, and hang-ups are not noticed.
	raw syscall.RawConn

	parker  parker
	timer   *time.Timer // signals timeUp; nil until first needed
	watched uint64      // the key of the connection in hangups, 0 if it is not there
	gone    uint32      // what the parker told of halfGone and wholeGone so far

	readable  func(fd uintptr) bool // tryRead
	waitError error                 // what it found
	restFrom  int64                 // it does not rest before
	resting   bool                  // see rest
	looked    bool                  // look has been called

	// The socket's read deadline is a coarse alarm: armed is where it was set,
	// 0 if it is not known, and until is what is really wanted, on the clock of
	// the dispatcher. See arm.
	until, armed int64
	answered     int64 // when the last request was, or the connection was made
	lately       int   // how many were, each within busyWithin of the one before

	// How the next Read gets its bytes.
	carried []byte // first from here, if there are any
	one     [1]byte
	fd      int   // then from this descriptor, without waiting, if it is not -1
	drained bool  // the last one from the descriptor left nothing behind
	readErr error // what ended reading for good

	// While bytes of a request are there.
	x       *exchange
	reader  *bufio.Reader
	req     request
	begun   int64 // when the time to send the request began, 0 if it has not
	parsed  bool  // the head is, and the body has not been received
	body    body
	outcome outcome

	inTurn bool // a long answer is being written; see turns

	peer   string // the IP address
	client string // the last Spillway-Client

	// ending is set when the connection shall end after the present answer,
	// lingering when the client may still be sending the present request then.
	ending, lingering bool
	broken            error // why nothing can be written any more
}

func newConn(s *Server, nc net.Conn) *conn {
	bounded := socket.NewConn(nc, s.opts.WriteTimeout)
	c := &conn{server: s, socket: bounded, fd: -1, parker: newParker()}
	bounded.Waits = c.waits
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		c.peer = host
	}
	if s.opts.TLS != nil {
		c.socket = tls.Server(bounded, s.opts.TLS)
	} else {
		c.raw = bounded.Raw()
	}
	c.readable = c.tryRead
	c.answered = c.now()
	c.restFrom = c.answered + int64(newborn)
	return c
}

// serve is the first goroutine of a connection.
func (c *conn) serve() {
	if t, ok := c.socket.(*tls.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), c.server.opts.ReadTimeout)
		err := t.HandshakeContext(ctx)
		cancel()
		if err != nil {
			c.end()
			return
		}
	}
	c.watch()
	c.attend()
}

// attend is the goroutine of a connection until it rests, or is over.
func (c *conn) attend() {
	for !c.ending && c.await() {
		for !c.ending && c.serveOne() {
		}
		if !c.ending {
			c.release()
		}
	}
	if c.resting {
		go c.rest()
		return
	}
	c.end()
}

// end closes the connection, and has the server forget it.
func (c *conn) end() {
	c.close()
	c.server.uncount(c)
	c.server.forget(c)
}

// watch asks to be told when the client goes.
func (c *conn) watch() {
	if c.raw != nil {
		c.watched = c.server.hangups.add(c)
	}
}

// close ends the connection for good.
func (c *conn) close() {
	if c.watched != 0 {
		c.server.hangups.remove(c.watched)
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
	return c.reader != nil && c.reader.Buffered() > 0 || c.raw != nil && bytesPending(c.raw)
}

// interrupt makes the goroutine look up from reading, and from writing if a
// time for that is given. It is called by others.
func (c *conn) interrupt(write time.Time) {
	past := time.Unix(1, 0)
	if !write.IsZero() {
		_ = c.socket.SetWriteDeadline(write)
	}
	_ = c.socket.SetReadDeadline(past)
}

// cut ends the connection, whatever its goroutine is about. It is called by others.
func (c *conn) cut() {
	nc := c.socket
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn() // its own Close would wait for a write
	}
	_ = nc.Close()
}

func (c *conn) now() int64 { return c.server.opts.Dispatcher.Now() }

// arm makes sure that the socket's alarm rings at c.until at the latest. It may
// ring earlier, and then waiting is taken up again: so requests that come in
// time cost no call, and the alarm is set anew about once in a time-out.
func (c *conn) arm() {
	if c.armed != 0 && c.armed <= c.until {
		return
	}
	c.setAlarm()
	// Looked up after the alarm was set: an interruption before would be overridden.
	if c.server.closed.Load() {
		c.interrupt(time.Time{})
	}
}

func (c *conn) setAlarm() {
	now := c.now()
	c.armed = c.until
	if c.raw != nil && !c.ending {
		c.armed = min(c.until, c.nextRest(now))
	}
	_ = c.socket.SetReadDeadline(time.Now().Add(time.Duration(c.armed - now)))
}

// rearm is called when the alarm has rung. It reports whether there is time
// left to wait.
func (c *conn) rearm() bool {
	c.armed = 0
	if c.now() >= c.until || c.server.closed.Load() {
		return false
	}
	c.arm()
	return true
}

// await waits for the first bytes of a request, and reports whether they came. If they
// did not, the connection rests or is over.
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
	c.until = now + int64(c.server.opts.IdleTimeout)
	c.arm()
}

// waitReadable waits until bytes of a request are in the reader. When the server
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
	if c.server.parting.Load() {
		return io.EOF
	}
	for {
		n, err := c.socket.Read(c.one[:])
		if n == 1 {
			c.acquire()
			c.carried = c.one[:]
			_, err = c.reader.Peek(1)
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
// The poller tells only of what is new. So tryRead must not return false before
// it knows that nothing is left to read: because a read said so, or because one
// gave less than there was room for. In the latter case the end of the stream
// may be left, if it came together with the last bytes. Of that hangups tells,
// by an interruption.
func (c *conn) tryRead(fd uintptr) bool {
	for {
		// Looked up before the read: what has arrived before is not left. If it is
		// set after this, the interruption ends the wait.
		parting := c.server.parting.Load()
		c.acquire()
		c.fd = int(fd)
		if _, c.waitError = c.reader.Peek(1); c.waitError != nil {
			c.fd = -1
			c.release()
			return parting || !errors.Is(c.waitError, errNothingYet) || c.mayRest(c.now())
		}
		for c.serveOne() {
		}
		c.fd = -1
		if c.ending || c.parsed || c.reader.Buffered() > 0 {
			return true
		}
		c.release()
		// Interruptions that the alarm has swallowed are looked up after it.
		c.startIdling(c.answered)
		c.gone |= c.parker.poll() & (halfGone | wholeGone)
		if c.drained && c.gone == 0 && !c.server.parting.Load() {
			c.waitError = errNothingYet
			return c.mayRest(c.answered)
		}
	}
}

// Read is for the reader of the exchange.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.carried) > 0 {
		n := copy(p, c.carried)
		if c.carried = c.carried[n:]; len(c.carried) == 0 {
			c.carried = nil
		}
		return n, nil
	}
	if c.fd >= 0 {
		n, err := readNow(c.fd, p)
		c.drained = n < len(p)
		if err != nil && !errors.Is(err, errNothingYet) {
			c.readErr = err
		}
		return n, err
	}
	for {
		n, err := c.socket.Read(p)
		switch {
		case n > 0 || err == nil:
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded): // over
		case c.rearm():
			continue
		case c.server.closed.Load():
			err = net.ErrClosed
		default:
			err = errTooSlow
		}
		c.readErr = err
		return 0, err
	}
}

// serveOne receives and serves the request whose first bytes are in the reader, and
// reports whether another one has begun to arrive. If it may not wait and the
// request has not arrived as a whole, receiving is to be taken up again when it may.
func (c *conn) serveOne() bool {
	bad, err := c.receiveRequest()
	if errors.Is(err, errNothingYet) {
		c.flush()
		return false
	}
	return c.serveReceived(bad, err)
}

// serveReceived answers the request that was received, or says why it was not, and
// reports whether another one has begun to arrive.
func (c *conn) serveReceived(bad *problem, err error) bool {
	if c.req.arrival == 0 { // its head was not even parsed
		c.req.arrival = c.now()
	}
	switch {
	case err != nil:
		c.fail(err)
	case bad != nil:
		c.refuseRequest(bad)
	case c.req.preflight:
		c.answerPreflight()
	case c.req.isRange:
		c.performRange()
	case c.req.isBatch:
		c.performBatch()
	default:
		c.perform()
	}
	c.dropBody()
	// Answers are written together while further requests are there.
	more := !c.ending && c.reader.Buffered() > 0
	if !more || len(c.x.out)-c.x.sent >= smallBuffer {
		c.flush()
	}
	if o := &c.outcome; o.status != 0 {
		if c.broken != nil && !o.shed {
			o.status = statusCut
		}
		before := c.answered
		c.answered = c.server.answered(o.strategy, c.req.method, o.status, o.shed, c.req.arrival)
		if c.lately++; c.answered-before > busyWithin {
			c.lately = 0
		}
		if (o.status == statusCut || o.left) && c.server.opts.Events.Left != nil {
			c.server.opts.Events.Left(time.Duration(c.answered - c.req.arrival))
		}
		if w := &c.req.wishes; o.strategy != "" && (len(w.client) > 0 || w.priority != defaultPriority) && c.server.opts.Events.Asked != nil {
			c.server.opts.Events.Asked(w.priority, w.client, c.req.method, o.status, o.shed, time.Duration(c.answered-c.req.arrival))
		}
		if o.strategy != "" && c.server.opts.Slowest.Wants(time.Duration(c.answered-c.req.arrival), c.answered) {
			c.remember(c.answered)
		}
	}
	return more && c.broken == nil
}

// statusCut is what the events are told of an answer that its client did not take
// in full. It is nginx's code for clients that close the connection; no client
// ever sees it.
const statusCut = 499

// receiveRequest waits for the request, as far as it is needed to answer.
func (c *conn) receiveRequest() (bad *problem, err error) {
	if !c.parsed {
		if !c.skipEmptyLines() {
			return nil, errNothingYet
		}
		c.outcome, c.begun = outcome{}, 0
		if bad, err = c.readHead(); bad != nil || err != nil {
			return bad, err
		}
		bad = c.parseHead()
		c.x.shedFields(bad != nil && bad.close)
		if bad != nil {
			return bad, nil
		}
	}
	bad, err = c.receive()
	c.parsed = errors.Is(err, errNothingYet)
	return bad, err
}

// skipEmptyLines drops what some clients send after a body, and reports whether
// more than that was there.
func (c *conn) skipEmptyLines() bool {
	b, _ := c.reader.Peek(c.reader.Buffered())
	n := 0
	for n < len(b) && (b[n] == '\r' || b[n] == '\n') {
		n++
	}
	_, _ = c.reader.Discard(n)
	return n < len(b)
}

// readHead waits until a whole head is in the reader.
func (c *conn) readHead() (*problem, error) {
	c.req = request{method: "other"}
	err := c.awaitLines()
	if errors.Is(err, errBareLF) {
		return malformed(err.Error()), nil
	}
	if !errors.Is(err, errLong) {
		return nil, err
	}
	if b, _ := c.reader.Peek(c.reader.Buffered()); bytes.IndexByte(b, '\n') < 0 {
		return &problem{status: fasthttp.StatusRequestURITooLong, close: true, detail: "the request line is too long, allowed: two keys of the largest size, every byte escaped, and some more"}, nil
	}
	return &problem{status: fasthttp.StatusRequestHeaderFieldsTooLarge, close: true, detail: "the headers are too long, allowed: 8192 bytes in all"}, nil
}

// The ends of a head that is right, and of one that others may take for one.
var emptyLine, emptyLineByLF, emptyLineBehindLF = []byte("\r\n\r\n"), []byte("\n\n"), []byte("\n\r\n")

// awaitLines waits until lines up to an empty one are in the reader. It returns errLong if
// there is no room for them, and errBareLF as soon as that is seen before an empty line.
func (c *conn) awaitLines() error {
	for seen, begun := 0, false; ; {
		b, _ := c.reader.Peek(c.reader.Buffered())
		// Only what is new is searched: a head may come a byte at a time.
		fresh := b[max(0, seen-len(emptyLine)):]
		if bytes.Contains(fresh, emptyLine) {
			return nil
		}
		if bytes.Contains(fresh, emptyLineByLF) || bytes.Contains(fresh, emptyLineBehindLF) {
			return errBareLF
		}
		if seen = len(b); seen == c.reader.Size() && !c.growReader() {
			return errLong
		}
		if !begun {
			// The answers before must not wait for the client.
			c.flush()
			c.startClock()
			begun = true
		}
		if _, err := c.reader.Peek(seen + 1); err != nil {
			return err
		}
	}
}

// startClock starts the time that the client has to send a request: one for the head
// and the body together.
func (c *conn) startClock() {
	if c.begun == 0 {
		c.begun = c.now()
	}
	if c.req.arrival == 0 {
		c.req.arrival = c.begun
	}
	c.until = c.begun + int64(c.server.opts.ReadTimeout)
	c.arm()
}

// fail ends the connection after the request could not be received.
func (c *conn) fail(err error) {
	if c.readErr != nil {
		err = c.readErr // fasthttp hides some
	}
	var bad *problem
	switch {
	case errors.Is(err, errTooSlow):
		bad = &problem{status: fasthttp.StatusRequestTimeout, detail: "the request did not arrive in full within " + c.server.opts.ReadTimeout.String()}
	case errors.Is(err, io.EOF):
		bad = malformed("it ended too early")
	case c.readErr != nil:
		c.broken, c.ending = err, true // nobody is there to answer to
		return
	case errors.Is(err, errTooLarge):
		bad = c.tooLarge("more bytes")
	case errors.Is(err, errLong):
		bad = &problem{status: fasthttp.StatusRequestHeaderFieldsTooLarge, detail: "the trailers are too long"}
	default:
		bad = malformed("the chunked body is broken: " + parserSays(err))
	}
	bad.close = true
	c.refuseRequest(bad)
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
	c.until = c.now() + int64(lingerTime)
	c.setAlarm() // also once the server closes: the client should see its answer
	if c.reader == nil {
		c.acquire()
	}
	for left := lingerBytes - c.reader.Buffered(); left > 0; {
		_, _ = c.reader.Discard(c.reader.Buffered())
		if _, err := c.reader.Peek(1); err != nil {
			return
		}
		left -= c.reader.Buffered()
	}
}

const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
	// lastWrites is the time that Close gives to answers on their way.
	lastWrites = time.Second
)
