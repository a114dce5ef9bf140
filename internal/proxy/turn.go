package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/internal/served"
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

	upstream *upstream // where it is sent
	tried    []string  // where it could not be
	conn     *upConn
	pump     *pump // nil if there is none
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
		t.upstream.close(t.conn)
		t.conn = nil
	}
	if err != nil && !errors.Is(err, errShed) {
		t.fail(err)
	}
	switch {
	case errors.Is(err, errShed): // it went nowhere
	case t.code >= http.StatusInternalServerError:
		t.upstream.failed.Add(1)
	case err == nil:
		t.upstream.answered.Add(1)
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
	if t.timeout > 0 {
		t.deadline = s.o.Epoch.Add(time.Duration(t.arrived) + t.timeout)
	}
	err := t.await(func(ctx context.Context) (admission.Permit, error) { return s.controller.Acquire(ctx, t.asked) })
	if err != nil && !errors.Is(err, errShed) { // of a rule that makes no sense, which none does
		t.refuse(http.StatusInternalServerError, err.Error())
	}
	return err == nil
}

// errShed is the error of a request that was shed, and has been answered.
var errShed = errors.New("shed")

// await waits for a place. If the request is shed it answers, and returns errShed. Any other error is that of acquire.
func (t *turn) await(acquire func(context.Context) (admission.Permit, error)) (err error) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	if !t.deadline.IsZero() {
		var end context.CancelFunc
		ctx, end = context.WithDeadline(ctx, t.deadline)
		defer end()
	}
	t.client.watch(leave)
	t.permit, err = acquire(ctx)
	t.client.unwatch()
	if t.held = err == nil; t.held {
		return nil
	}
	shed, ok := errors.AsType[*admission.ShedError](err)
	if !ok {
		return err
	}
	t.shed = shed.Reason
	a := httpfront.Answer{Problem: refusal.Answer(shed.Reason, shed.RetryAfter)}
	t.code = a.Problem.Status
	if shed.Reason == strategies.ReasonAbandoned {
		t.gone, t.code, a.Close = true, codeLeft, true
	}
	t.client.refuse(a)
	return errShed
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
	if (how == admission.Good || how == admission.Failed) && !t.deadline.IsZero() && !time.Now().Before(t.deadline) {
		how = admission.Dropped
	}
	t.permit.Done(how)
}

// outcome is that of the upstream for an answer with a status.
func outcome(status int) admission.Outcome {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return admission.Dropped
	case http.StatusRequestTimeout, http.StatusTooManyRequests, codeLeft:
		return admission.Ignored // it is the client's fault, or its own limit
	}
	if status >= http.StatusInternalServerError {
		return admission.Failed
	}
	return admission.Good
}

// finish is called when nothing of the request is left but perhaps bytes on their way to the
// client.
func (t *turn) finish() {
	t.release(admission.Ignored) // if it has panicked
	if t.stream {
		t.s.streams.Add(-1)
	}
}

// isHealthCheck reports whether a request asks whether the service lives.
func isHealthCheck(method, path string) bool {
	return (method == http.MethodGet || method == http.MethodHead) && strings.HasSuffix(path, "z") &&
		(path == "/healthz" || path == "/livez" || path == "/readyz")
}
