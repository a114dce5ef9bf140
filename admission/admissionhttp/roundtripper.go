// Package admissionhttp puts the queues of package admission in front of net/http's
// handlers. Its [RoundTripper] retries and throttles on the client's side.
package admissionhttp

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// RoundTripper sends requests to a service that may turn them away.
//
// It retries what is safe to retry, after the time that Retry-After asks for, or after a
// short time that doubles. Jitter keeps clients that were turned away together from coming
// back together.
//
// Retries have a budget of a tenth of the requests, so they cannot multiply the load of an
// overloaded service.
//
// It throttles itself: when more than half of the requests of the last ten seconds were
// refused, it does not send a growing share of them, which fail with ErrThrottled. See
// "Client-Side Throttling" in chapter 21 of Google's Site Reliability Engineering.
//
// One RoundTripper stands for one service. The zero value can be used. Its methods
// are safe for concurrent use; it must not be copied.
type RoundTripper struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// TimeoutHeader names the header that tells the service how many milliseconds are left
	// until the context's deadline, if it has one. Spillway reads Spillway-Timeout-Ms.
	// Empty means no header.
	TimeoutHeader string

	mu       sync.Mutex
	throttle throttle
	budget   budget
}

var _ http.RoundTripper = (*RoundTripper)(nil)

// ErrThrottled is returned for a request that was not sent, because the service has
// refused most of the recent ones.
var ErrThrottled = errors.New("not sent: the service has refused most of the requests of late")

const (
	// maxAttempts is how often one request is sent.
	maxAttempts = 3
	// longestWait is the longest time that is waited before a request is sent again.
	// When the service asks for more, its answer is returned.
	longestWait = 30 * time.Second
	// firstWait is about what is waited before the first retry if the service did not
	// say; it doubles with each.
	firstWait = 100 * time.Millisecond
	// longestTimeout is what TimeoutHeader says at most.
	longestTimeout = time.Hour
	// drained is how much of a refusal's body is read, so that its connection can be
	// used again.
	drained = 64 << 10
)

// RoundTrip sends the request, retries it if that is safe and of use, and returns the last
// answer. It retries
//
//   - any request that the service has not begun: it says so by the status 429 or by
//     Spillway-Shed, other than expired, or there was no connection;
//   - after 502, 503, 504 or no answer, when the first attempt may have had its effect,
//     only GET, HEAD, OPTIONS and TRACE, and those PUT and DELETE that have no condition
//     such as If-Match.
//
// A request with a body is retried only if it has GetBody, as http.NewRequest sets for
// bodies in memory. It is not retried if its context would end before the next attempt.
func (r *RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	base := r.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if !r.begin() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, ErrThrottled
	}
	for attempt := 1; ; attempt++ {
		sent := r.prepare(req)
		if attempt > 1 && req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			sent.Body = body
		}
		resp, err := base.RoundTrip(sent)
		refused := r.note(req, resp, err)
		if !refused || attempt == maxAttempts || !repeatable(req, resp, err) {
			return resp, err
		}
		wait, ok := pause(resp, attempt)
		if end, limited := req.Context().Deadline(); !ok || limited && time.Until(end) <= wait || !r.beginAgain() {
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, drained)
			_ = resp.Body.Close()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			return nil, req.Context().Err()
		}
	}
}

// CloseIdleConnections closes the connections of Base that are not in use, if it can.
func (r *RoundTripper) CloseIdleConnections() {
	base := r.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// prepare returns the request as it is sent: a copy, as a RoundTripper must not change
// what it was given.
func (r *RoundTripper) prepare(req *http.Request) *http.Request {
	sent := req.WithContext(req.Context())
	end, ok := req.Context().Deadline()
	if r.TimeoutHeader == "" || !ok {
		return sent
	}
	left := min(max(time.Until(end), time.Millisecond), longestTimeout)
	sent.Header = req.Header.Clone()
	if sent.Header == nil {
		sent.Header = http.Header{}
	}
	sent.Header.Set(r.TimeoutHeader, strconv.FormatInt(left.Milliseconds(), 10))
	return sent
}

// begin counts a new request, and reports whether it may be sent.
func (r *RoundTripper) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.budget.deposit()
	return r.throttle.admit(time.Now(), rand.Float64())
}

// beginAgain counts a retry, and reports whether it may be sent.
func (r *RoundTripper) beginAgain() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.budget.has() && r.throttle.admit(time.Now(), rand.Float64()) && r.budget.withdraw()
}

// note counts what became of an attempt, and reports whether it was refused or not
// answered. A deadline that passes counts as no answer; a request that its caller cancels
// does not count.
func (r *RoundTripper) note(req *http.Request, resp *http.Response, err error) (refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && !isRefusal(resp):
		r.throttle.accepted(time.Now())
		return false
	case err != nil && errors.Is(req.Context().Err(), context.Canceled):
		r.throttle.forget(time.Now())
	}
	return true
}

// isRefusal reports whether a service, or one on the way to it, says that it cannot.
func isRefusal(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// repeatable reports whether a request that was refused, or not answered, may be sent
// again without harm.
func repeatable(req *http.Request, resp *http.Response, err error) bool {
	if req.Context().Err() != nil || req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return true
		}
	} else if shed := resp.Header.Get("Spillway-Shed"); shed == "expired" { // nobody waits for it any more
		return false
	} else if shed != "" || resp.StatusCode == http.StatusTooManyRequests {
		return true
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	case http.MethodPut, http.MethodDelete:
		for _, condition := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
			if req.Header.Get(condition) != "" {
				return false
			}
		}
		return true
	}
	return false
}

// pause returns how long to wait before the next attempt: what the service asks for, and up
// to half of it more. It reports false if that is too long.
func pause(resp *http.Response, attempt int) (time.Duration, bool) {
	if resp != nil {
		if asked, ok := retryAfter(resp.Header.Get("Retry-After")); ok {
			return asked + rand.N(asked/2+time.Millisecond), asked <= longestWait
		}
	}
	return rand.N(firstWait << attempt), true
}

// retryAfter reads seconds, or a date.
func retryAfter(value string) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(date)), true
	}
	return 0, false
}
