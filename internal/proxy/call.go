package proxy

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
)

// call serves the requests of an exchange of the front, one after another: it is their client.
type call struct {
	turn
	x       *httpfront.Exchange
	room    []byte  // of turn.head
	options options // of Connection
	look    rules.Request

	// The answer.
	buf  []byte  // of the exchange
	sent bool    // something of it has left
	out  *outlet // nil as long as the client takes what is there at once
}

// NewCall is httpfront.Handler's.
func (s *Server) NewCall(x *httpfront.Exchange) httpfront.Call {
	c := &call{x: x}
	c.s, c.client = s, c
	c.look = rules.Request{Path: c.path, Header: c.header}
	return c
}

// Refused is httpfront.Handler's.
func (s *Server) Refused(arrival int64) {
	took, strategy := time.Duration(s.Now()-arrival), *s.strategy.Load()
	s.o.Events.Answered(strategy, "other", http.StatusServiceUnavailable, served.Error, took, took)
	if s.o.Events.Served != nil {
		s.o.Events.Served(&served.Request{Outcome: served.Error, Request: slowest.Request{Strategy: strategy, Method: "other", Code: http.StatusServiceUnavailable, Took: took, Waited: took}})
	}
}

// Begin is httpfront.Call's.
func (c *call) Begin() {
	fields := c.fields[:0]
	if len(c.fields) > httpfront.KeptLines {
		fields = nil
	}
	c.turn = turn{s: c.s, client: c, peer: c.x.Peer(), name: c.name, request: request{fields: fields}}
	c.buf, c.sent, c.out, c.options = nil, false, nil, c.options[:0]
}

// Field is httpfront.Call's.
func (c *call) Field(name, value []byte) *httpfront.Problem {
	if !isToken(name) || !isValue(value) {
		bad := httpfront.BadRequest("malformed request: a header has a byte that is not allowed: " + httpfront.Quote(name) + ": " + httpfront.Quote(value))
		bad.Close = true
		return bad
	}
	kind := kindOf(name)
	switch kind {
	case hopConnection:
		c.options = append(append(c.options, value...), ',')
	case hopUpgrade:
		c.protocol = value
	}
	c.fields = append(c.fields, field{name, value, kind})
	return nil
}

// Lines is httpfront.Call's: no header is the same for all.
func (c *call) Lines() string { return "" }

// NoRoom is httpfront.Call's.
func (c *call) NoRoom() *httpfront.Problem {
	c.shed = strategies.ReasonFull
	bad := refusal.Problem(c.shed, refusal.Seconds(c.s.controller.Stats().Drain))
	bad.Detail = "the bodies of other requests leave no room for this one"
	return bad
}

// Head is httpfront.Call's.
func (c *call) Head() (httpfront.Wanted, *httpfront.Problem) {
	x, r := c.x, &c.request
	c.method, c.isHead = methodOf(x.RawMethod), x.Method == http.MethodHead
	r.target, r.host, r.version = x.Target, x.Host, "1.1"
	r.secure, r.framed, r.length = c.s.o.TLS != nil, x.Framed(), x.ContentLength()
	if x.HTTP10 {
		r.version = "1.0"
	}
	if len(x.Authority) > 0 { // the target was in absolute form
		r.host = x.Authority
		if len(r.target) == 0 || r.target[0] == '?' {
			r.target = append([]byte("/"), r.target...)
		}
	}
	if bad := r.check(x.RawMethod); bad != nil {
		return httpfront.Wanted{}, bad
	}
	switch {
	case x.Host == nil && !x.HTTP10:
		return httpfront.Wanted{}, httpfront.BadRequest("the header Host is missing")
	case r.host == nil:
		r.host = []byte(c.s.o.Upstreams[0].Host)
	}
	if c.protocol != nil && (x.HTTP10 || r.length != 0 || !c.options.has([]byte("upgrade")) || namesHTTP2(c.protocol)) {
		c.protocol = nil
	}
	if bad := c.ask(&c.look); bad != nil {
		return httpfront.Wanted{}, bad
	}
	c.arrived = x.Arrival
	c.writeHead(c.room, x.RawMethod, c.options)
	if c.room = c.head; cap(c.room) > keptRoom {
		c.room = nil
	}
	return httpfront.Wanted{Stream: true, Ahead: c.s.live.Load().BufferBytes, Takes: c.protocol != nil}, nil
}

// namesHTTP2 reports whether HTTP/2 is among protocols, which an upstream would speak past the queue.
func namesHTTP2(protocols []byte) bool {
	for protocol := range bytes.SplitSeq(bytes.ToLower(protocols), comma) {
		if bytes.HasPrefix(httpfront.Trim(protocol), []byte("h2")) {
			return true
		}
	}
	return false
}

// keptRoom is the largest head whose room stays in a call.
const keptRoom = 8 << 10

// Serve is httpfront.Call's. A client that does not take the answers before gets no other, and holds no place
// meanwhile.
func (c *call) Serve() {
	if !c.x.FlushBefore() {
		c.x.Break(codeLeft)
		return
	}
	c.arrived, c.strategy = c.x.Arrival, *c.s.strategy.Load()
	c.body = c.x.Body
	c.run()
}

// Answered is httpfront.Call's.
func (c *call) Answered(status int, cut bool, now int64) {
	if !c.running { // it is refused by its head
		c.arrived, c.strategy, c.code, c.target = c.x.Arrival, *c.s.strategy.Load(), status, c.x.Target
		if c.method == "" {
			c.method = methodOf(c.x.RawMethod)
		}
	}
	c.answered(cut, now)
}

// What follows is client's.

func (c *call) readBody(p []byte) (int, error) { return c.x.ReadBody(p) }
func (c *call) streams() bool                  { return c.x.Streams() }
func (c *call) stopBody()                      { c.x.StopBody() }
func (c *call) trailers() []byte               { return c.x.Trailers() }
func (c *call) proceed()                       { c.x.Continue() }
func (c *call) watch(f func())                 { c.x.Watch(f) }
func (c *call) unwatch()                       { c.x.Unwatch() }
func (c *call) left() bool                     { return c.x.Left() }
func (c *call) refuse(a httpfront.Answer)      { c.x.Send(a) }
func (c *call) interim(f *httpfront.Head)      { c.x.Interim(f) }
func (c *call) begin(f *httpfront.Head)        { c.buf = c.x.Start(f) }

// longPiece is how much of an answer is written at once.
const longPiece = 64 << 10

func (c *call) write(p []byte) bool {
	if c.out != nil {
		if c.x.Chunks() {
			var line [20]byte
			return c.out.put(httpfront.AppendChunk(line[:0], len(p)), p, lineEnd)
		}
		return c.out.put(p)
	}
	if c.x.Chunks() {
		c.buf = append(append(httpfront.AppendChunk(c.buf, len(p)), p...), lineEnd...)
	} else {
		c.buf = append(c.buf, p...)
	}
	return len(c.buf) < longPiece || c.flush()
}

var lineEnd = []byte("\r\n")

func (c *call) flush() (ok bool) {
	if c.out != nil {
		return c.out.there()
	}
	if len(c.buf) == 0 {
		return true
	}
	c.sent = true
	if c.buf, ok = c.x.WriteNow(c.buf); !ok || len(c.buf) == 0 {
		return ok
	}
	// The client is slow: what is left, and what comes, waits for it elsewhere.
	most := c.s.live.Load().BufferBytes
	if !c.x.Reserve(int64(most)) {
		most = 1
	}
	c.out = openOutlet(most, c.x.WriteSlowly, c.x.Hurry, c.heldUp)
	c.out.put(c.buf)
	c.buf = c.buf[:0]
	return true
}

// heldUp is called when the client keeps the answer, and with it the place, from going on.
func (t *turn) heldUp() {
	if t.held {
		t.permit.Tell(admission.Ignored) // how long that takes tells nothing of the upstream
	}
}

func (c *call) end(trailers []byte) {
	if c.out == nil {
		c.x.End(c.buf, trailers)
		return
	}
	if c.x.Chunks() {
		c.out.close([]byte("0\r\n"), trailers, lineEnd)
	} else {
		c.out.close()
	}
	c.x.Write(c.buf) // which is empty
}

func (c *call) retract() bool { return !c.sent }

func (c *call) breakOff(status int) {
	if c.out != nil {
		c.x.CutOff()
		c.out.close()
	}
	c.x.Break(status)
}

func (c *call) take() (io.Writer, io.Reader, func()) {
	c.x.End(c.buf, nil)
	nc, from, cut := c.x.Take()
	return nc, from, cut
}
