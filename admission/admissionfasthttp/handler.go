// Package admissionfasthttp puts queues in front of fasthttp's handlers.
//
//	srv := &fasthttp.Server{Handler: admissionfasthttp.Handler(ctl, handler)}
//
// fasthttp does not tell handlers that a client has hung up. So a request waits until its
// turn, or until the strategy or Options.Wait gives it up.
package admissionfasthttp

import (
	"bytes"
	"context"
	"errors"
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
	// Exempt reports which requests pass without places and unmeasured. GET and HEAD of
	// /healthz, /livez and /readyz always do.
	Exempt func(*fasthttp.RequestCtx) bool
	// Hold says how long a request keeps its places.
	Hold Hold
	// Wait is how long a request waits at most. By default it is as long as the strategy
	// lets it wait.
	Wait time.Duration
	// TooManyRequests answers 429 instead of 503, unless the service is stopping.
	TooManyRequests bool
	// TrustHeaders takes the client from Spillway-Client, the priority from
	// Spillway-Priority or Priority (RFC 9218), and the longest wait from
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

// Handler returns a handler that has every request wait for its places before next serves
// it. A request that is turned away is answered 503 with Retry-After, with the reason in
// Spillway-Shed, and with a problem (RFC 9457) as JSON. The status is 504 if the request's
// own time was over.
//
// A learned concurrency measures the time until next returns. 502, 503 and 504 are Dropped;
// 408 and 429 are Unmeasured.
func (o Options) Handler(c *admission.Controller, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	switch {
	case c == nil:
		panic("admissionfasthttp: the controller is nil")
	case next == nil:
		panic("admissionfasthttp: the handler is nil")
	}
	return func(ctx *fasthttp.RequestCtx) {
		if isHealthCheck(ctx) || o.Exempt != nil && o.Exempt(ctx) {
			next(ctx)
			return
		}
		permit, err := o.acquire(c, ctx)
		if err != nil {
			o.refuse(ctx, err)
			return
		}
		kept, how := false, admission.Unmeasured
		defer func() { // also if next panics, and somebody recovers
			permit.Answered(how)
			if !kept {
				permit.Release()
			}
		}()
		next(ctx)
		how = wire.StatusOutcome(ctx.Response.StatusCode())
		if o.goesOn(ctx) {
			keep(ctx, permit)
			kept = true
		}
	}
}

func isHealthCheck(ctx *fasthttp.RequestCtx) bool {
	return wire.IsHealthCheck(string(ctx.Method()), string(ctx.Path()))
}

func (o *Options) acquire(c *admission.Controller, ctx *fasthttp.RequestCtx) (admission.Permit, error) {
	var request admission.Request
	if o.Request != nil {
		request = o.Request(ctx)
	} else {
		request.Client = wire.Host(ctx.RemoteAddr().String())
	}
	wait := o.Wait
	if o.TrustHeaders {
		h := &ctx.Request.Header
		request.Client = wire.Client(string(h.Peek(wire.ClientHeader)), request.Client)
		request.Priority = wire.Priority(string(h.Peek(wire.PriorityHeader)), string(bytes.Join(h.PeekAll(wire.UrgencyHeader), []byte{','})), request.Priority)
		if d := wire.Timeout(string(h.Peek(wire.TimeoutHeader))); d > 0 && (wait <= 0 || d < wait) {
			wait = d
		}
	}
	// Not ctx: that ends when the server is told to shut down, which is no reason to turn
	// away what waits.
	if wait <= 0 {
		return c.Acquire(context.Background(), request)
	}
	until, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return c.Acquire(until, request)
}

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

func (o *Options) refuse(ctx *fasthttp.RequestCtx, err error) {
	shed, ok := errors.AsType[*admission.Shed](err)
	if !ok {
		shed = &admission.Shed{}
	}
	refusal := wire.Refuse(shed, o.TooManyRequests)
	ctx.SetStatusCode(refusal.Status)
	ctx.SetContentType(wire.ProblemType)
	ctx.Response.Header.Set(wire.ShedHeader, refusal.Reason)
	if refusal.RetryAfter != "" {
		ctx.Response.Header.Set("Retry-After", refusal.RetryAfter)
	}
	ctx.SetBodyString(refusal.Body)
}
