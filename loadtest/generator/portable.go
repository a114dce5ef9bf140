package generator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// connectsAtOnce is how many connections are opened at a time before the run begins.
const connectsAtOnce = 64

// portable carries a load by one goroutine a connection, over net/http.
//
// The goroutines are clients. One at a time has the turn: it waits for the time of the
// next request, gives the turn on and sends that request. So requests are begun in
// their order, by whoever is free, and when nobody is the next waits on its own clock.
type portable struct {
	o       *workload.Options
	plan    *plan
	window  result.Window
	closed  bool // a closed loop
	clock   func() time.Duration
	encoder *encoder
	headers []http.Header // of the operations of the service, and of each target
	lines   []line        // by server
	clients []*client
	finish  context.CancelCauseFunc // ends the run; set by run

	// turn is held by who reads the stream. What follows is theirs.
	turn   chan struct{}
	stream *workload.Stream
	next   workload.Request // the next request that has not been begun
	pacer  *pacer

	begun atomic.Uint64 // next.Seq

	mu struct {
		sync.Mutex
		count *result.Tally
		// unfinished counts the requests of the window, or before it, that have been begun
		// and have not ended. passed says that all of them have been begun.
		unfinished int
		passed     bool
		open       int           // clients with a connection
		lastOpen   time.Duration // when one had one, if none has now
		budget     budget
		waits      *rand.Rand // draws back-offs, and nothing else
		protocols  map[string]int64
	}
}

// line opens connections to a server.
type line struct {
	transport *http.Transport
	scheme    string
	address   string // with its port, as its certificate names it
	mayBeTwo  bool   // HTTP/2
}

// client sends one request at a time, over connections of its own.
type client struct {
	p     *portable
	conns []wire // by server
	open  bool   // it has a connection
	// freeSince is when it could have begun its next request.
	freeSince time.Duration
}

// wire is a connection of a client.
type wire struct {
	conn     *http.ClientConn // nil if there is none
	answered bool             // it has brought an answer
	retryAt  time.Duration
}

func newPortable(o *workload.Options, p *plan, trusted *tls.Config, clock func() time.Duration) *portable {
	e := &portable{
		o: o, plan: p, window: result.WindowOf(o), closed: o.Rate == 0, clock: clock,
		encoder: newEncoder(o, p), turn: make(chan struct{}, 1), stream: workload.NewStream(o), pacer: newPacer(),
	}
	e.mu.count, e.mu.budget, e.mu.protocols = result.NewTally(*o), newBudget(o, 1), map[string]int64{}
	e.mu.waits = rand.New(rand.NewPCG(workload.Scramble(o.Seed), workload.Scramble(1<<32)))
	e.headers = []http.Header{headerOf(p.headers)}
	for i := range p.targets {
		e.headers = append(e.headers, headerOf(p.targets[i].headers))
	}
	for i := range p.servers {
		e.lines = append(e.lines, newLine(&p.servers[i], o.HTTP, trusted))
	}
	for range o.Connections {
		e.clients = append(e.clients, &client{p: e, conns: make([]wire, len(p.servers))})
	}
	e.advance()
	return e
}

// headerOf returns headers as net/http has them. A User-Agent is sent only if it is
// asked for.
func headerOf(headers []string) http.Header {
	h := http.Header{"User-Agent": {""}}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ":")
		if strings.EqualFold(name, "User-Agent") {
			name = "User-Agent"
			h.Del(name)
		}
		h[name] = append(h[name], strings.TrimSpace(value))
	}
	return h
}

func newLine(s *server, version workload.HTTP, trusted *tls.Config) line {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version != workload.HTTP2)
	protocols.SetHTTP2(version != workload.HTTP1)
	protocols.SetUnencryptedHTTP2(version == workload.HTTP2)
	var opened atomic.Uint64
	dialer := new(net.Dialer)
	name, port := (&url.URL{Host: s.host}).Hostname(), strconv.Itoa(int(s.addresses[0].Port()))
	two := version == workload.HTTP2 || version == workload.HTTPAny && s.scheme == "https"
	return line{mayBeTwo: two, scheme: s.scheme, address: net.JoinHostPort(name, port), transport: &http.Transport{
		Protocols: protocols, TLSClientConfig: trusted.Clone(), DisableCompression: true, MaxResponseHeaderBytes: maxHead,
		// The addresses take their turns.
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			address := s.addresses[int((opened.Add(1)-1)%uint64(len(s.addresses)))]
			c, err := dialer.DialContext(ctx, network, address.String())
			if tcp, ok := c.(*net.TCPConn); ok {
				// A client that gives up resets: thousands of them a second would otherwise
				// use up the ports with connections in TIME_WAIT.
				_ = tcp.SetLinger(0)
			}
			return c, err
		},
	}}
}

// connect opens all connections, and waits for them.
func (p *portable) connect(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	open := func(c *client) {
		for server := range c.conns {
			if err := c.dial(ctx, server); err != nil {
				stop(err) // the first is the cause
				return
			}
		}
		c.setOpen(true)
	}
	open(p.clients[0]) // alone: a server that is not to be had is asked once
	places := make(chan struct{}, connectsAtOnce)
	var wg sync.WaitGroup
	for _, c := range p.clients[1:] {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			open(c)
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted while the connections were opened")
		}
		return err
	}
	return nil
}

// errFinished ends a run whose window is complete.
var errFinished = errors.New("finished")

func (p *portable) run(ctx context.Context) error {
	ctx, p.finish = context.WithCancelCause(ctx)
	defer p.finish(errFinished)
	var clients sync.WaitGroup
	for _, c := range p.clients {
		clients.Go(func() { c.run(ctx) })
	}
	clients.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errFinished) {
		return err
	}
	return nil
}

func (p *portable) abandon(now time.Duration) {
	if p.closed {
		return
	}
	for p.next.At <= now {
		p.miss(now, result.ErrorUnfinished)
	}
}

func (p *portable) counts(call func(*result.Tally)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call(p.mu.count)
}

func (p *portable) sent() uint64 { return p.begun.Load() }

func (p *portable) protocols() map[string]int64 { return p.mu.protocols }

func (p *portable) close() {
	for _, c := range p.clients {
		for i := range c.conns {
			c.hangUp(i)
		}
	}
	p.pacer.close()
}

// advance goes to the next request.
func (p *portable) advance() {
	p.stream.Next(&p.next)
	p.begun.Store(p.next.Seq)
}

// miss counts the next request as one that is never sent, and goes on.
func (p *portable) miss(now time.Duration, kind result.ErrorKind) {
	p.mu.Lock()
	part := p.mu.count.Part(&p.next)
	p.mu.count.Offered(p.next.At, part)
	p.mu.budget.earn(&p.next)
	p.mu.count.Failed(p.next.At, workload.Never, now, part, kind)
	p.mu.Unlock()
	p.advance()
}

// exchange is a request that a client has begun.
type exchange struct {
	request   workload.Request
	part      result.Part
	scheduled time.Duration
	sent      time.Duration // at first
}

// take waits for the turn, and for the time of the next request, which it begins. It
// returns false if there is none any more.
func (c *client) take(ctx context.Context, x *exchange) bool {
	p := c.p
	if think := min(c.freeSince+p.o.Think, p.window.To) - p.clock(); p.o.Think > 0 && think > 0 && !sleep(ctx, think) {
		return false
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return false
	}
	for ctx.Err() == nil {
		now := p.clock()
		if p.o.Count > 0 && p.next.Seq >= p.o.Count || p.closed && now >= p.window.To {
			return false
		}
		scheduled := p.next.At
		if p.closed {
			scheduled = now
		}
		switch {
		case scheduled > now:
			p.mayBeOver(now)
			p.pacer.wait(min(scheduled-now, longestPause))
			continue
		case now-scheduled >= p.o.Timeout:
			p.miss(scheduled+p.o.Timeout, result.ErrorUnsent)
			continue
		}
		p.mayBeOver(now)
		x.request, x.scheduled, x.sent = p.next, scheduled, now
		p.mu.Lock()
		x.part = p.mu.count.Part(&p.next)
		p.mu.count.Offered(scheduled, x.part)
		p.mu.budget.earn(&p.next)
		if !p.closed {
			p.mu.count.Begun(scheduled, c.freeSince, now)
		}
		if scheduled < p.window.To {
			p.mu.unfinished++
		}
		p.mu.Unlock()
		p.advance()
		return true
	}
	return false
}

// mayBeOver ends an open loop if the next request is after its window and those of the
// window have ended: until then the load goes on, so that the last of them meet the
// same load as all others.
func (p *portable) mayBeOver(now time.Duration) {
	if p.closed || p.next.At < p.window.To || now < p.window.To {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.passed = true; p.mu.unfinished == 0 {
		p.finish(errFinished)
	}
}

// run sends requests until there are none any more.
func (c *client) run(ctx context.Context) {
	var x exchange
	for c.mend(ctx) && c.take(ctx, &x) {
		c.serve(ctx, &x)
		c.freeSince = c.p.clock()
	}
}

// serve sends a request until it has ended.
func (c *client) serve(ctx context.Context, x *exchange) {
	p := c.p
	since, begun := x.scheduled, x.sent // what the timeout of the present attempt counts from, and when it is sent
	for attempts := 1; ; attempts++ {
		status, shed, err := c.attempt(ctx, x, p.o.Timeout-(begun-since))
		now := p.clock()
		givenUp := now-since >= p.o.Timeout // perhaps at the same moment
		ended := func(count func(*result.Tally)) {
			p.mu.Lock()
			defer p.mu.Unlock()
			count(p.mu.count)
			if x.scheduled < p.window.To {
				p.mu.unfinished--
			}
			if p.mu.passed && p.mu.unfinished == 0 {
				p.finish(errFinished)
			}
		}
		failed := func(at time.Duration, kind result.ErrorKind) {
			ended(func(t *result.Tally) { t.Failed(x.scheduled, x.sent, at, x.part, kind) })
		}
		if !givenUp && err != nil {
			kind := kindOf(err)
			if ctx.Err() != nil {
				kind = result.ErrorUnfinished
			}
			failed(now, kind)
			return
		}
		if wait, ok := c.again(x, attempts, givenUp || refused(status)); ok {
			if since, ok = c.rest(ctx, x, now+wait); ok {
				begun = since
				continue
			}
			kind := result.ErrorConnect
			if ctx.Err() != nil {
				kind = result.ErrorUnfinished
			}
			failed(p.clock(), kind)
			return
		}
		if givenUp {
			failed(since+p.o.Timeout, result.ErrorTimeout)
		} else {
			ended(func(t *result.Tally) { t.Answered(x.scheduled, x.sent, now, x.part, status, shed) })
		}
		return
	}
}

// again tells whether a request is to be sent once more, and after what wait.
func (c *client) again(x *exchange, attempts int, failed bool) (time.Duration, bool) {
	p := c.p
	if !failed || attempts >= p.o.Retries.Attempts {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.budget.spend(&x.request) {
		return 0, false
	}
	return p.o.Retries.Wait(attempts, p.mu.waits), true
}

// rest waits until a request is due again, and returns when that really is. It fails
// if ctx ends, or if there is no connection then.
func (c *client) rest(ctx context.Context, x *exchange, due time.Duration) (now time.Duration, ok bool) {
	p := c.p
	for {
		if !c.reopen(ctx) {
			return 0, false
		}
		free := p.clock()
		if !sleep(ctx, min(due-free, reopenAfter)) {
			return 0, false
		}
		if now = p.clock(); now >= due {
			due = max(due, free)
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.count.Retried(x.scheduled, 1)
	p.mu.count.Late(x.scheduled, now-due)
	return now, true
}

// attempt sends a request once, and reads its answer to the end; left is what is left of
// its timeout.
func (c *client) attempt(ctx context.Context, x *exchange, left time.Duration) (status int, shed string, err error) {
	p := c.p
	server := 0
	if x.request.Target > 0 {
		server = p.plan.targets[x.request.Target-1].server
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	w := &c.conns[server]
	if w.conn == nil || w.conn.Err() != nil {
		// Among several servers one may be missing, and an idle connection may have been
		// closed a moment ago.
		if err := c.dial(ctx, server); err != nil {
			return 0, "", err
		}
	}
	answer, err := w.conn.RoundTrip(p.request(ctx, &x.request, left))
	if err == nil && (answer.StatusCode < 100 || answer.ProtoMajor == 2 && !p.lines[server].mayBeTwo) {
		_ = answer.Body.Close()
		err = errProtocol
	}
	if err == nil && answer.StatusCode == http.StatusSwitchingProtocols {
		_ = answer.Body.Close() // what follows is no answer, and never need end
		c.hangUp(server)
	} else if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	if err != nil {
		c.hangUp(server)
		return 0, "", err
	}
	// A connection that net/http is about to close takes no other request.
	if w.answered = true; w.conn != nil && (answer.Close || answer.ProtoMajor == 1 && w.conn.Available() == 0) {
		c.hangUp(server)
	}
	p.mu.Lock()
	p.mu.protocols[answer.Proto]++
	p.mu.Unlock()
	if reason := answer.Header.Get("Spillway-Shed"); reason != "" {
		shed = shedReason([]byte(reason))
	}
	return answer.StatusCode, shed, nil
}

// request makes a request of net/http.
func (p *portable) request(ctx context.Context, r *workload.Request, left time.Duration) *http.Request {
	q := &http.Request{Method: p.encoder.method(r), Header: p.headers[r.Target], Body: http.NoBody, ProtoMajor: 1, ProtoMinor: 1}
	if r.Target > 0 {
		q.URL, q.Host = p.plan.targets[r.Target-1].url, p.plan.targets[r.Target-1].host
	} else {
		q.Host = p.plan.host
		path, query, _ := strings.Cut(string(p.encoder.appendURI(nil, r)), "?")
		q.URL = &url.URL{Scheme: p.plan.servers[0].scheme, Host: p.plan.servers[0].host, Path: path, RawQuery: query}
	}
	if r.Priority >= 0 || r.Client != "" || p.o.TimeoutHeader {
		q.Header = q.Header.Clone()
		if r.Priority >= 0 {
			q.Header["Spillway-Priority"] = []string{string('0' + rune(r.Priority))}
		}
		if r.Client != "" {
			q.Header["Spillway-Client"] = []string{r.Client}
		}
		if p.o.TimeoutHeader {
			q.Header["Spillway-Timeout-Ms"] = []string{string(appendMillis(nil, left))}
		}
	}
	if body := p.encoder.body(r); len(body) > 0 {
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return q.WithContext(ctx)
}

// connectError is why a connection could not be opened.
type connectError struct{ error }

func (e connectError) Unwrap() error { return e.error }

// kindOf tells errors apart. Of answers that are none net/http has no errors that can
// be told apart but by their text.
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

// dial opens a connection to a server.
func (c *client) dial(ctx context.Context, server int) error {
	c.hangUp(server)
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	l := &c.p.lines[server]
	conn, err := l.transport.NewClientConn(ctx, l.scheme, l.address)
	if err == nil {
		c.conns[server] = wire{conn: conn}
		return nil
	}
	c.conns[server].retryAt = c.p.clock() + reopenAfter
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

func (c *client) hangUp(server int) {
	if conn := c.conns[server].conn; conn != nil {
		_ = conn.Close()
	}
	c.conns[server].conn = nil
}

// reopen opens the connections that have gone, and tells whether there is one at least.
func (c *client) reopen(ctx context.Context) bool {
	var failed error
	open := false
	for server := range c.conns {
		w := &c.conns[server]
		if w.conn != nil && w.conn.Err() == nil {
			open = true
			continue
		}
		if w.conn != nil && !w.answered {
			// Who opens it again at once is refused again.
			c.hangUp(server)
			w.retryAt = c.p.clock() + reopenAfter
			failed = errors.New("the server closes connections before it has answered")
		}
		if c.p.clock() < w.retryAt {
			continue
		}
		if err := c.dial(ctx, server); err != nil {
			failed = err
		} else {
			open = true
		}
	}
	c.setOpen(open)
	if !open && failed != nil {
		c.p.lost(failed)
	}
	return open
}

// mend waits until the client has a connection, and tells whether ctx has not ended.
func (c *client) mend(ctx context.Context) bool {
	for !c.reopen(ctx) {
		if c.p.closed && c.p.clock() >= c.p.window.To || !sleep(ctx, reopenAfter) {
			return false
		}
	}
	return ctx.Err() == nil
}

// setOpen says whether the client has a connection.
func (c *client) setOpen(open bool) {
	if open == c.open {
		return
	}
	c.open = open
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if open {
		p.mu.open++
		return
	}
	if p.mu.open--; p.mu.open == 0 {
		p.mu.lastOpen = p.clock()
	}
}

// lost says that a client found no server. While no other has a connection either, who
// comes finds none; after a while that ends the run.
func (p *portable) lost(err error) {
	p.mu.Lock()
	now := p.clock()
	none, gone := p.mu.open == 0, p.mu.open == 0 && now-p.mu.lastOpen > goneAfter
	p.mu.Unlock()
	if gone {
		p.finish(err)
	}
	if !none || p.closed {
		return
	}
	select {
	case p.turn <- struct{}{}:
	default:
		return // somebody else does it, or has a connection after all
	}
	defer func() { <-p.turn }()
	for p.next.At <= now {
		p.miss(now, result.ErrorConnect)
	}
}
