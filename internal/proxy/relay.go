package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/httpfront"
)

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
		t.upstream.put(c)
	} else {
		t.upstream.close(c)
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

// why returns the answer to a client for an error, with a status below 500 if it is its own, and
// the outcome for the upstream.
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
	t.upstream.noAnswer(t.method, err, time.Now())
	status, detail = http.StatusBadGateway, "the upstream closed the connection, or its answer is not valid HTTP"
	silent := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.As(err, new(errDial)):
		detail = "the upstream cannot be reached"
	case silent && t.headAt == 0:
		status, detail = http.StatusGatewayTimeout, "the upstream did not answer within "+t.s.live.Load().Timeout.String()
	case silent:
		detail = "the upstream's answer went silent for " + t.s.live.Load().Timeout.String()
	}
	return status, detail, admission.Dropped
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
