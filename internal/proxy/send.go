package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync/atomic"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/httpfront"
)

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
	t.upstream = t.s.upstreams.of(t.resource())
	for attempt := 0; ; attempt++ {
		err := t.attempt(attempt > 0)
		switch {
		case err == nil:
			return nil
		case attempt == 0 && t.conn != nil && t.conn.reused && errors.As(err, new(stale)):
			t.upstream.close(t.conn)
			t.conn = nil
		case errors.As(err, new(errDial)):
			if err = t.goElsewhere(err); err != nil {
				return err
			}
			attempt = -1
		default:
			return t.blame(err)
		}
	}
}

// resource returns the name of the upstream whose turn it is.
func (t *turn) resource() string {
	if t.held {
		return t.permit.Resource()
	}
	return t.s.controller.Any()
}

// goElsewhere has the request wait for another upstream, as nothing could be sent to the last. The error is errShed, or
// the cause if there is no other.
func (t *turn) goElsewhere(cause error) error {
	if t.s.stopping.Load() || t.s.upstreams.one() || slices.Contains(t.tried, t.upstream.name) {
		return cause
	}
	last := t.upstream
	t.tried = append(t.tried, last.name)
	if !t.held {
		if another := t.s.upstreams.another(t.tried); another != nil {
			last.failed.Add(1)
			t.upstream = another
			return nil
		}
		return cause
	}
	permit := t.permit
	err := t.await(func(ctx context.Context) (admission.Permit, error) { return t.s.controller.Again(ctx, permit) })
	if err == nil {
		t.upstream = t.s.upstreams.of(t.permit.Resource())
	}
	if errors.Is(err, admission.ErrUnreached) || err == nil && slices.Contains(t.tried, t.upstream.name) {
		return cause // all others rest
	}
	last.failed.Add(1)
	return err
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
	// What came says more than why not all could be sent.
	dead := len(c.text) == 0 && !errors.Is(got, os.ErrDeadlineExceeded)
	if dead && !c.wasInterrupted() && (sent == 0 && t.upstream.tls == nil || t.length == 0 && idempotent(t.method)) {
		return stale{got}
	}
	return got
}

// connect takes a connection to the upstream.
func (t *turn) connect(fresh bool) (err error) {
	u := t.upstream
	if !fresh {
		// Mostly there is one, and nothing to be waited for.
		if t.conn = u.kept(); t.conn != nil {
			return nil
		}
	}
	ctx, leave := context.WithCancel(u.end)
	defer leave()
	t.client.watch(leave)
	t.conn, err = u.open(ctx)
	t.client.unwatch()
	if err != nil && u.end.Err() == nil && ctx.Err() != nil {
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
