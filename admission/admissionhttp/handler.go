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

// Handler has every request wait for its places before next serves it, or turns it away.
// It is that of the zero Options:
//
//	srv := &http.Server{Handler: admissionhttp.Handler(ctl, mux)}
func Handler(c *admission.Controller, next http.Handler) http.Handler {
	return Options{}.Handler(c, next)
}

// Options say how a Handler works. The zero value of each field is its default. All
// functions are called by many goroutines at once.
type Options struct {
	// Request says who asks, how important it is and what it costs. By default a request
	// counts for the address that it comes from, is of ordinary importance, and costs 1.
	Request func(*http.Request) admission.Request
	// Exempt reports which requests are let through at once and unmeasured. GET and HEAD
	// of /healthz, /livez and /readyz always are.
	Exempt func(*http.Request) bool
	// Hold says how long a request keeps its places.
	Hold Hold
	// TooManyRequests has 429 answered where it would be 503, but for a service that is
	// stopping.
	TooManyRequests bool
	// TrustHeaders says that whoever sends requests may say in Spillway-Client,
	// Spillway-Priority and Priority (RFC 9218) whose they are and how important, before
	// what Request says, and in Spillway-Timeout-Ms how long they wait at most. What does
	// not fit there is ignored.
	TrustHeaders bool
}

// Hold says how long a request keeps its places. It never keeps them for longer than its
// handler runs. That a client has gone ends the request's context, and the places are
// given back when the handler heeds that and returns: until then it may be at work.
type Hold uint8

const (
	// HoldAuto is until the answer's end, but upgrades, and server-sent events
	// (text/event-stream), keep their places only until the headers: they may go on for
	// ever, and take little meanwhile.
	HoldAuto Hold = iota
	// HoldBody is until the answer's end, whatever it is.
	HoldBody
	// HoldHeaders is until the answer's headers.
	HoldHeaders
)

// Handler has every request wait for its places before next serves it. A concurrency that is
// learned goes by the time until the headers of its answer, also where it keeps its places
// for longer; 502, 503 and 504 are Dropped, as is what was not answered when its context
// ended, and 408 and 429 Unmeasured. One that is turned away is answered 503 with Retry-After, Spillway-Shed, which says why, and a problem
// (RFC 9457) as JSON; it is 504 if its own time was over. Nil stands for
// http.DefaultServeMux.
//
// A request that waits is given up when its context ends, as it does when its client
// goes. Of a request with a body net/http learns that only once the body has been read.
// Its body is not touched while it waits.
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

// Release gives back the places of the request that w answers, before its handler returns:
// of a long poll, say, which waits for something to happen. It does nothing if they have
// been given back, or if w is not of a Handler; it finds one behind other writers as
// http.ResponseController does.
func Release(w http.ResponseWriter) {
	for {
		if held, ok := w.(interface{ release() }); ok {
			held.release()
			return
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = wrapper.Unwrap()
	}
}
