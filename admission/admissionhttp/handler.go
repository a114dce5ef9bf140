package admissionhttp

import (
	"context"
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
	// Exempt reports which requests pass without places and unmeasured. The default is
	// HealthCheck, and there are no others if it is given.
	Exempt func(*http.Request) bool
	// Hold says how long a request keeps its places.
	Hold Hold
	// BufferBody is how many bytes the body of a request may have that is read before the
	// request waits: 64 KiB by default, and none if it is less than 0. net/http notices
	// that a client hangs up only once the body has been read. See Options.Handler.
	BufferBody int
	// TooManyRequests answers 429 instead of 503, unless the service is stopping.
	TooManyRequests bool
	// TrustHeaders takes the client from Spillway-Client, the priority from
	// Spillway-Priority or Priority (RFC 9218), and the time until its deadline from
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

// HealthCheck reports whether r asks if the service lives: a GET or HEAD of /healthz, /livez
// or /readyz.
func HealthCheck(r *http.Request) bool { return wire.IsHealthCheck(r.Method, r.URL.Path) }

// Handler returns a handler that has every request wait for its places before next serves
// it. If next is nil, that is http.DefaultServeMux. A request that comes through two handlers
// of the same controller waits in the first alone, and so does what the handler asks that
// controller for under the context of the request.
//
// A request that is turned away is answered 503 with Retry-After, with the reason in
// Spillway-Shed, and with a problem (RFC 9457) as JSON. The status is 504 if the request's
// own time was over. What was set before for a good answer is removed: the headers Content-*,
// those of caches and validators, Link and Location. So what compresses answers belongs
// inside of Handler, unless it leaves Content-Encoding alone until the answer is written.
//
// A learned concurrency measures the time until the headers of the answer, even if the
// places are kept for longer. 502, 503, 504 and answers after the request's deadline are
// Dropped. 408, 429, panics and requests whose clients left are Ignored.
//
// A request that waits is given up when its context ends, for example when its client hangs
// up. For that, and so that a slow body takes no place, a body of at most BufferBody bytes is
// read first. It is not if its client waits for 100 Continue, nor if its length is unknown
// over HTTP/2, where clients may wait for an answer in between and hang-ups are noticed
// anyway. If the server has no ReadTimeout, a body that takes longer than 10 s, and 1 s for
// each KiB that has come, is answered 408, and the read deadline is removed after the body.
func (o Options) Handler(c *admission.Controller, next http.Handler) http.Handler {
	if c == nil {
		panic("admissionhttp: the controller is nil")
	}
	if next == nil {
		next = http.DefaultServeMux
	}
	if o.Exempt == nil {
		o.Exempt = HealthCheck
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.Exempt(r) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, request := r.Context(), o.request(r)
		if o.TrustHeaders {
			if d := wire.Timeout(r.Header.Get(wire.TimeoutHeader)); d > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, d)
				defer cancel()
			}
		}
		read, slow := o.readAhead(w, r)
		if slow {
			refuse(w, wire.Problem(http.StatusRequestTimeout, "the request's body came too slowly"))
			return
		}
		permit, err := c.Acquire(ctx, request)
		if err != nil {
			refuse(w, wire.Refuse(err, o.TooManyRequests))
			return
		}
		how := admission.Ignored // if it panics
		defer func() { permit.Done(how) }()
		held := &writer{
			ResponseWriter: w, permit: permit, hold: o.Hold, ctx: ctx,
			inner: within{r.Context(), c, permit}, connect: r.Method == http.MethodConnect,
		}
		r = r.WithContext(&held.inner)
		r.Body = read
		next.ServeHTTP(held.able(), r)
		how = wire.Outcome(ctx, admission.Good) // unless the answer has begun, and said so itself
	})
}

// request returns what is asked for r.
func (o *Options) request(r *http.Request) admission.Request {
	var request admission.Request
	if o.Request != nil {
		request = o.Request(r)
	} else {
		request.Client = wire.Host(r.RemoteAddr)
	}
	if o.TrustHeaders {
		request.Client = wire.Client(r.Header.Get(wire.ClientHeader), request.Client)
		request.Priority = wire.Priority(r.Header.Get(wire.PriorityHeader), strings.Join(r.Header.Values(wire.UrgencyHeader), ","), request.Priority)
	}
	return request
}

func refuse(w http.ResponseWriter, refusal wire.Refusal) {
	h := w.Header()
	for name := range h {
		if wire.OfContent(name) {
			delete(h, name)
		}
	}
	h.Set("Content-Type", wire.ProblemType)
	if refusal.Reason != "" {
		h.Set(wire.ShedHeader, refusal.Reason)
	}
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
	for w != nil {
		if held, ok := w.(interface{ release() }); ok {
			held.release()
		}
		w = unwrap(w)
	}
}
