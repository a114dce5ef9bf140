package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
)

// client is who has sent a request, over HTTP/1.1 or HTTP/2. One goroutine may call the
// methods of the body while another calls the others.
type client interface {
	// readBody reads of the body what was not there before the request waited, until io.EOF.
	// streams reports whether there is such a rest. stopBody has readBody return an error.
	readBody(p []byte) (int, error)
	streams() bool
	stopBody()
	// trailers are those of the body, which has been read.
	trailers() []byte
	// proceed lets a client send its body that waits for that.
	proceed()

	// watch has f called once the client has left, until unwatch, when f has ended. left reports
	// whether it has left.
	watch(f func())
	unwatch()
	left() bool

	// refuse answers with a problem, before begin.
	refuse(a httpfront.Answer)
	interim(f *httpfront.Head)
	// begin begins an answer. write takes more of its body, and waits only if more is held
	// than the buffer has room for. flush sends what was written, without waiting. They
	// report whether the client takes any more.
	begin(f *httpfront.Head)
	write(p []byte) bool
	flush() bool
	// end ends it. It may wait for the client.
	end(trailers []byte)
	// retract takes the answer back if nothing of it was sent, and reports whether it could.
	retract() bool
	// breakOff ends the connection, or the stream, so that the answer looks whole to nobody.
	breakOff(status int)
	// take hands the connection over to be relayed to and from, after begin.
	take() (io.Writer, io.Reader, func())
}

// turn is a request on its way: in the queue, at the upstream, and back.
type turn struct {
	s      *Server
	client client

	// What the request is.
	request
	method   string // one that HTTP defines, or other
	head     []byte // for the upstream, with the empty line
	body     []byte // what of it was there before the request waited
	isHead   bool
	protocol []byte // that it wants to switch to, nil for none
	peer     string
	route    string
	exempt   bool
	asked    admission.Request
	had      time.Duration // for how long it had its place
	name     []byte        // of its client, for the events

	span        served.Span // nil if there is none
	traceparent []byte
	timeout     time.Duration // until its deadline, 0 for none

	// What becomes of it. Times are on the server's clock.
	permit   admission.Permit
	held     bool // it has a place
	deadline time.Time
	strategy string
	arrived  int64
	begun    int64 // when it had its place, 0 before
	headAt   int64 // when the head of the upstream's answer came, 0 before, and if the proxy answers in its place
	code     int
	shed     strategies.Reason
	gone     bool // the client left
	stream   bool // it was counted at its headers
	counted  bool
	running  bool // run has been called

	conn *upConn
	pump *pump // nil if there is none
}

// chunked reports whether the upstream gets the body in chunks.
func (t *turn) chunked() bool { return t.length < 0 }

// pump is the sending of a body that was not all there before the request waited. Its
// goroutine owns the client's body.
type pump struct {
	done chan struct{} // closed at its end
	err  error         // the client's
	bad  error         // the upstream's

	stopping atomic.Bool // nobody wants the rest
}

// idempotent are the methods of which a request without a body may be sent again.
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// run has the request wait for its turn, forwards it, and answers it.
func (t *turn) run() {
	s := t.s
	s.unfinished.Add(1)
	t.running = true
	defer t.finish()
	if !t.exempt && !t.acquire() {
		return
	}
	t.begun = s.Now()
	err := t.forward()
	if t.conn != nil {
		s.upstream.close(t.conn)
		t.conn = nil
	}
	if err != nil {
		t.fail(err)
	}
}

// acquire waits for a place, and reports whether the request has got it. Otherwise it has
// been answered.
func (t *turn) acquire() bool {
	s := t.s
	if t.timeout == 0 {
		var ok bool
		if t.permit, ok = s.controller.TryAcquire(t.asked); ok {
			t.held = true
			return true
		}
	}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	if t.timeout > 0 {
		t.deadline = s.o.Epoch.Add(time.Duration(t.arrived) + t.timeout)
		var end context.CancelFunc
		ctx, end = context.WithDeadline(ctx, t.deadline)
		defer end()
	}
	t.client.watch(leave)
	var err error
	t.permit, err = s.controller.Acquire(ctx, t.asked)
	t.client.unwatch()
	if err == nil {
		t.held = true
		return true
	}
	shed, ok := errors.AsType[*admission.ShedError](err)
	if !ok { // of a rule that makes no sense, which none does
		t.refuse(http.StatusInternalServerError, err.Error())
		return false
	}
	t.shed = shed.Reason
	a := httpfront.Answer{Problem: refusal.Answer(shed.Reason, shed.RetryAfter)}
	t.code = a.Problem.Status
	if shed.Reason == strategies.ReasonAbandoned {
		t.gone, t.code, a.Close = true, codeLeft, true
	}
	t.client.refuse(a)
	return false
}

// codeLeft is nginx's code for clients that close the connection; no client ever sees it.
const codeLeft = 499

func (t *turn) refuse(status int, detail string) {
	t.code = status
	t.client.refuse(httpfront.Answer{Problem: &httpfront.Problem{Status: status, Detail: detail}})
}

// release gives the place back, and says how the request ended.
func (t *turn) release(how admission.Outcome) {
	if !t.held {
		return
	}
	t.held = false
	t.had = time.Duration(t.s.Now() - t.begun)
	if how == admission.Good && !t.deadline.IsZero() && !time.Now().Before(t.deadline) {
		how = admission.Dropped
	}
	t.permit.Done(how)
}

// outcome is what an answer with a status tells of the upstream.
func outcome(status int) admission.Outcome {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return admission.Dropped
	case http.StatusRequestTimeout, http.StatusTooManyRequests, codeLeft:
		return admission.Ignored // it is the client's fault, or its own limit
	}
	return admission.Good
}

// The errors of forward that are nobody's but the client's.
var (
	errLeft = errors.New("the client has gone")
	errSlow = errors.New("the request's body came too slowly")
)

// brokenBody is an error of the client's framing of its body.
type brokenBody struct{ error }

// forward sends the request and relays the answer. An error says why there was none, or not
// all of it.
func (t *turn) forward() error {
	for attempt := 0; ; attempt++ {
		err := t.attempt(attempt > 0)
		again := err != nil && attempt == 0 && t.conn != nil && t.conn.reused && errors.As(err, new(stale))
		if !again {
			return t.blame(err)
		}
		t.s.upstream.close(t.conn)
		t.conn = nil
	}
}

// stale is the error of a connection that was kept, and that had been closed: the request may
// be sent again.
type stale struct{ error }

func (e stale) Unwrap() error { return e.error }

// blame returns whose fault it is, if err is not the upstream's.
func (t *turn) blame(err error) error {
	if err == nil {
		return nil
	}
	t.stopPump()
	p := t.pump
	if p == nil {
		p = new(pump)
	}
	switch {
	case errors.Is(p.err, httpfront.ErrSlow):
		return errSlow
	case p.err != nil && !t.client.left() && !errors.Is(p.err, io.ErrUnexpectedEOF):
		return brokenBody{p.err}
	case p.err != nil, errors.Is(err, errLeft), t.client.left():
		return errLeft
	}
	return err
}

// attempt sends the request once.
func (t *turn) attempt(fresh bool) error {
	if err := t.connect(fresh); err != nil {
		return err
	}
	c, s := t.conn, t.s
	t.client.watch(c.end)
	defer t.client.unwatch()
	sent, err := t.send()
	if err == nil && t.client.streams() {
		c.wait(0) // until all is sent
		t.startPump()
	} else {
		c.wait(s.live.Load().Timeout)
	}
	var got error
	for interim := 0; ; interim++ {
		if got = c.readHead(t.isHead); got != nil {
			break
		}
		if err != nil { // it has not taken all of the request
			c.keeps = false
		}
		status := c.head.Status
		if status == http.StatusSwitchingProtocols && (t.protocol == nil || c.protocol == nil) {
			return errUpgrade
		}
		if status >= 200 || status == http.StatusSwitchingProtocols {
			return t.relay()
		}
		if interim == maxInterim {
			return errInterim
		}
		if status != http.StatusContinue { // which is the proxy's to say
			t.client.interim(&c.head)
		}
		c.reused = false // it is there
	}
	// What came tells more than why not all could be sent.
	dead := len(c.text) == 0 && !errors.Is(got, os.ErrDeadlineExceeded)
	if dead && !c.wasInterrupted() && (sent == 0 && s.upstream.tls == nil || t.length == 0 && idempotent(t.method)) {
		return stale{got}
	}
	return got
}

// connect takes a connection to the upstream.
func (t *turn) connect(fresh bool) (err error) {
	s := t.s
	if !fresh {
		// Mostly there is one, and nothing to be waited for.
		if t.conn = s.upstream.kept(); t.conn != nil {
			return nil
		}
	}
	ctx, leave := context.WithCancel(s.upstream.end)
	defer leave()
	t.client.watch(leave)
	t.conn, err = s.upstream.open(ctx)
	t.client.unwatch()
	if err != nil && s.upstream.end.Err() == nil && ctx.Err() != nil {
		return errLeft
	}
	return err
}

// smallBody is the largest body that is copied behind the head, to be sent as one.
const smallBody = 8 << 10

// send sends the head and what is there of the body, and returns how many bytes were sent.
func (t *turn) send() (n int, err error) {
	c := t.conn
	first, rest := t.head, t.body
	if t.chunked() && len(rest) > 0 {
		first = httpfront.AppendChunk(first, len(rest))
	}
	if len(rest) <= smallBody {
		first, rest = append(first, rest...), nil
	}
	end := t.chunked() && !t.client.streams()
	if rest == nil && t.chunked() {
		first = t.endChunks(first, len(t.body) > 0, end)
	}
	n, err = c.nc.Write(first)
	if err == nil && rest != nil {
		var m int
		m, err = c.nc.Write(rest)
		if n += m; err == nil && t.chunked() {
			_, err = c.nc.Write(t.endChunks(nil, true, end))
		}
	}
	if cap(first) <= maxHead {
		t.head = first[:len(t.head)] // it may have grown, and be wanted again
	}
	return n, err
}

// endChunks appends what stands behind a chunk, and at the end of the last.
func (t *turn) endChunks(dst []byte, chunk, last bool) []byte {
	if chunk {
		dst = append(dst, "\r\n"...)
	}
	if last {
		dst = append(dst, "0\r\n"...)
		dst, _ = filterTrailers(dst, t.client.trailers())
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// startPump has the rest of the body sent.
func (t *turn) startPump() {
	t.client.proceed()
	p := &pump{done: make(chan struct{})}
	t.pump = p
	go t.runPump(p, t.conn)
}

const pumpBuffer = 32 << 10

func (t *turn) runPump(p *pump, c *upConn) {
	defer close(p.done)
	const room = 16 // for the line before a chunk
	buffer := bufpool.Get(room + pumpBuffer + 2)
	defer bufpool.Put(buffer)
	buffer = buffer[:cap(buffer)]
	for {
		n, err := t.client.readBody(buffer[room : room+pumpBuffer])
		if n > 0 {
			piece := buffer[room : room+n]
			if t.chunked() {
				var line [room]byte
				size := httpfront.AppendChunk(line[:0], n)
				copy(buffer[room-len(size):], size)
				copy(buffer[room+n:], "\r\n")
				piece = buffer[room-len(size) : room+n+2]
			}
			if _, p.bad = c.nc.Write(piece); p.bad != nil {
				// It may have answered all the same.
				c.wait(t.s.live.Load().Timeout)
				return
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			if !p.stopping.Load() {
				p.err = err
			}
			c.interrupt()
			return
		}
		if t.chunked() {
			_, p.bad = c.nc.Write(t.endChunks(buffer[:0], false, true))
		}
		c.wait(t.s.live.Load().Timeout)
		return
	}
}

// stopPump ends the sending of the body, and reports whether it had not ended.
func (t *turn) stopPump() (stopped bool) {
	p := t.pump
	if p == nil {
		return false
	}
	select {
	case <-p.done:
	default:
		stopped = true
		p.stopping.Store(true)
		t.client.stopBody()
		if t.conn != nil {
			t.conn.interrupt()
		}
		<-p.done
	}
	return stopped
}

// relay sends the answer on whose head has come.
func (t *turn) relay() error {
	c, s := t.conn, t.s
	t.headAt, t.code = s.Now(), c.head.Status
	switching := t.code == http.StatusSwitchingProtocols
	if s.live.Load().Hold.atHeaders(t.method, switching, c.events) {
		t.release(outcome(t.code))
	}
	if switching || c.events && t.method == http.MethodGet { // it has no end of its own
		t.goesOn()
	}
	if switching {
		return t.tunnel()
	}
	t.client.begin(&c.head)
	patience := s.live.Load().Timeout
	if c.events { // it may be silent
		patience = 0
	}
	gone := false
	wait := func() {
		gone = !t.client.flush() || gone
		c.wait(patience)
	}
	for {
		b, err := c.next(wait)
		if errors.Is(err, io.EOF) {
			break
		}
		if gone {
			return errLeft
		}
		if err != nil {
			return err
		}
		if !t.client.write(b) {
			return errLeft
		}
	}
	t.client.unwatch()
	unfinished := t.stopPump()
	t.release(outcome(t.code))
	trailers := slices.Clone(c.trailers) // the connection is another's from here on
	if c.keeps && !unfinished && c.r.Buffered() == 0 && (t.pump == nil || t.pump.bad == nil) {
		s.upstream.put(c)
	} else {
		s.upstream.close(c)
	}
	t.conn = nil
	t.client.end(trailers)
	return nil
}

// tunnel relays an upgraded connection both ways until either side has ended both.
func (t *turn) tunnel() error {
	c := t.conn
	head := c.head
	head.Lines = append(head.Lines, "Connection: Upgrade\r\n"...)
	head.Lines = appendField(head.Lines, []byte("Upgrade"), c.protocol)
	head.Length = httpfront.None
	c.head.Lines = head.Lines
	t.client.unwatch()
	t.client.begin(&head)
	to, from, closeBoth := t.client.take()
	c.wait(0)
	var up sync.WaitGroup
	up.Go(func() {
		_, err := io.Copy(c.nc, from)
		if w, ok := c.nc.(interface{ CloseWrite() error }); err != nil || !ok || w.CloseWrite() != nil {
			c.interrupt()
		}
	})
	_, err := io.Copy(to, c.r)
	if w, ok := to.(interface{ CloseWrite() error }); err != nil || !ok || w.CloseWrite() != nil {
		closeBoth()
	}
	if c.wasInterrupted() {
		closeBoth()
	}
	up.Wait()
	closeBoth()
	return nil
}

// fail answers in the place of the upstream, if nothing of its answer was sent; otherwise the
// answer breaks off, which is 499 if that is the client's doing, and 502 else.
func (t *turn) fail(err error) {
	status, detail, how := t.why(err)
	t.release(how)
	t.code = status
	if status != codeLeft && (t.headAt == 0 || t.client.retract()) {
		t.headAt = 0
		t.client.refuse(httpfront.Answer{Problem: &httpfront.Problem{Status: status, Detail: detail, Close: status < 500}})
		return
	}
	if t.gone = status < 500; t.gone {
		t.code = codeLeft
	} else {
		t.code = http.StatusBadGateway
	}
	t.client.breakOff(t.code)
}

// why says what a client is told of an error, with a status below 500 if it is its own, and what
// that tells of the upstream.
func (t *turn) why(err error) (status int, detail string, how admission.Outcome) {
	var broken brokenBody
	switch {
	case errors.Is(err, errLeft):
		return codeLeft, "", admission.Ignored
	case errors.Is(err, errSlow):
		return http.StatusRequestTimeout, err.Error(), admission.Ignored
	case errors.As(err, &broken):
		return http.StatusBadRequest, "malformed request: " + broken.Error(), admission.Ignored
	case t.s.stopping.Load():
		return http.StatusServiceUnavailable, "the proxy is stopping, and the upstream had not answered yet", admission.Ignored
	}
	t.s.upstream.noAnswer(t.method, err, time.Now())
	status, detail = http.StatusBadGateway, "the upstream closed the connection, or its answer is not valid HTTP"
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.As(err, new(errDial)):
		detail = "the upstream cannot be reached"
	case ok && timeout.Timeout() && t.headAt == 0:
		status, detail = http.StatusGatewayTimeout, "the upstream did not answer within "+t.s.live.Load().Timeout.String()
	case ok && timeout.Timeout():
		detail = "the upstream's answer went silent for " + t.s.live.Load().Timeout.String()
	}
	return status, detail, admission.Dropped
}

// goesOn counts the request at its headers: how long it goes on from there is nobody's
// latency.
func (t *turn) goesOn() {
	t.stream = true
	t.s.streams.Add(1)
	t.count(t.headAt)
}

// finish is called when nothing of the request is left but perhaps bytes on their way to the
// client.
func (t *turn) finish() {
	t.release(admission.Ignored) // if it has panicked
	if t.stream {
		t.s.streams.Add(-1)
	}
}

// answered is called when the answer has left, or could not. Over HTTP/2 that is not known.
func (t *turn) answered(cut bool, now int64) {
	if cut && t.shed == strategies.ReasonNone {
		t.gone, t.code = true, codeLeft
	}
	t.count(now)
}

// became returns what became of the request. Only the upstream's answers can be good.
func (t *turn) became() served.Outcome {
	switch {
	case t.shed != strategies.ReasonNone:
		return served.Shed
	case t.headAt != 0 && t.code < 500 && t.code != codeLeft:
		return served.OK
	}
	return served.Error
}

// count tells the events, once.
func (t *turn) count(now int64) {
	if t.counted {
		return
	}
	t.counted = true
	s := t.s
	if t.running {
		s.unfinished.Add(-1)
	}
	took := time.Duration(now - t.arrived)
	head := took
	if t.headAt != 0 {
		head = time.Duration(t.headAt - t.arrived)
	}
	e := &s.o.Events
	if t.gone {
		e.Left(took)
	}
	outcome := t.became()
	e.Answered(t.strategy, t.method, t.code, outcome, head, took)
	t.name = append(t.name[:0], t.asked.Client...)
	e.Asked(uint8(t.asked.Priority.Class()), t.name, t.code, outcome, head, t.had)
	if e.Routed != nil && t.route != "" {
		e.Routed(t.route, outcome, took)
	}
	slow := s.o.Slowest.Wants(took, now)
	if !slow && t.span == nil && e.Served == nil {
		return
	}
	q := slowest.Request{
		Answered: now, Strategy: t.strategy, Method: t.method, Route: t.route, Code: t.code, ValueBytes: max(t.length, len(t.body)), Took: took, Waited: took,
	}
	if outcome == served.Shed {
		q.Shed = t.shed.String()
	}
	if t.begun > 0 {
		q.Waited, q.Ran = time.Duration(t.begun-t.arrived), time.Duration(now-t.begun)
	}
	if slow {
		s.o.Slowest.Add(q)
	}
	t.tell(&q, outcome)
}

// tell tells the access log and the trace of the request, if there are any.
func (t *turn) tell(q *slowest.Request, outcome served.Outcome) {
	e := &t.s.o.Events
	if t.span == nil && e.Served == nil {
		return
	}
	told := served.Request{Request: *q, Outcome: outcome, Path: served.PathOf(t.target), Client: t.asked.Client, Priority: uint8(t.asked.Priority.Class()), TraceID: served.TraceID(t.traceparent)}
	if t.asked.Client == "" {
		told.Client = t.peer // it was refused before anybody asked
	}
	if t.begun > 0 {
		told.Operation = "upstream"
	}
	if t.span != nil {
		t.span.End(&told)
		t.span = nil
	}
	if e.Served != nil {
		e.Served(&told)
	}
}

// trace begins the span of the request, if there are any, and adds to the head, if there is one,
// how its trace goes on at the upstream.
func (t *turn) trace(head, traceparent, tracestate []byte) []byte {
	t.traceparent = traceparent
	if tracer := t.s.o.Tracer; tracer != nil && t.span == nil {
		t.span = tracer.Start(traceparent, tracestate, t.arrived)
		return t.span.Lines(head)
	}
	return head
}

// Hold says how long a request holds its place.
type Hold uint8

const (
	// HoldAuto is until the answer's end, but for upgrades, and event streams in answer to a
	// GET, until the headers: they may go on for ever and need little meanwhile. Those in
	// answer to anything else are what a model generates.
	HoldAuto Hold = iota
	// HoldBody is until the end of any answer.
	HoldBody
	// HoldHeaders is until the answer's headers.
	HoldHeaders
)

// atHeaders reports whether a place comes back at the headers.
func (h Hold) atHeaders(method string, switching, events bool) bool {
	switch h {
	case HoldBody:
		return false
	case HoldHeaders:
		return true
	default:
		return switching || events && method == http.MethodGet
	}
}

// isHealthCheck reports whether a request asks whether the service lives.
func isHealthCheck(method, path string) bool {
	return (method == http.MethodGet || method == http.MethodHead) && strings.HasSuffix(path, "z") &&
		(path == "/healthz" || path == "/livez" || path == "/readyz")
}
