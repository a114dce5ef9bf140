package admissionhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/internal/wire"
)

// Handler returns a handler that has every request wait for its places before next serves
// it, or turns it away. It is that of the zero Options:
//
//	srv := &http.Server{Handler: admissionhttp.Handler(ctl, mux)}
func Handler(c *admission.Controller, next http.Handler) http.Handler {
	return Options{}.Handler(c, next)
}

// Options say how a Handler works. The zero value of each field is its default. All
// functions are called by many goroutines at once.
type Options struct {
	// Request says whose a request is, how important it is and what it costs. By default
	// its client is the address that it comes from, its priority is ordinary, and it
	// costs 1.
	Request func(*http.Request) admission.Request
	// Exempt reports which requests pass without places and unmeasured. GET and HEAD of
	// /healthz, /livez and /readyz always do.
	Exempt func(*http.Request) bool
	// Hold says how long a request keeps its places.
	Hold Hold
	// TooManyRequests answers 429 instead of 503, unless the service is stopping.
	TooManyRequests bool
	// TrustHeaders takes the client from Spillway-Client, the priority from
	// Spillway-Priority or Priority (RFC 9218), and the longest wait from
	// Spillway-Timeout-Ms. They win over what Request says. Malformed ones are ignored.
	TrustHeaders bool
}

// Hold says how long a request keeps its places: at most as long as its handler runs. When
// a client hangs up the request's context ends, but the handler may still be at work: the
// places come back when it returns.
type Hold uint8

const (
	// HoldAuto keeps them until the answer's end; upgrades and server-sent events
	// (text/event-stream) only until the headers, because they may go on for ever and need
	// little meanwhile.
	HoldAuto Hold = iota
	// HoldBody keeps them until the end of any answer.
	HoldBody
	// HoldHeaders keeps them until the answer's headers.
	HoldHeaders
)

// Handler returns a handler that has every request wait for its places before next serves
// it. If next is nil, that is http.DefaultServeMux.
//
// A request that is turned away is answered 503 with Retry-After, with the reason in
// Spillway-Shed, and with a problem (RFC 9457) as JSON. The status is 504 if the request's
// own time was over.
//
// A learned concurrency measures the time until the headers of the answer, even if the
// places are kept for longer. 502, 503, 504 and requests whose context ended without an
// answer are Dropped; 408 and 429 are Unmeasured.
//
// A request that waits is given up when its context ends, for example when its client
// hangs up. If a request has a body, net/http notices that only after the body has been
// read, and the body is not touched while the request waits.
func (o Options) Handler(c *admission.Controller, next http.Handler) http.Handler {
	if c == nil {
		panic("admissionhttp: the controller is nil")
	}
	if next == nil {
		next = http.DefaultServeMux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wire.IsHealthCheck(r.Method, r.URL.Path) || o.Exempt != nil && o.Exempt(r) {
			next.ServeHTTP(w, r)
			return
		}
		permit, err := o.acquire(c, r)
		if err != nil {
			o.refuse(w, err)
			return
		}
		returned := false
		defer func() {
			// Unless the answer has begun, and said so itself.
			switch {
			case !returned: // it panics
				permit.Answered(admission.Unmeasured)
			case r.Context().Err() != nil:
				permit.Answered(admission.Dropped)
			}
			permit.Release()
		}()
		next.ServeHTTP(hold(w, r, permit, o.Hold), r)
		returned = true
	})
}

func (o *Options) acquire(c *admission.Controller, r *http.Request) (admission.Permit, error) {
	var request admission.Request
	if o.Request != nil {
		request = o.Request(r)
	} else {
		request.Client = wire.Host(r.RemoteAddr)
	}
	ctx := r.Context()
	if o.TrustHeaders {
		request.Client = wire.Client(r.Header.Get(wire.ClientHeader), request.Client)
		request.Priority = wire.Priority(r.Header.Get(wire.PriorityHeader), strings.Join(r.Header.Values(wire.UrgencyHeader), ","), request.Priority)
		if d := wire.Timeout(r.Header.Get(wire.TimeoutHeader)); d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
	}
	return c.Acquire(ctx, request)
}

func (o *Options) refuse(w http.ResponseWriter, err error) {
	shed, ok := errors.AsType[*admission.Shed](err)
	if !ok {
		shed = &admission.Shed{}
	}
	refusal := wire.Refuse(shed, o.TooManyRequests)
	h := w.Header()
	h.Set("Content-Type", wire.ProblemType)
	h.Set(wire.ShedHeader, refusal.Reason)
	if refusal.RetryAfter != "" {
		h.Set("Retry-After", refusal.RetryAfter)
	}
	w.WriteHeader(refusal.Status)
	_, _ = io.WriteString(w, refusal.Body) // an error is the client's
}

// Release gives back the places of the request that w answers before its handler returns,
// for example of a long poll: those of each Handler that it has come through. It does
// nothing if they have been given back, or if w is not the writer of a Handler. It unwraps
// writers as http.ResponseController does.
func Release(w http.ResponseWriter) {
	for {
		if held, ok := w.(interface{ release() }); ok {
			held.release()
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = wrapper.Unwrap()
	}
}
