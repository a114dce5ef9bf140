package proxy

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/strategies"
)

// call serves the requests of an exchange of the front, one after another: it is their client.
type call struct {
	turn
	x      *httpfront.Exchange
	fields []field
	room   []byte // of turn.head
	look   rules.Request

	// The answer.
	buf  []byte  // of the exchange
	sent bool    // something of it has left
	out  *outlet // nil as long as the client takes what is there at once
}

type field struct {
	name, value []byte
	kind        kind
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
	took := time.Duration(s.Now() - arrival)
	s.o.Events.Answered(*s.strategy.Load(), "other", http.StatusServiceUnavailable, false, took, took)
}

// Begin is httpfront.Call's.
func (c *call) Begin() {
	if len(c.fields) > httpfront.KeptLines {
		c.fields = nil
	}
	c.turn = turn{s: c.s, client: c, peer: c.x.Peer(), name: c.name}
	c.fields, c.buf, c.sent, c.out = c.fields[:0], nil, false, nil
}

// Field is httpfront.Call's.
func (c *call) Field(name, value []byte) *httpfront.Problem {
	if !isToken(name) || !isValue(value) {
		bad := httpfront.BadRequest("malformed request: a header has a byte that is not allowed: " + httpfront.Quote(name) + ": " + httpfront.Quote(value))
		bad.Close = true
		return bad
	}
	c.fields = append(c.fields, field{name, value, kindOf(name)})
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
	x := c.x
	c.method, c.isHead = methodOf(x.RawMethod), x.Method == http.MethodHead
	switch {
	case x.Method == "other" && string(x.RawMethod) == http.MethodConnect:
		return httpfront.Wanted{}, connectRefused()
	case !isTarget(x.Target):
		if len(x.Authority) > 0 && len(x.Target) == 0 {
			x.Target = slash
			break
		}
		return httpfront.Wanted{}, httpfront.BadRequest("the target has a byte that is not allowed: " + httpfront.Quote(x.Target))
	case x.Host == nil && !x.HTTP10:
		return httpfront.Wanted{}, httpfront.BadRequest("the header Host is missing")
	}
	if x.Target[0] == '?' {
		x.Target = append([]byte("/"), x.Target...)
	}
	options, upgrade := "", []byte(nil)
	for i := range c.fields {
		switch f := &c.fields[i]; f.kind {
		case hopConnection:
			options += strings.ToLower(string(f.value)) + ","
		case hopUpgrade:
			upgrade = f.value
		}
	}
	length := x.ContentLength()
	c.bodiless, c.chunked, c.length = length == 0, length < 0, length
	if upgrade != nil && !x.HTTP10 && length == 0 && isNamed(strings.ReplaceAll(options, " ", ""), []byte("upgrade")) && !bytes.HasPrefix(bytes.ToLower(upgrade), []byte("h2")) {
		c.protocol = upgrade
	}
	c.writeHead(options)
	return httpfront.Wanted{Stream: true, Ahead: c.s.o.BufferBytes, Takes: c.protocol != nil}, nil
}

var slash = []byte("/")

func connectRefused() *httpfront.Problem {
	return &httpfront.Problem{Status: http.StatusMethodNotAllowed, Lines: "Allow: GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS\r\n", Detail: "the method CONNECT is not supported"}
}

// methodOf returns a method that HTTP defines as a string that is not made anew.
func methodOf(method []byte) string {
	for _, m := range [...]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, http.MethodTrace,
	} {
		if string(method) == m {
			return m
		}
	}
	return "other"
}

// writeHead makes the head for the upstream.
func (c *call) writeHead(options string) {
	x := c.x
	h := append(c.room[:0], x.RawMethod...)
	h = append(append(append(h, ' '), x.Target...), " HTTP/1.1\r\n"...)
	hostName := x.Host
	if len(x.Authority) > 0 {
		hostName = x.Authority
	}
	if hostName == nil {
		hostName = []byte(c.s.upstream.url.Host)
	}
	h = appendField(h, []byte("Host"), hostName)
	te := false
	only := strings.ReplaceAll(options, " ", "")
	var before forwardedBy
	for i := range c.fields {
		f := &c.fields[i]
		switch f.kind {
		case hop, hopConnection, hopUpgrade, framedLength, framedEncoding, expected, host:
			continue
		case hopTE:
			te = bytes.Contains(bytes.ToLower(f.value), []byte("trailers"))
			continue
		case forwarded:
			if !before.note(f.name, f.value) {
				continue
			}
		default:
		}
		if only != "" && f.kind != forwarded && isNamed(only, f.name) {
			continue
		}
		if f.kind != forwarded {
			h = appendField(h, f.name, f.value)
		}
	}
	proto := "http"
	if c.s.o.TLS != nil {
		proto = "https"
	}
	version := byte('1')
	if x.HTTP10 {
		version = '0'
	}
	h = before.append(h, c.s.o.TrustHeaders, c.peer, proto, hostName)
	h = append(append(append(h, "Via: 1."...), version), " "+via+"\r\n"...)
	if te {
		h = append(h, "TE: trailers\r\n"...)
	}
	c.head = endRequest(h, c.protocol, te, c.length, x.Framed())
	if c.room = c.head; cap(c.room) > keptRoom {
		c.room = nil
	}
}

// keptRoom is the largest head whose room stays in a call.
const keptRoom = 8 << 10

// endRequest appends the framing of a request, and the empty line.
func endRequest(h, protocol []byte, te bool, length int, framed bool) []byte {
	switch {
	case protocol != nil:
		h = append(h, "Connection: Upgrade\r\n"...)
		h = appendField(h, []byte("Upgrade"), protocol)
	case te:
		h = append(h, "Connection: TE\r\n"...)
	}
	switch {
	case length < 0:
		h = append(h, "Transfer-Encoding: chunked\r\n"...)
	case length > 0 || framed:
		h = append(h, "Content-Length: "...)
		h = append(strconv.AppendInt(h, int64(length), 10), "\r\n"...)
	}
	return append(h, "\r\n"...)
}

// forwardedBy is what earlier proxies, or a client, said of whom a request is forwarded for.
type forwardedBy struct {
	address     []byte // all lines, as one list
	proto, host []byte
}

// note takes a field, and reports false.
func (b *forwardedBy) note(name, value []byte) bool {
	switch {
	case len(name) == len("Forwarded"):
	case len(name) == len("X-Forwarded-For"):
		if b.address != nil {
			b.address = append(append(b.address[:len(b.address):len(b.address)], ", "...), value...)
		} else {
			b.address = value
		}
	case strings.EqualFold(string(name), "X-Forwarded-Proto"):
		b.proto = value
	default:
		b.host = value
	}
	return false
}

// append appends the lines for the upstream: what was said before counts only if it is trusted.
func (b *forwardedBy) append(h []byte, trusted bool, peer, proto string, hostName []byte) []byte {
	if !trusted {
		*b = forwardedBy{}
	}
	h = append(h, "X-Forwarded-For: "...)
	if len(b.address) > 0 {
		h = append(append(h, b.address...), ", "...)
	}
	h = append(append(h, peer...), "\r\nX-Forwarded-Proto: "...)
	if len(b.proto) > 0 {
		h = append(h, b.proto...)
	} else {
		h = append(h, proto...)
	}
	h = append(h, "\r\nX-Forwarded-Host: "...)
	if len(b.host) > 0 {
		h = append(h, b.host...)
	} else {
		h = append(h, hostName...)
	}
	return append(h, "\r\n"...)
}

// path returns the decoded path.
func (c *call) path() string {
	path, _, _ := bytes.Cut(c.x.Target, []byte("?"))
	if bytes.IndexByte(path, '%') >= 0 {
		if decoded, err := url.PathUnescape(string(path)); err == nil {
			return decoded
		}
	}
	return string(path)
}

// header returns the first value of a field.
func (c *call) header(name string) string {
	for i := range c.fields {
		if f := &c.fields[i]; len(f.name) == len(name) && httpfront.EqualFold(f.name, name) {
			return string(f.value)
		}
	}
	return ""
}

// Serve is httpfront.Call's.
func (c *call) Serve() {
	x := c.x
	c.arrived, c.strategy = x.Arrival, *c.s.strategy.Load()
	c.body = x.Body
	c.look.Peer = c.peer
	var urgency []byte
	if c.s.o.TrustHeaders {
		for i := range c.fields {
			if f := &c.fields[i]; len(f.name) == len("Priority") && httpfront.EqualFold(f.name, "Priority") {
				urgency = httpfront.Urgency(f.value, urgency)
			}
		}
	}
	c.ask(&c.look, urgency)
	c.run()
}

// ask finds out whose the request is, how important it is, and whether it waits.
func (t *turn) ask(r *rules.Request, urgency []byte) {
	o := &t.s.o
	t.asked = admission.Request{Client: o.Client.Of(r), Priority: o.Priorities.Of(r)}
	if o.TrustHeaders {
		if name := r.Header("Spillway-Client"); name != "" && len(name) <= longestClient {
			t.asked.Client = name
		}
		if p, ok := httpfront.ParseNumber([]byte(r.Header("Spillway-Priority"))); ok && p <= 7 {
			t.asked.Priority = strategies.Urgency(p)
		} else if urgency != nil {
			t.asked.Priority = strategies.Urgency(int(urgency[0] - '0'))
		}
		if ms, ok := httpfront.ParseNumber([]byte(r.Header("Spillway-Timeout-Ms"))); ok && ms <= longestTimeout {
			t.timeout = time.Duration(ms) * time.Millisecond
		}
	}
	if len(o.Routes) > 0 {
		t.route = o.Routes.Of(r.Path())
		t.asked.Route = t.route
	}
	t.exempt = len(o.Exempt) > 0 && o.Exempt.Has(r.Path()) || t.method[0] != 'P' && isHealthCheck(t.method, r.Path())
}

const (
	longestClient  = 128
	longestTimeout = 3_600_000 // ms
)

// Answered is httpfront.Call's.
func (c *call) Answered(status int, cut bool, now int64) {
	if !c.running { // it is refused by its head
		c.arrived, c.strategy, c.code = c.x.Arrival, *c.s.strategy.Load(), status
		if c.method == "" {
			c.method = methodOf(c.x.RawMethod)
		}
	}
	c.answered(cut, now)
	c.x.Hurry(false)
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
func (c *call) interim(f *httpfront.Forwarded) { c.x.Interim(f) }
func (c *call) begin(f *httpfront.Forwarded)   { c.buf = c.x.Forward(f) }

// longPiece is how much of an answer is written at once.
const longPiece = 64 << 10

func (c *call) write(p []byte) bool {
	if c.out != nil {
		if c.x.Chunks() {
			var line [20]byte
			return c.out.put(appendChunkSize(line[:0], len(p)), p, lineEnd)
		}
		return c.out.put(p)
	}
	if c.x.Chunks() {
		c.buf = append(append(appendChunkSize(c.buf, len(p)), p...), lineEnd...)
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
	most := c.s.o.BufferBytes
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
		c.x.EndForward(c.buf, trailers)
		return
	}
	if c.x.Chunks() {
		c.out.put([]byte("0\r\n"), trailers, lineEnd)
	}
	c.out.close()
	c.x.EndSlowly()
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
	c.x.EndForward(c.buf, nil)
	nc, from, cut := c.x.Take()
	return nc, from, cut
}
