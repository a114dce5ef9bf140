package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
)

// shedHeader says why a request was turned away. Only those that reached no upstream
// carry it.
const shedHeader = "Spillway-Shed"

// via is how the proxy calls itself (RFC 9110, 7.6.3).
const via = "spillway"

// handler returns what serves each request.
func (s *Server) handler() http.Handler {
	o := &s.o
	reverse := &httputil.ReverseProxy{
		Rewrite:        s.rewrite,
		Transport:      oneMoreAttempt{s.upstream, o.Timeout},
		ModifyResponse: modify,
		ErrorHandler:   s.fail,
		BufferPool:     new(buffers),
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	admitted := admissionhttp.Options{
		Request: func(r *http.Request) admission.Request {
			asked := admission.Request{Client: o.Client.Of(r), Priority: o.Priorities.Of(r)}
			recordOf(r).asked = asked
			return asked
		},
		Exempt:       func(r *http.Request) bool { return admissionhttp.HealthCheck(r) || o.Exempt.Has(r.URL.Path) },
		Hold:         o.Hold,
		BufferBody:   -1, // body bounds the time of each piece
		TrustHeaders: o.TrustHeaders,
	}.Handler(s.controller, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recordOf(r).begun = s.Now()
		reverse.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := &record{ResponseWriter: w, server: s, request: r, strategy: *s.strategy.Load(), arrived: s.Now()}
		s.unfinished.Add(1)
		defer record.end()
		defer record.boundEnd()
		if r.Body != nil && r.Body != http.NoBody {
			b := &body{ReadCloser: r.Body, control: http.NewResponseController(w), timeout: o.ReadTimeout, record: record}
			defer b.leave()
			r.Body = b
		}
		switch {
		case r.Method == http.MethodConnect:
			record.Header().Set("Allow", "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS")
			problem(record, http.StatusMethodNotAllowed, "the method CONNECT is not supported")
			return
		case r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0):
			// A client that frames a body in two ways may mean what follows as part of
			// it. Nothing that follows is read.
			record.Header().Set("Connection", "close")
		}
		ctx := context.WithValue(r.Context(), recordKey{}, record)
		admitted.ServeHTTP(record, r.WithContext(ctx))
	})
}

// rewrite makes the request for the upstream. The reverse proxy has removed its hop-by-hop
// headers, and Forwarded and X-Forwarded-*.
func (s *Server) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = s.upstream.url.Scheme, s.upstream.url.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it was written
	p.Out.Host = p.In.Host
	if s.o.TrustHeaders {
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} {
		if before := p.In.Header[name]; s.o.TrustHeaders && len(before) > 0 {
			p.Out.Header[name] = before
		}
	}
	p.Out.Header.Add("Via", strconv.Itoa(p.In.ProtoMajor)+"."+strconv.Itoa(p.In.ProtoMinor)+" "+via)
	if _, ok := p.In.Header["User-Agent"]; !ok {
		p.Out.Header["User-Agent"] = nil // not that of net/http
	}
}

// modify makes the answer for the client.
func modify(answer *http.Response) error {
	answer.Header.Del(shedHeader)
	answer.Header.Add("Via", strconv.Itoa(answer.ProtoMajor)+"."+strconv.Itoa(answer.ProtoMinor)+" "+via)
	return nil
}

// fail answers in the place of an upstream that has not.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	record := recordOf(r)
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case record.slow.Load(): // before the others: it may have made the upstream's connection fail
		record.ofClient = true
		w.Header().Set("Connection", "close")
		problem(w, http.StatusRequestTimeout, "the request's body came too slowly")
	case errors.Is(context.Cause(r.Context()), errStopping):
		problem(w, http.StatusServiceUnavailable, "the proxy is stopping, and the upstream had not answered yet")
	case r.Context().Err() != nil:
		record.ofClient = true
		problem(w, http.StatusBadGateway, "the client has gone")
	case isDial(err):
		problem(w, http.StatusBadGateway, "the upstream cannot be reached")
	case ok && timeout.Timeout():
		s.upstream.noAnswer(r.Method, err, time.Now())
		problem(w, http.StatusGatewayTimeout, "the upstream did not answer within "+s.o.Timeout.String())
	default:
		s.upstream.noAnswer(r.Method, err, time.Now())
		problem(w, http.StatusBadGateway, "the upstream closed the connection, or its answer is not valid HTTP")
	}
}

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// problem answers with a problem (RFC 9457), in whose detail nothing has to be escaped.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"title":"`+http.StatusText(status)+`","status":`+strconv.Itoa(status)+`,"detail":"`+detail+"\"}\n")
}

var (
	// errAttempts is why a request is given up after its second connection.
	errAttempts = errors.New("the upstream closed two connections on this request")
	errSilent   = errors.New("the upstream sent nothing more in the midst of its answer")
)

// oneMoreAttempt bounds the attempts of a request to two. The transport makes the second by
// itself: if nothing of the request has been written, or if it is idempotent, has no body,
// and its kept-alive connection had been closed.
//
// It also bounds the wait for each piece of an answer by the timeout, so that an upstream
// that hangs holds no place. Upgrades and event streams may be silent.
type oneMoreAttempt struct {
	upstream *upstream
	timeout  time.Duration
}

// RoundTrip is http.RoundTripper's.
func (t oneMoreAttempt) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	attempts := 0
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if attempts++; attempts > 2 {
			cancel(errAttempts)
		}
	}})
	answer, err := t.upstream.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	// The context has to live as long as the body, which upgrades write to as well.
	switch body := answer.Body.(type) {
	case io.ReadWriteCloser:
		answer.Body = duplex{body, cancel}
	default:
		b := &simplex{body, cancel, nil, t.timeout}
		if !isEventStream(answer.Header) {
			b.timer = time.AfterFunc(t.timeout, func() {
				cancel(errSilent)
				t.upstream.noAnswer(r.Method, errSilent, time.Now())
			})
			b.timer.Stop()
		}
		answer.Body = b
	}
	return answer, nil
}

// isEventStream tells as httputil.ReverseProxy does, which flushes each event.
func isEventStream(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return media == "text/event-stream"
}

type simplex struct {
	io.ReadCloser
	cancel  context.CancelCauseFunc
	timer   *time.Timer // runs during a Read, or is nil
	timeout time.Duration
}

func (b *simplex) Read(p []byte) (int, error) {
	if b.timer != nil {
		b.timer.Reset(b.timeout)
		defer b.timer.Stop()
	}
	return b.ReadCloser.Read(p)
}

func (b *simplex) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

type duplex struct {
	io.ReadWriteCloser
	cancel context.CancelCauseFunc
}

func (b duplex) Close() error {
	defer b.cancel(nil)
	return b.ReadWriteCloser.Close()
}

// body is the body of a request. Each Read of it has the timeout.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	record  *record

	mu   sync.Mutex
	left bool // the deadline is net/http's
}

// Read is io.Reader's.
func (b *body) Read(p []byte) (int, error) {
	b.setDeadline(time.Now().Add(b.timeout))
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.setDeadline(time.Time{}) // what comes after the body may take its time
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.record.slow.Store(true) // and the deadline stays, for net/http tries to read the rest
	}
	return n, err
}

func (b *body) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.left {
		_ = b.control.SetReadDeadline(t) // where it cannot be set it is not needed
	}
}

// leave hands the rest of the body to net/http, which reads some of it around the answer.
func (b *body) leave() {
	b.setDeadline(time.Now().Add(b.timeout))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
}

// record follows a request until its answer.
type record struct {
	http.ResponseWriter
	server         *Server
	request        *http.Request
	strategy       string
	asked          admission.Request // as the rules say
	arrived, begun int64             // on the server's clock; begun is 0 for what was not let through
	head           int64             // when the headers were sent, 0 before
	code           int               // 0 before the headers
	counted        bool
	stream         bool        // it was counted at its headers
	ofClient       bool        // it failed by the client's fault
	slow           atomic.Bool // the client's body did not come in time
}

type recordKey struct{}

func recordOf(r *http.Request) *record { return r.Context().Value(recordKey{}).(*record) }

// Unwrap is for http.ResponseController.
func (w *record) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader is http.ResponseWriter's.
func (w *record) WriteHeader(code int) {
	if code < 200 {
		w.Header().Del(shedHeader) // of an upstream's hint
	} else if _, ok := w.Header()["Content-Type"]; !ok {
		w.Header()["Content-Type"] = nil // it is not for net/http to guess
	}
	if w.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		w.code, w.head = code, w.server.Now()
		if code == http.StatusSwitchingProtocols || isEventStream(w.Header()) {
			defer w.goesOn()
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write is http.ResponseWriter's.
func (w *record) Write(p []byte) (n int, err error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.request.ProtoMajor < 2 {
		return w.ResponseWriter.Write(p)
	}
	for n < len(p) && err == nil {
		var m int
		w.bound(func() { m, err = w.ResponseWriter.Write(p[n:min(n+streamPiece, len(p))]) })
		n += m
	}
	return n, err
}

// streamPiece is how much of an answer a client of HTTP/2 has to take within the time.
const streamPiece = 4 << 10

// Flush is http.Flusher's.
func (w *record) Flush() {
	w.bound(func() { _ = http.NewResponseController(w.ResponseWriter).Flush() })
}

// bound bounds the time of a write to a stream of HTTP/2. Flow control may hold the stream
// up while its connection, at which socket.Conn looks, makes progress.
func (w *record) bound(write func()) {
	w.boundEnd()
	write()
	if w.request.ProtoMajor > 1 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Time{}) // the upstream may take its time
	}
}

// boundEnd bounds the time of all that is written to such a stream from now on.
func (w *record) boundEnd() {
	if w.request.ProtoMajor > 1 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.server.o.WriteTimeout))
	}
}

// Hijack hands the connection over: it is an upgrade.
func (w *record) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.code == 0 {
		w.code = http.StatusSwitchingProtocols
		w.goesOn()
	}
	return conn, rw, err
}

// goesOn counts the request at its headers: how long it goes on from there is nobody's
// latency.
func (w *record) goesOn() {
	if !w.counted {
		w.stream = true
		w.server.streams.Add(1)
		w.finish()
	}
}

// end is called when the request has been served.
func (w *record) end() {
	w.finish()
	if w.stream {
		w.server.streams.Add(-1)
	}
}

// finish counts the request.
func (w *record) finish() {
	if w.counted {
		return
	}
	w.counted = true
	s, now := w.server, w.server.Now()
	s.unfinished.Add(-1)
	code, reason := w.code, w.Header().Get(shedHeader)
	const clientClosedRequest = 499
	if w.ofClient || code == 0 && w.request.Context().Err() != nil {
		code = clientClosedRequest
	}
	took := time.Duration(now - w.arrived)
	head := took
	if w.head != 0 {
		head = time.Duration(w.head - w.arrived)
	}
	if code == clientClosedRequest && !w.slow.Load() || reason == strategies.ReasonAbandoned.String() {
		s.o.Events.Left(took)
	}
	s.o.Events.Answered(w.strategy, w.request.Method, code, reason != "", head, took)
	s.o.Events.Asked(uint8(w.asked.Priority.Class()), []byte(w.asked.Client), w.request.Method, code, reason != "", head)
	if !s.o.Slowest.Wants(took, now) {
		return
	}
	q := slowest.Request{
		Answered: now, Strategy: w.strategy, Method: w.request.Method, Code: code, Shed: reason,
		ValueBytes: int(max(0, w.request.ContentLength)), Took: took, Waited: took,
	}
	if w.begun > 0 {
		q.Waited, q.Ran = time.Duration(w.begun-w.arrived), time.Duration(now-w.begun)
	}
	s.o.Slowest.Add(q)
}

// buffers are those through which bodies pass.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get is httputil.BufferPool's.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

// Put is httputil.BufferPool's.
func (b *buffers) Put(buffer []byte) {
	if len(buffer) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(buffer))
	}
}
