package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/internal/socket"
	"github.com/spillway-go/spillway/strategies"
)

// http2s serves HTTP/2, each connection with the idle time-out that is in force when it comes. A server
// of net/http has one for ever, so there is one for each that connections have.
type http2s struct {
	s    *Server
	addr net.Addr

	mu   sync.Mutex
	open map[time.Duration]*http2 // by idle time-out; each has a connection
	over bool                     // none is opened any more
}

// serve serves a connection until it is closed.
func (h *http2s) serve(nc net.Conn) {
	idle := h.s.live.Load().IdleTimeout
	h.mu.Lock()
	one := h.open[idle]
	if one == nil && h.over {
		h.mu.Unlock()
		_ = nc.Close()
		return
	}
	if one == nil {
		one = openHTTP2(h.s, h.addr, idle)
		h.open[idle] = one
	}
	one.conns++
	h.mu.Unlock()
	one.serve(nc)
	h.mu.Lock()
	one.conns--
	unused := one.conns == 0
	if unused {
		delete(h.open, idle)
	}
	h.mu.Unlock()
	if unused {
		one.close()
	}
}

// end has no server opened any more, and returns those that are.
func (h *http2s) end() []*http2 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	return slices.Collect(maps.Values(h.open))
}

// close closes all connections.
func (h *http2s) close() {
	for _, one := range h.end() {
		one.close()
	}
}

// http2 serves HTTP/2 by net/http on connections that the front hands over.
type http2 struct {
	conns  int // of http2s
	server *http.Server
	queue  chan net.Conn
	closed context.Context
	stop   context.CancelFunc
	ends   sync.Map // net.Conn to chan struct{}, closed when it is
	done   sync.WaitGroup
	addr   net.Addr
}

func openHTTP2(s *Server, addr net.Addr, idle time.Duration) *http2 {
	h := &http2{queue: make(chan net.Conn), addr: addr}
	h.closed, h.stop = context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h.server = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP2),
		Protocols:         protocols,
		ReadHeaderTimeout: s.o.ReadTimeout,
		IdleTimeout:       idle,
		MaxHeaderBytes:    maxHead,
		ConnState: func(nc net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				if end, ok := h.ends.LoadAndDelete(nc); ok {
					close(end.(chan struct{}))
				}
			}
		},
		// What clients do wrong is theirs to notice.
		ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	h.done.Go(func() { _ = h.server.Serve(h) }) // until it is shut down
	return h
}

// serve serves a connection until it is closed.
func (h *http2) serve(nc net.Conn) {
	end := make(chan struct{})
	h.ends.Store(nc, end)
	select {
	case h.queue <- nc:
		<-end
	case <-h.closed.Done():
		_ = nc.Close()
	}
}

// close closes all connections.
func (h *http2) close() {
	h.stop()
	_ = h.server.Close()
	h.done.Wait()
}

// Accept is net.Listener's.
func (h *http2) Accept() (net.Conn, error) {
	select {
	case nc := <-h.queue:
		return nc, nil
	case <-h.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close is net.Listener's.
func (h *http2) Close() error {
	h.stop()
	return nil
}

// Addr is net.Listener's.
func (h *http2) Addr() net.Addr { return h.addr }

// stream is a request over HTTP/2: it is its client.
type stream struct {
	turn
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	expects bool
	ended   atomic.Bool // the body has been read
	stopped atomic.Bool // nobody wants the rest

	reserved int64
	stop     func() // ends watch

	// The answer.
	started bool
	out     *outlet
	held    []byte      // the beginning of the answer
	broken  bool        // the client did not take it
	cut     bool        // it broke off
	pace    socket.Pace // of taking it
	sending socket.Pace // of the body
	hurried atomic.Bool
}

// serveHTTP2 forwards a request.
func (s *Server) serveHTTP2(w http.ResponseWriter, r *http.Request) {
	c := &stream{w: w, r: r, control: http.NewResponseController(w)}
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		peer = r.RemoteAddr
	}
	c.turn = turn{s: s, client: c, peer: peer, method: methodOf([]byte(r.Method)), isHead: r.Method == http.MethodHead, arrived: s.Now(), strategy: *s.strategy.Load(), request: request{target: []byte(r.RequestURI)}}
	defer func() {
		c.answered(c.broken, s.Now())
		if c.reserved > 0 {
			s.front.Reserve(-c.reserved)
			bufpool.Put(c.body)
		}
		_ = c.control.SetWriteDeadline(time.Now().Add(s.live.Load().WriteTimeout))
		if c.cut {
			panic(http.ErrAbortHandler) // resets the stream
		}
	}()
	if problem := c.prepare(); problem != nil {
		c.code = problem.Status
		c.refuse(httpfront.Answer{Problem: problem})
		return
	}
	c.run()
}

// prepare makes the head for the upstream, and reads what is to be there of the body.
func (c *stream) prepare() *httpfront.Problem {
	r := c.r
	c.request = request{
		target: []byte(r.RequestURI), host: []byte(r.Host), version: strconv.Itoa(r.ProtoMajor) + "." + strconv.Itoa(r.ProtoMinor),
		secure: r.TLS != nil, framed: r.Header.Get("Content-Length") != "", length: int(r.ContentLength),
	}
	if bad := c.check([]byte(r.Method)); bad != nil {
		return bad
	}
	// net/http lets these pass, which RFC 9113 (8.1.1, 8.3.1) calls malformed.
	if c.target[0] != '/' && r.RequestURI != "*" {
		return httpfront.BadRequest("over HTTP/2 a target begins with a slash: " + httpfront.Quote(c.target))
	}
	if lengths := r.Header["Content-Length"]; len(lengths) > 0 {
		if _, err := strconv.ParseUint(lengths[0], 10, 63); err != nil || len(lengths) > 1 {
			return httpfront.BadRequest("Content-Length is not one number: " + httpfront.Quote([]byte(strings.Join(lengths, ", "))))
		}
	}
	for name, values := range r.Header {
		if name == "Cookie" { // HTTP/2 has it in pieces
			values = []string{strings.Join(values, "; ")}
		}
		for _, value := range values {
			c.fields = append(c.fields, field{[]byte(name), []byte(value), kindOf([]byte(name))})
		}
	}
	c.expects = strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	if bad := c.ask(&rules.Request{Path: c.path, Header: c.header}); bad != nil {
		return bad
	}
	c.writeHead(nil, []byte(r.Method), nil)
	c.ended.Store(c.length == 0)
	return c.readAhead()
}

// readAhead reads the beginning of the body.
func (c *stream) readAhead() *httpfront.Problem {
	most := c.s.live.Load().BufferBytes
	if c.length == 0 || c.expects {
		return nil
	}
	if c.length >= 0 {
		most = min(most, c.length)
	}
	until := time.Now().Add(c.s.live.Load().ReadTimeout)
	for have := 0; have < most && !c.ended.Load(); {
		if have == len(c.body) {
			room := min(most, max(4<<10, 2*have))
			if !c.s.front.Reserve(int64(room) - c.reserved) {
				c.shed = strategies.ReasonFull
				bad := refusal.Problem(c.shed, refusal.Seconds(c.s.controller.Stats().Drain))
				bad.Detail = "the bodies of other requests leave no room for this one"
				return bad
			}
			c.reserved = int64(room)
			larger := append(bufpool.Get(room), c.body...)[:room]
			bufpool.Put(c.body)
			c.body = larger
		}
		_ = c.control.SetReadDeadline(until)
		n, err := c.r.Body.Read(c.body[have:])
		have += n
		switch {
		case errors.Is(err, io.EOF):
			c.ended.Store(true)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &httpfront.Problem{Status: http.StatusRequestTimeout, Detail: "the request did not arrive in full within " + c.s.live.Load().ReadTimeout.String()}
		case err != nil:
			c.gone = true
			return &httpfront.Problem{Status: codeLeft, Detail: "the client has gone"}
		}
		if have == most || c.ended.Load() {
			c.body = c.body[:have]
			break
		}
	}
	if c.length >= 0 && len(c.body) == c.length {
		c.ended.Store(true)
	}
	_ = c.control.SetReadDeadline(time.Time{})
	return nil
}

func (c *stream) readBody(p []byte) (int, error) {
	begin := time.Now()
	_ = c.control.SetReadDeadline(begin.Add(c.s.live.Load().ReadTimeout))
	if c.stopped.Load() { // stopBody may have come before the deadline
		_ = c.control.SetReadDeadline(time.Unix(1, 0))
	}
	n, err := c.r.Body.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		c.ended.Store(true)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = httpfront.ErrSlow
	case err != nil:
		err = io.ErrUnexpectedEOF
	case c.sending.TooSlow(time.Since(begin), n):
		err = httpfront.ErrSlow
	}
	return n, err
}

func (c *stream) streams() bool { return !c.ended.Load() }
func (c *stream) proceed()      {} // net/http does, with the first read

func (c *stream) stopBody() {
	c.stopped.Store(true)
	_ = c.control.SetReadDeadline(time.Unix(1, 0))
}

func (c *stream) trailers() (lines []byte) {
	for name, values := range c.r.Trailer {
		for _, value := range values {
			lines = appendField(lines, []byte(name), []byte(value))
		}
	}
	return lines
}

func (c *stream) watch(f func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(c.r.Context(), func() {
		defer close(done)
		f()
	})
	c.stop = func() {
		if !stop() {
			<-done // what it ends is another's from here on
		}
	}
}

func (c *stream) left() bool { return c.r.Context().Err() != nil }

func (c *stream) unwatch() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

func (c *stream) refuse(a httpfront.Answer) {
	p := a.Problem
	h := c.w.Header()
	clear(h)
	setLines(h, []byte(p.Lines))
	h.Set("Content-Type", "application/problem+json")
	if p.Status == codeLeft {
		return
	}
	c.w.WriteHeader(p.Status)
	_, _ = c.w.Write(p.JSON())
}

// setLines adds lines of a head.
func setLines(h http.Header, lines []byte) {
	for len(lines) > 0 {
		var name, value []byte
		if name, value, lines, _ = cutField(lines); name != nil {
			h.Add(string(name), string(value))
		}
	}
}

// interim drops an interim answer. When a stream is reset, net/http may still read its header map after WriteHeader
// has returned, so that the map could never be used for the next answer.
func (c *stream) interim(*httpfront.Head) {}

func (c *stream) begin(f *httpfront.Head) {
	h := c.w.Header()
	setLines(h, f.Lines)
	if f.Length >= 0 {
		h.Set("Content-Length", strconv.Itoa(f.Length))
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // it is not for net/http to guess
	}
	c.held = bufpool.Get(4 << 10)
}

// streamPiece is how much of an answer a client of HTTP/2 has to take within the time. Flow
// control may hold a stream up while its connection makes progress.
const streamPiece = 4 << 10

// send writes to the client, and waits for it.
func (c *stream) send(p []byte) bool {
	for len(p) > 0 {
		piece := p[:min(len(p), streamPiece)]
		_ = c.control.SetWriteDeadline(time.Now().Add(c.s.live.Load().WriteTimeout))
		begin := time.Now()
		n, err := c.w.Write(piece)
		if err == nil && len(piece) == len(p) {
			err = c.control.Flush()
		}
		waited := time.Since(begin)
		if err != nil || c.hurried.Load() && waited > time.Millisecond && c.pace.TooSlow(waited, n) {
			return false
		}
		p = p[n:]
	}
	_ = c.control.SetWriteDeadline(time.Time{}) // the upstream may take its time
	return true
}

func (c *stream) start() {
	if !c.started {
		c.started = true
		c.w.WriteHeader(c.code)
	}
}

func (c *stream) write(p []byte) bool {
	if c.out == nil {
		c.held = append(c.held, p...)
		return len(c.held) < longPiece || c.flush()
	}
	return c.out.put(p)
}

func (c *stream) flush() bool {
	if c.out == nil {
		c.start()
		most := c.s.live.Load().BufferBytes
		if c.s.front.Reserve(int64(most)) {
			c.reserved += int64(most)
		} else {
			most = 1
		}
		c.out = openOutlet(most, c.send, c.hurried.Store, c.heldUp)
		_ = c.control.Flush()
		c.out.put(c.held)
		return true
	}
	return c.out.there()
}

func (c *stream) end(trailers []byte) {
	if c.out != nil {
		c.out.close()
		c.broken = !c.out.there()
	} else {
		c.start()
		c.broken = !c.send(c.held)
	}
	bufpool.Put(c.held)
	h := c.w.Header()
	extra := http.Header{}
	setLines(extra, trailers)
	for name, values := range extra {
		h[http.TrailerPrefix+name] = values
	}
}

func (c *stream) retract() bool {
	if c.started {
		return false
	}
	clear(c.w.Header())
	return true
}

func (c *stream) breakOff(int) {
	if c.out != nil {
		_ = c.control.SetWriteDeadline(time.Unix(1, 0))
		c.out.close()
	}
	c.cut = true
}

func (c *stream) take() (io.Writer, io.Reader, func()) { panic("HTTP/2 has no upgrades") }
