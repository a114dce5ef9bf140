package admissionhttp

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission/internal/restraint"
	"github.com/spillway-go/spillway/admission/internal/wire"
	"github.com/spillway-go/spillway/strategies"
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
// It throttles itself: when more than half of the requests answered in the last ten
// seconds were refused, it does not send a growing share of them, which fail with
// ErrThrottled. See "Client-Side Throttling" in chapter 21 of Google's Site Reliability
// Engineering. Refused are the statuses 502, 503 and 504, and requests that got no answer.
// A 429 counts for nothing: it is about one client, and others may use the RoundTripper.
// So do a request that its caller cancels, one whose deadline leaves less time than
// accepted requests usually take, and one that its caller's mistake kept from being sent.
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

	restraint restraint.Restraint
}

var _ http.RoundTripper = (*RoundTripper)(nil)

// ErrThrottled is returned for a request that was not sent, because the service has
// refused most of the recent ones.
var ErrThrottled = errors.New("not sent: the service has refused most of the requests of late")

const (
	// longestTimeout is what TimeoutHeader says at most.
	longestTimeout = time.Hour
	// drained is how much of a refusal's body is read, and drainTime for how long at most, so
	// that its connection can be used again.
	drained   = 64 << 10
	drainTime = 100 * time.Millisecond
)

// RoundTrip sends the request, retries it if that is safe and of use, and returns the last
// answer. It retries
//
//   - any request that the service has not begun: it says so by the status 429 or by
//     Spillway-Shed, other than expired, or there was no connection;
//   - after 502, 503, 504 or no answer, when the first attempt may have had its effect,
//     only GET, HEAD, OPTIONS and TRACE, those PUT and DELETE that have no condition such
//     as If-Match, and those POST and PATCH that have an Idempotency-Key.
//
// A request with a body is retried only if it has GetBody, as http.NewRequest sets for
// bodies in memory. It is not retried if its context would end before the next attempt.
// An answer has no Spillway-Shed if an earlier attempt may have had an effect.
func (r *RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if malformed(req) || req.Context().Err() != nil {
		return r.base().RoundTrip(req) // which says so
	}
	if !r.restraint.Begin() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, ErrThrottled
	}
	uncertain := false // whether an earlier attempt may have had an effect
	for attempt := 1; ; attempt++ {
		sent := r.prepare(req)
		if attempt > 1 && req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			sent.Body = body
		}
		begun := time.Now()
		resp, err := r.base().RoundTrip(sent)
		r.restraint.Note(outcome(sent, resp, err), time.Since(begun))
		again := repeatable(req, resp, err)
		var wait time.Duration
		if again {
			asked, said := retryAfter(resp)
			wait, again = r.restraint.Again(req.Context(), attempt, asked, said)
		}
		if !again {
			if resp != nil && uncertain {
				resp.Header.Del(wire.ShedHeader)
			}
			return resp, err
		}
		uncertain = uncertain || !isSafe(req.Method) && !unbegun(resp, err)
		if resp != nil {
			discard(resp.Body)
		}
		if err := restraint.Sleep(req.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// discard closes the body of an answer. One that does not end holds up nobody.
func discard(body io.ReadCloser) {
	late := time.AfterFunc(drainTime, func() { _ = body.Close() }) // which ends the read
	_, _ = io.CopyN(io.Discard, body, drained)
	late.Stop()
	_ = body.Close()
}

func (r *RoundTripper) base() http.RoundTripper {
	if r.Base == nil {
		return http.DefaultTransport
	}
	return r.Base
}

// CloseIdleConnections closes the connections of Base that are not in use, if it can.
func (r *RoundTripper) CloseIdleConnections() {
	if c, ok := r.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// prepare returns the request as it is sent: a copy, as a RoundTripper must not change
// what it was given.
func (r *RoundTripper) prepare(req *http.Request) *http.Request {
	sent := req.WithContext(req.Context())
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		sent.Body = &source{ReadCloser: req.Body, length: req.ContentLength}
	}
	end, ok := req.Context().Deadline()
	if r.TimeoutHeader == "" || !ok {
		return sent
	}
	left := min(max(time.Until(end), time.Millisecond), longestTimeout)
	sent.Header = req.Header.Clone()
	sent.Header.Set(r.TimeoutHeader, strconv.FormatInt(left.Milliseconds(), 10))
	return sent
}

// source is a body that comes from elsewhere. It notes when it fails or has not the length
// that was said, which is no fault of the service.
type source struct {
	io.ReadCloser
	length, read int64 // length is -1 if it is unknown
	state        atomic.Int32
}

// The states of a source. The first that it leaves sourceOpen for stays.
const (
	sourceOpen int32 = iota
	sourceFailed
	sourceClosed // by the transport, whatever is read then
)

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.read += int64(n)
	ended := errors.Is(err, io.EOF)
	if err != nil && !ended || s.length > 0 && (s.read > s.length || ended && s.read < s.length) {
		s.state.CompareAndSwap(sourceOpen, sourceFailed)
	}
	return n, err
}

func (s *source) Close() error {
	s.state.CompareAndSwap(sourceOpen, sourceClosed)
	return s.ReadCloser.Close()
}

// malformed reports whether a request is none that HTTP/1.1 can send (RFC 9110, 5.6.2).
func malformed(req *http.Request) bool {
	if req.URL == nil || req.Header == nil || req.Method != "" && !isToken(req.Method) {
		return true
	}
	for name, values := range req.Header {
		if !isToken(name) {
			return true
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
				return true
			}
		}
	}
	return false
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// outcome returns what became of an attempt.
func outcome(sent *http.Request, resp *http.Response, err error) restraint.Outcome {
	if err != nil {
		body, ok := sent.Body.(*source)
		switch {
		case errors.Is(sent.Context().Err(), context.Canceled), ok && body.state.Load() == sourceFailed:
			return restraint.Unknown
		case sent.Context().Err() != nil:
			return restraint.TimedOut
		}
		return restraint.Refused
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return restraint.Unknown
	case http.StatusGatewayTimeout:
		if shedReason(resp) == strategies.ReasonExpired {
			return restraint.TimedOut
		}
		return restraint.Refused
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return restraint.Refused
	}
	return restraint.Accepted
}

func shedReason(resp *http.Response) strategies.Reason {
	return strategies.Reason(resp.Header.Get(wire.ShedHeader))
}

// unbegun reports whether a service that cannot serve a request has not begun it.
func unbegun(resp *http.Response, err error) bool {
	if err != nil {
		op, ok := errors.AsType[*net.OpError](err)
		return ok && op.Op == "dial"
	}
	return shedReason(resp) != "" || resp.StatusCode == http.StatusTooManyRequests
}

// repeatable reports whether a request got no answer, or one that says that the service
// cannot serve it now, and may be sent again without harm.
func repeatable(req *http.Request, resp *http.Response, err error) bool {
	if err == nil {
		switch resp.StatusCode {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		default:
			return false
		}
		if shedReason(resp) == strategies.ReasonExpired { // nobody waits for it any more
			return false
		}
	}
	if req.Context().Err() != nil || req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	if isSafe(req.Method) || unbegun(resp, err) {
		return true
	}
	switch req.Method {
	case http.MethodPut, http.MethodDelete:
		for _, condition := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
			if req.Header.Get(condition) != "" {
				return false
			}
		}
		return true
	case http.MethodPost, http.MethodPatch:
		return req.Header.Get("Idempotency-Key") != "" // by which the service knows it again
	}
	return false
}

// isSafe reports whether requests of a method change nothing.
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// retryAfter returns how long the service asks to wait, if it says so: in seconds, or by a
// date.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	if resp == nil {
		return 0, false
	}
	value := resp.Header.Get("Retry-After")
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if errors.Is(err, strconv.ErrRange) {
		return math.MaxInt64, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(date)), true
	}
	return 0, false
}
