package admissionfasthttp

import (
	"bytes"
	"context"
	"runtime"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/internal/wire"
)

// Handler returns a handler that has every request wait for its places before next serves
// it, or turns it away. It is that of the zero Options.
func Handler(c *admission.Controller, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return Options{}.Handler(c, next)
}

// Options say how a Handler works. The zero value of each field is its default. All
// functions are called by many goroutines at once, and must not keep what they are given.
type Options struct {
	// Request says whose a request is, how important it is and what it costs. The strings
	// that it returns must not share memory with the request. By default the client is the
	// address that the request comes from, its priority is ordinary, and it costs 1.
	Request func(*fasthttp.RequestCtx) admission.Request
	// Exempt reports which requests pass without places and unmeasured. The default is
	// HealthCheck, and there are no others if it is given.
	Exempt func(*fasthttp.RequestCtx) bool
	// Hold says how long a request keeps its places.
	Hold Hold
	// Wait is how long a request waits at most. By default it is as long as the strategy
	// lets it wait. It is no deadline of the answer.
	Wait time.Duration
	// TooManyRequests answers 429 instead of 503, unless the service is stopping.
	TooManyRequests bool
	// TrustHeaders takes the client from Spillway-Client, the priority from
	// Spillway-Priority or Priority (RFC 9218), and the time until its deadline from
	// Spillway-Timeout-Ms. They win over what Request says. Malformed ones are ignored.
	TrustHeaders bool
}

// Hold says how long a request keeps its places.
type Hold uint8

const (
	// HoldAuto keeps them until the handler returns or, if it has set a stream as the body,
	// until that has been sent. Hijacked connections and server-sent events
	// (text/event-stream) keep them only until the handler returns, because they may go on
	// for ever and need little meanwhile.
	HoldAuto Hold = iota
	// HoldBody keeps them until the end of any stream or hijacked connection.
	HoldBody
	// HoldHeaders keeps them until the handler returns.
	HoldHeaders
)

// HealthCheck reports whether a request asks if the service lives: a GET or HEAD of /healthz,
// /livez or /readyz.
func HealthCheck(ctx *fasthttp.RequestCtx) bool {
	return wire.IsHealthCheck(string(ctx.Method()), string(ctx.Path()))
}

// Handler returns a handler that has every request wait for its places before next serves
// it. A request that comes through two handlers of the same controller waits in the first
// alone, and so does what the handler asks that controller for under its RequestCtx.
//
// A request that is turned away is answered 503 with Retry-After, with the reason in
// Spillway-Shed, and with a problem (RFC 9457) as JSON. The status is 504 if the request's
// own time was over. What was set before for a good answer is removed: the headers Content-*,
// those of caches and validators, Link and Location.
//
// A learned concurrency measures the time until next returns. 502, 503, 504 and answers after
// the request's deadline are Dropped. 408, 429 and panics are Ignored.
//
// A fasthttp.TimeoutHandler belongs before it. Within it the places would be given back while
// the handler is still at work, and two goroutines would use the same response.
func (o Options) Handler(c *admission.Controller, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	switch {
	case c == nil:
		panic("admissionfasthttp: the controller is nil")
	case next == nil:
		panic("admissionfasthttp: the handler is nil")
	}
	if o.Exempt == nil {
		o.Exempt = HealthCheck
	}
	return func(ctx *fasthttp.RequestCtx) {
		if o.Exempt(ctx) {
			next(ctx)
			return
		}
		// ctx ends when the server is told to shut down, which is no reason to turn away what
		// waits.
		until := context.WithoutCancel(ctx)
		if d := o.timeout(ctx); d > 0 {
			var cancel context.CancelFunc
			until, cancel = context.WithTimeout(until, d)
			defer cancel()
		}
		permit, err := o.acquire(until, c, ctx)
		if err != nil {
			refuse(ctx, wire.Refuse(err, o.TooManyRequests))
			return
		}
		if permit == (admission.Permit{}) { // somebody before has places for the request
			next(ctx)
			return
		}
		ctx.SetUserValue(c, permit) // where Acquire looks for it, as ctx is a context
		kept, how := false, admission.Ignored
		defer func() { // also if next panics, and somebody recovers
			if kept {
				permit.Tell(how)
				return
			}
			permit.Done(how)
		}()
		next(ctx)
		how = wire.Outcome(until, wire.StatusOutcome(ctx.Response.StatusCode()))
		if o.goesOn(ctx) {
			keep(ctx, permit)
			kept = true
		}
	}
}

// timeout returns how long the request has until its deadline, 0 if it does not say so.
func (o *Options) timeout(ctx *fasthttp.RequestCtx) time.Duration {
	if !o.TrustHeaders {
		return 0
	}
	return wire.Timeout(string(ctx.Request.Header.Peek(wire.TimeoutHeader)))
}

func (o *Options) acquire(until context.Context, c *admission.Controller, ctx *fasthttp.RequestCtx) (admission.Permit, error) {
	var request admission.Request
	if o.Request != nil {
		request = o.Request(ctx)
	} else {
		request.Client = wire.Host(ctx.RemoteAddr().String())
	}
	if o.TrustHeaders {
		h := &ctx.Request.Header
		request.Client = wire.Client(string(h.Peek(wire.ClientHeader)), request.Client)
		request.Priority = wire.Priority(string(h.Peek(wire.PriorityHeader)), string(bytes.Join(h.PeekAll(wire.UrgencyHeader), []byte{','})), request.Priority)
	}
	if o.Wait > 0 {
		wait, cancel := context.WithTimeout(until, o.Wait)
		defer cancel()
		until = patience{wait, until}
	}
	return c.Acquire(until, request)
}

// patience ends the wait of a request without being its deadline.
type patience struct {
	context.Context
	request context.Context
}

func (p patience) Deadline() (time.Time, bool) { return p.request.Deadline() }

// goesOn reports whether a request whose handler has returned keeps its places.
func (o *Options) goesOn(ctx *fasthttp.RequestCtx) bool {
	hijacked, streams := ctx.Hijacked(), ctx.Response.IsBodyStream()
	switch o.Hold {
	case HoldHeaders:
		return false
	case HoldBody:
		return hijacked || streams
	default:
		return streams && !hijacked && !wire.IsEventStream(string(ctx.Response.Header.ContentType()))
	}
}

// kept gives places back when fasthttp is done with the request.
type kept struct{ permit admission.Permit }

// Close is called by fasthttp.
func (k *kept) Close() error {
	k.permit.Release()
	return nil
}

// keep leaves the places to the request. fasthttp closes what is among its values once the
// answer has been sent, or cannot be, and once whoever has hijacked the connection returns.
// A request that it gives up, as one that has timed out at this very moment, is garbage,
// and so gives the places back as well.
func keep(ctx *fasthttp.RequestCtx, permit admission.Permit) {
	k := &kept{permit}
	runtime.AddCleanup(k, admission.Permit.Release, permit)
	ctx.SetUserValue(k, k) // under a key of its own, or a handler around this one would replace it
}

func refuse(ctx *fasthttp.RequestCtx, refusal wire.Refusal) {
	h := &ctx.Response.Header
	var good []string
	for name := range h.All() {
		if wire.OfContent(string(name)) {
			good = append(good, string(name))
		}
	}
	for _, name := range good {
		h.Del(name)
	}
	ctx.SetStatusCode(refusal.Status)
	ctx.SetContentType(wire.ProblemType)
	if refusal.Reason != "" {
		h.Set(wire.ShedHeader, refusal.Reason)
	}
	if refusal.RetryAfter != "" {
		h.Set("Retry-After", refusal.RetryAfter)
	}
	ctx.SetBodyString(refusal.Body)
}
