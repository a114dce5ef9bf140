package generator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// dialsAtOnce is how many connections of a loop are opened at a time.
const dialsAtOnce = 64

// clients carries a load over net/http: TLS and HTTP/2. A connection of the loop is a client, with
// a goroutine. The loop gives it tasks, and it leaves reports, which the loop is woken to read.
type clients struct {
	loop    *loop
	plan    *plan
	encoder *encoder
	// transport opens connections, over which there may be HTTP/2.
	transport *http.Transport
	mayBeTwo  bool
	clients   []client      // by conn.index
	dialing   chan struct{} // holds who opens a connection
	context   context.Context
	cancel    context.CancelFunc
	running   sync.WaitGroup
	alarm     *alarm
	came      []report         // to be delivered
	answers   map[string]int64 // by version

	mu struct {
		sync.Mutex
		came   []report
		asleep bool // the loop waits for the alarm
	}
}

// client sends one request at a time. The loop touches its connection only while it has no task.
type client struct {
	*conn
	http  *http.ClientConn // nil if there is none
	tasks chan task
	// turn numbers the tasks, and what ends them: a report of an earlier turn is dropped.
	turn   uint64
	cancel context.CancelFunc // of the request that is sent, if one is
}

func (c *client) open() bool { return c.http != nil && c.http.Err() == nil }

// task asks a client to open its connection or, with a context, to send a request.
type task struct {
	turn    uint64
	context context.Context
	cancel  context.CancelFunc
	request workload.Request
	left    time.Duration // of the request's timeout
}

// report says what became of a task or, with turn 0, that a connection has closed.
type report struct {
	client *client
	turn   uint64
	at     time.Duration // the end of the task
	err    error
	answer
}

// answer is what is known of an answer.
type answer struct {
	status  int
	shed    string
	version string
	last    bool // of its connection
}

func newClients(l *loop, p *plan, trusted *tls.Config) (transport, error) {
	e := &clients{
		loop: l, plan: p, encoder: newEncoder(l.o, p),
		clients: make([]client, len(l.conns)), dialing: make(chan struct{}, dialsAtOnce), answers: map[string]int64{},
		transport: newTransport(p, l.o.HTTP, trusted),
		mayBeTwo:  l.o.HTTP == workload.HTTP2 || l.o.HTTP == workload.HTTPAny && p.server.scheme == "https",
	}
	var err error
	if e.alarm, err = newAlarm(); err != nil {
		return nil, err
	}
	e.context, e.cancel = context.WithCancel(context.Background())
	for i := range e.clients {
		c := &e.clients[i]
		*c = client{conn: &l.conns[i], tasks: make(chan task, 1)}
		e.running.Go(func() { e.work(c) })
	}
	return e, nil
}

func newTransport(p *plan, version workload.HTTP, trusted *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version != workload.HTTP2)
	protocols.SetHTTP2(version != workload.HTTP1)
	protocols.SetUnencryptedHTTP2(version == workload.HTTP2)
	dialer := new(net.Dialer)
	return &http.Transport{
		Protocols: protocols, TLSClientConfig: trusted.Clone(), DisableCompression: true, MaxResponseHeaderBytes: maxHead,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, p.address.String())
			if tcp, ok := c.(*net.TCPConn); ok {
				// A client that gives up resets: thousands of them a second would otherwise
				// use up the ports with connections in TIME_WAIT.
				_ = tcp.SetLinger(0)
			}
			return c, err
		},
	}
}

func (e *clients) begin() {}

func (e *clients) dial(of *conn, _ time.Duration) {
	c := &e.clients[of.index]
	c.turn++
	c.tasks <- task{turn: c.turn} // has room: at most a request that is given up is before it
}

func (e *clients) send(of *conn, r *workload.Request, left time.Duration) {
	c := &e.clients[of.index]
	c.turn++
	t := task{turn: c.turn, request: *r, left: left}
	t.context, t.cancel = context.WithCancel(e.context)
	c.cancel = t.cancel
	c.tasks <- t
}

// close gives up what is sent. The client itself closes what can carry nothing else.
func (e *clients) close(of *conn) {
	c := &e.clients[of.index]
	c.turn++
	if c.cancel != nil {
		c.cancel()
	}
}

func (e *clients) wait(longest time.Duration) error {
	e.mu.Lock()
	if len(e.mu.came) == 0 && longest > 0 {
		e.mu.asleep = true
		e.alarm.set(longest)
		e.mu.Unlock()
		e.alarm.wait()
		e.mu.Lock()
		e.mu.asleep = false
	}
	e.came, e.mu.came = e.mu.came, e.came[:0]
	e.mu.Unlock()
	return nil
}

// report leaves a report for the loop.
func (e *clients) report(r report) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.came = append(e.mu.came, r)
	if e.mu.asleep {
		e.mu.asleep = false
		e.alarm.set(0)
	}
}

func (e *clients) deliver() {
	for i := range e.came {
		r := &e.came[i]
		c := r.client
		switch {
		case r.turn == 0:
			if idle := c.state == connIdle || c.state == connResting; idle && !c.open() {
				c.hangUp()
				e.loop.gone(c.conn, e.loop.clock())
			}
		case r.turn != c.turn:
		case c.state == connConnecting && r.err != nil:
			e.loop.fail(c.conn, r.at, r.err)
		case c.state == connConnecting:
			e.loop.opened(c.conn, r.at)
		case r.err != nil:
			e.loop.broken(c.conn, r.at, kindOf(r.err))
		default:
			e.answers[r.version]++
			e.loop.answered(c.conn, r.at, r.at, r.status, r.shed, r.last)
		}
	}
}

func (e *clients) protocols() map[string]int64 { return e.answers }

func (e *clients) end() {
	e.cancel()
	for i := range e.clients {
		close(e.clients[i].tasks)
	}
	e.running.Wait()
	for i := range e.clients {
		e.clients[i].hangUp()
	}
	e.alarm.close()
}

// work does a client's tasks.
func (e *clients) work(c *client) {
	for t := range c.tasks {
		r := report{client: c, turn: t.turn}
		if t.context == nil {
			r.err = e.connect(e.context, c)
		} else {
			r.answer, r.err = e.attempt(c, &t)
			t.cancel()
		}
		r.at = e.loop.clock()
		e.report(r)
	}
}

// attempt sends a request, and reads its answer to the end.
func (e *clients) attempt(c *client, t *task) (a answer, err error) {
	if !c.open() { // it may have been closed a moment ago
		if err := e.connect(t.context, c); err != nil {
			return a, err
		}
	}
	response, err := c.http.RoundTrip(e.request(t.context, &t.request, t.left))
	if err == nil && (response.StatusCode < 100 || response.ProtoMajor == 2 && !e.mayBeTwo) {
		_ = response.Body.Close()
		err = errProtocol
	}
	switched := err == nil && response.StatusCode == http.StatusSwitchingProtocols
	if err == nil {
		if !switched { // what follows is no answer, and never need end
			_, err = io.Copy(io.Discard, response.Body)
		}
		_ = response.Body.Close()
	}
	if err != nil {
		c.hangUp()
		return a, err
	}
	a = answer{status: response.StatusCode, version: response.Proto}
	// A connection that net/http is about to close takes no other request.
	if a.last = switched || response.Close || response.ProtoMajor == 1 && c.http.Available() == 0; a.last {
		c.hangUp()
	}
	if reason := response.Header.Get("Spillway-Shed"); reason != "" {
		a.shed = shedReason([]byte(reason))
	}
	return a, nil
}

// request makes a request of net/http.
func (e *clients) request(ctx context.Context, r *workload.Request, left time.Duration) *http.Request {
	to := &e.plan.to[r.Target]
	q := &http.Request{Method: e.encoder.method(r), URL: to.url, Host: to.host, Header: to.header, Body: http.NoBody, ProtoMajor: 1, ProtoMinor: 1}
	if r.Target == 0 {
		path, query, _ := strings.Cut(string(e.encoder.appendURI(nil, r)), "?")
		q.URL = &url.URL{Scheme: e.plan.server.scheme, Host: e.plan.server.host, Path: path, RawQuery: query}
	}
	if r.Priority >= 0 || r.Client != "" || e.loop.o.TimeoutHeader {
		q.Header = q.Header.Clone()
		if r.Priority >= 0 {
			q.Header["Spillway-Priority"] = []string{string('0' + rune(r.Priority))}
		}
		if r.Client != "" {
			q.Header["Spillway-Client"] = []string{r.Client}
		}
		if e.loop.o.TimeoutHeader {
			q.Header["Spillway-Timeout-Ms"] = []string{string(appendMillis(nil, left))}
		}
	}
	if body := e.encoder.body(r); len(body) > 0 {
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return q.WithContext(ctx)
}

// connectError is why a connection could not be opened.
type connectError struct{ error }

func (e connectError) Unwrap() error { return e.error }

// kindOf classifies errors. For answers that are none net/http has no errors that can
// be distinguished but by their text.
func kindOf(err error) result.ErrorKind {
	if _, ok := errors.AsType[connectError](err); ok {
		return result.ErrorConnect
	}
	if errors.Is(err, errProtocol) {
		return result.ErrorProtocol
	}
	text := err.Error()
	if slices.ContainsFunc([]string{"malformed", "invalid", "Content-Length", "bare LF", "unsupported transfer encoding"}, func(s string) bool { return strings.Contains(text, s) }) {
		return result.ErrorProtocol
	}
	return result.ErrorReset
}

// connect opens the connection of a client.
func (e *clients) connect(ctx context.Context, c *client) error {
	c.hangUp()
	select {
	case e.dialing <- struct{}{}:
		defer func() { <-e.dialing }()
	case <-ctx.Done(): // which NewClientConn then says
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	conn, err := e.transport.NewClientConn(ctx, e.plan.server.scheme, e.plan.server.address())
	if err == nil {
		c.http = conn
		conn.SetStateHook(func(conn *http.ClientConn) {
			if conn.Err() != nil {
				e.report(report{client: c})
			}
		})
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no connection within %v", connectPatience)
	} else if inner, ok := errors.AsType[syscall.Errno](err); ok {
		err = inner
	} else if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		err = fmt.Errorf("%w (--ca-file names who may vouch for it, --insecure takes any)", err)
	} else if _, ok := errors.AsType[x509.HostnameError](err); ok {
		err = fmt.Errorf("%w (--insecure takes any)", err)
	}
	return connectError{fmt.Errorf("cannot connect: %w", err)}
}

func (c *client) hangUp() {
	if c.http != nil {
		c.http.SetStateHook(nil)
		_ = c.http.Close()
	}
	c.http = nil
}
