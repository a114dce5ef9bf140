package httpfront

import (
	"bufio"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/bufpool"
)

// Handler is what a front serves. Its methods are called by many goroutines at once.
type Handler interface {
	// NewCall returns what serves the requests of an exchange, one after another. Their
	// connections differ.
	NewCall(*Exchange) Call
	// Refused is called for a connection, which came at that time, that was refused by 503.
	Refused(arrival int64)
}

// Call serves one request after another. For each its methods are called in this order, by
// one goroutine. Nothing of the request may be kept once it is answered.
type Call interface {
	// Begin forgets the request before.
	Begin()
	// Field takes a line of the head that has nothing to do with where it ends, without
	// blanks around the value. What is wrong with it is answered once all are there.
	Field(name, value []byte) *Problem
	// Head says what shall become of the body, or what is wrong, by the head alone.
	Head() (Wanted, *Problem)
	// NoRoom is what a request is refused by whose body has no room in the budget.
	NoRoom() *Problem
	// Serve answers the request. Whatever it has started must be over when it returns.
	Serve()
	// Answered is called when the answer of that status has left, or could not: cut says
	// that the client did not take all of it. Now is on the clock of arrivals. It is
	// called for refusals too, and not for requests that got no answer at all.
	Answered(status int, cut bool, now int64)
	// Lines are header lines, each with its CR LF, that every answer to the request has.
	Lines() string
}

const (
	smallBuffer = 4 << 10
	// keptBuffer is the largest answer buffer that stays in an exchange.
	keptBuffer = 32 << 10
)

// Exchange is one request and its answer. A connection has one while there is something to
// do: it takes it from a pool with the first byte of a request, and gives it back when no
// byte and no answer is left. It belongs to the goroutine of the connection: others call
// only what says so.
type Exchange struct {
	conn *conn // whom it serves
	call Call
	inbound
	outbound
}

// outbound is the answer being written, behind answers that wait to be written.
type outbound struct {
	// out holds answers that have not been written yet, from out[sent:] on; the present
	// one begins at out[base:]. While a handler makes an answer in place, what is behind
	// out's length is the handler's. 0 ≤ sent ≤ base ≤ len(out) while a request is served.
	out        []byte
	sent, base int
	first      []byte // out at first, and again when it has become too large
	status     int    // of the present answer; 0 if there is none
	chunks     bool   // so is its body
}

func newExchange(f *Front) *Exchange {
	small := bufio.NewReaderSize(nil, smallBuffer)
	x := &Exchange{inbound: inbound{small: small, reader: small}}
	x.first = make([]byte, 0, smallBuffer)
	x.out = x.first
	x.call = f.opts.Handler.NewCall(x)
	return x
}

// Peer returns the IP address of the client.
func (x *Exchange) Peer() string { return x.conn.peer }

// Intern returns name as a string, which is made once if the connection's requests have
// the same again and again.
func (x *Exchange) Intern(name []byte) string {
	if x.conn.name != string(name) {
		x.conn.name = string(name)
	}
	return x.conn.name
}

// Waiting for work that others do follows. A handler hands out work, and calls Done when
// that is completed, once for each; and it waits for that before anything else.

// Event is what has ended a wait.
type Event int

// The events.
const (
	Done    Event = iota // the work is done
	Expired              // its deadline has passed
	Gone                 // the client has gone
)

// Done says that the work is done. It is called by any goroutine, which must not use the
// exchange from then on.
func (x *Exchange) Done() { x.conn.parker.signal(workDone) }

// IsDone reports whether the work is done already. If so, nothing is to be waited for.
func (x *Exchange) IsDone() bool { return x.conn.parker.poll()&workDone != 0 }

// InPlace reports whether the goroutine itself may work for long, and not only wait. That
// of a connection that is not busy should not: its stack would grow and stay large, and
// there may be many. Nor should one with answers to write, which would wait for the work.
func (x *Exchange) InPlace() bool { return x.conn.lately >= busyAfter && x.base == x.sent }

// Wait waits until the work is done, or there is a reason not to do it: the deadline, on
// the clock of arrivals and 0 for none, has passed, or the client has gone. Then the work
// has still to be waited for, by WaitDone. Answers before this one are written meanwhile.
func (x *Exchange) Wait(deadline int64) Event {
	c := x.conn
	x.flushBefore()
	if deadline != 0 {
		c.startTimer(deadline)
		defer c.timer.Stop()
	}
	for {
		if deadline != 0 && c.now() >= deadline {
			return Expired
		}
		if c.broken != nil || c.left(x.unread()) {
			return Gone
		}
		if c.parker.wait()&workDone != 0 {
			return Done
		}
	}
}

// WaitDone waits until the work is done, whatever else happens.
func (x *Exchange) WaitDone() {
	x.flushBefore()
	for x.conn.parker.wait()&workDone == 0 {
	}
}

// startTimer signals the parker when the deadline has come.
func (c *conn) startTimer(deadline int64) {
	d := time.Duration(deadline - c.now())
	if c.timer == nil {
		c.timer = time.AfterFunc(d, func() { c.parker.signal(timeUp) })
		return
	}
	c.timer.Reset(d)
}

// Answers follow. Each request gets one: by Send, with or without Room before it, or by
// Start, then Write, WriteNow or WriteSlowly as often as need be, then End or Break.

// Answer is an answer of a known length.
type Answer struct {
	Status int // from 100 to 599
	// Type is the media type of the body, which lies in Buf behind the room from Room. It
	// is empty if there is no body.
	Type string
	Buf  []byte
	// Lines are further header lines, each with its CR LF.
	Lines []byte
	// Problem, if not nil, is the answer instead.
	Problem *Problem
	// Close ends the connection.
	Close bool
}

// headRoom is left in front of a body for the head of its answer, whose length
// depends on that of the body, so that both leave in one piece without a copy.
var headRoom [256]byte

// Room returns a buffer to which the body of an answer is appended, before its status is
// known. It, or what it has grown to (by bufpool), is given to Send, also for another
// answer. Lines of an answer with a body have at most 128 bytes.
func (x *Exchange) Room() []byte {
	x.out = append(append(x.out, headRoom[:]...), x.call.Lines()...) // just as long as need be
	return x.out
}

// RoomIn returns how much of a buffer from Room is not body.
func (x *Exchange) RoomIn() int { return x.base + len(headRoom) + len(x.call.Lines()) }

// Send answers.
func (x *Exchange) Send(a Answer) {
	c, lines := x.conn, x.call.Lines()
	if a.Buf != nil {
		x.out = a.Buf
	}
	if a.Type != "" {
		x.sendBody(&a)
		return
	}
	x.out, x.status = x.out[:x.base], a.Status
	c.ending = c.ending || a.Close
	if p := a.Problem; p != nil {
		// A client of HTTP/1.0 would not know that the connection goes on.
		c.ending = c.ending || x.HTTP10 || p.Close
		x.status = p.Status
		x.out = p.append(x.out, &c.front.clock, lines, !x.goesOn(), x.isHead)
		return
	}
	h := Head{Status: a.Status, Lines: a.Lines}
	if a.Status == fasthttp.StatusNoContent || a.Status == fasthttp.StatusNotModified {
		h.Length = None
	}
	x.Start(&h)
}

// sendBody completes an answer whose body lies behind room for its head.
func (x *Exchange) sendBody(a *Answer) {
	body := x.RoomIn()
	x.status = a.Status
	var space [len(headRoom)]byte
	head := x.appendHead(space[:0], &Head{Status: a.Status, Type: a.Type, Lines: a.Lines, Length: len(x.out) - body})
	gap := body - x.base - len(head)
	copy(x.out[x.sent+gap:], x.out[x.sent:x.base]) // answers that wait before this one move up
	x.sent += gap
	copy(x.out[x.base+gap:], head)
	if x.isHead {
		x.out = x.out[:body]
	}
}

// Unknown is the length of a body that does not say how long it is, and None that of an
// answer that has none by its status or its method.
const (
	Unknown = -1
	None    = -2
)

// Head is the head of an answer.
type Head struct {
	Status int
	Reason []byte // nil for what HTTP calls the status
	Type   string // the media type; empty if it is among the lines, or there is none
	// Lines are the lines of the head but for those of the framing, each with its CR LF.
	Lines []byte
	// Length is that of the body, Unknown or None. An answer to HEAD has its Content-Length too.
	Length int
	// Dated says that Date is among the lines.
	Dated bool
}

// append appends the lines that do not depend on the request.
func (h *Head) append(dst []byte) []byte {
	if h.Reason == nil {
		dst = appendStatus(dst, h.Status)
	} else {
		dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(h.Status), 10)
		dst = append(append(append(dst, ' '), h.Reason...), lineEnd...)
	}
	if h.Type != "" {
		dst = append(append(append(dst, "Content-Type: "...), h.Type...), lineEnd...)
	}
	return append(dst, h.Lines...)
}

// appendHead appends the head of the present answer.
func (x *Exchange) appendHead(dst []byte, h *Head) []byte {
	dst = h.append(dst)
	switch {
	case h.Length >= 0:
		dst = append(dst, "Content-Length: "...)
		dst = append(strconv.AppendInt(dst, int64(h.Length), 10), lineEnd...)
	case x.chunks:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	if !h.Dated {
		dst = x.conn.front.clock.append(dst)
	}
	dst = append(dst, x.call.Lines()...)
	if !x.goesOn() {
		dst = append(dst, "Connection: close\r\n"...)
	} else if x.HTTP10 {
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, lineEnd...)
}

// goesOn reports whether the connection goes on after the present answer, and
// otherwise notes that it does not.
func (x *Exchange) goesOn() bool {
	c := x.conn
	if x.wanted.Stream && x.Streams() { // the client may be sending the rest
		c.ending, c.lingering = true, true
	}
	if !c.ending && (!x.keepAlive || c.broken != nil || c.front.draining.Load()) {
		c.ending = true
	}
	return !c.ending
}

// AppendChunk appends the line that begins a chunk of that length. Behind the data stands
// another CR LF.
func AppendChunk(dst []byte, length int) []byte {
	dst = strconv.AppendInt(dst, int64(length), 16)
	return append(dst, lineEnd...)
}

// Start begins an answer. It returns a buffer to which the body is appended, in chunks if
// Chunks says so; nothing has been written yet, and Send may still give another answer. To
// HTTP/1.0, the end of the connection is the end of a body that does not say how long it is.
func (x *Exchange) Start(h *Head) []byte {
	x.chunks = h.Length == Unknown && !x.HTTP10 && !x.isHead
	x.keepAlive = x.keepAlive && (h.Length != Unknown || !x.HTTP10)
	x.status = h.Status
	x.out = x.appendHead(x.out, h)
	return x.out
}

// Chunks reports whether the body of the answer that Start has begun is in chunks.
func (x *Exchange) Chunks() bool { return x.chunks }

// Write writes a buffer of Start or Write, to which the next part was appended, and
// returns a buffer for what follows. It waits for a slow client, and reports whether there
// still is one.
func (x *Exchange) Write(buf []byte) (next []byte, ok bool) {
	x.write(buf[x.sent:])
	x.out, x.sent, x.base = buf[:0], 0, 0
	return x.out, x.conn.broken == nil
}

// End ends an answer that Start has begun, with a buffer as Write takes it, and with those
// lines as its trailers if it is in chunks.
func (x *Exchange) End(buf, trailers []byte) {
	if x.out = buf; x.chunks {
		x.out = append(append(append(x.out, "0\r\n"...), trailers...), lineEnd...)
	}
}

// Break ends an answer whose rest will not come. The client sees a connection that ends too
// early, behind the answers before; Answered gets the status that the request would have got.
func (x *Exchange) Break(status int) {
	x.out, x.status, x.conn.ending = x.out[:x.base], status, true
}

// flush writes the answers that wait, and waits for a slow client.
func (x *Exchange) flush() {
	if len(x.out) > x.sent {
		x.write(x.out[x.sent:])
	}
	x.sent, x.base = 0, 0
	if cap(x.out) <= keptBuffer {
		x.out = x.out[:0]
		return
	}
	bufpool.Put(x.out)
	x.out = x.first[:0]
}

// flushBefore writes the answers before the present one, which may be somebody else's.
func (x *Exchange) flushBefore() {
	if x.base > x.sent {
		x.write(x.out[x.sent:x.base])
		x.sent = x.base
	}
}

func (x *Exchange) write(b []byte) {
	c := x.conn
	c.write(b)
	c.ending = c.ending || c.broken != nil
}
