package admissiongrpc

import (
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway/admission/internal/restraint"
	"github.com/spillway-go/spillway/admission/internal/wire"
	"github.com/spillway-go/spillway/strategies"
)

// Client holds back the calls to a service that may turn them away. It retries and
// throttles as admissionhttp.RoundTripper does, by the same code.
//
// It sends a call again if the service has not begun it, which it says by spillway-shed
// in the trailer; after codes.Unavailable only those that are Idempotent. It waits as long
// as grpc-retry-pushback-ms, a RetryInfo or retry-after ask for, with jitter, and sends
// nothing again that would be too late. Retries have a budget of a tenth of the calls.
// Streams that the client sends are not sent again. A retry policy in the service config
// would multiply these retries: have one or the other.
//
// It throttles itself: when more than half of the calls answered in the last ten seconds
// were refused, it does not send a growing share of them, which fail with ErrThrottled.
// Refused are those with spillway-shed, Unavailable and DeadlineExceeded. Other calls with
// ResourceExhausted count for nothing: they are about one client. So do those that their
// caller cancels, and those whose deadline leaves less time than accepted calls usually
// take.
//
// The deadline of a call's context needs nothing more: gRPC sends it to the service.
//
// One Client stands for one service. The zero value can be used. Its methods are safe for
// concurrent use; it must not be copied.
type Client struct {
	// Idempotent reports which methods do no harm if they are done twice. The method looks
	// like /package.Service/Method. Nil means none.
	Idempotent func(method string) bool

	restraint restraint.Restraint
}

// ErrThrottled is returned for a call that was not sent, because the service has refused
// most of the recent ones. Its code is codes.Unavailable.
var ErrThrottled error = throttledError{}

type throttledError struct{}

func (throttledError) Error() string {
	return "not sent: the service has refused most of the calls of late"
}

// GRPCStatus is what package status calls.
func (e throttledError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// UnaryClientInterceptor returns the interceptor of calls without streams.
func (c *Client) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		if !c.restraint.Begin() {
			return ErrThrottled
		}
		var trailer metadata.MD
		opts = append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))
		for attempt := 1; ; attempt++ {
			trailer = nil
			begun := time.Now()
			err := invoke(ctx, method, req, reply, cc, opts...)
			c.restraint.Note(verdict(err, trailer), time.Since(begun))
			if again, err := c.again(ctx, method, attempt, err, trailer); !again {
				return err
			}
		}
	}
}

// StreamClientInterceptor returns the interceptor of streams. A stream is answered when
// its first message or its end comes.
func (c *Client) StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if !c.restraint.Begin() {
			return nil, ErrThrottled
		}
		begun := time.Now()
		s := &clientStream{
			client: c, ctx: ctx, method: method, once: !desc.ClientStreams,
			open: func() (grpc.ClientStream, error) { return open(ctx, desc, cc, method, opts...) },
		}
		var err error
		if s.current, err = s.open(); err != nil {
			c.restraint.Note(verdict(err, nil), time.Since(begun))
			return nil, err
		}
		return s, nil
	}
}

// again waits until the next attempt of a call that ended so, and reports false with the
// call's error if there is none.
func (c *Client) again(ctx context.Context, method string, attempt int, err error, trailer metadata.MD) (bool, error) {
	switch reason := shedReason(trailer); {
	case err == nil, ctx.Err() != nil, reason == strategies.ReasonExpired:
		return false, err
	case reason != "":
	case status.Code(err) != codes.Unavailable, c.Idempotent == nil, !c.Idempotent(method):
		return false, err
	}
	asked, said := retryAfter(err, trailer)
	wait, ok := c.restraint.Again(ctx, attempt, asked, said)
	if !ok {
		return false, err
	}
	if err := restraint.Sleep(ctx, wait); err != nil {
		return false, status.FromContextError(err).Err()
	}
	return true, nil
}

// clientStream notices how its answer begins.
type clientStream struct {
	client *Client
	ctx    context.Context // of all attempts
	method string
	once   bool // the client sends one message
	open   func() (grpc.ClientStream, error)

	answered bool // of the receiver alone, as is attempts
	attempts int

	mu      sync.Mutex        // as others may ask for the headers while one receives
	current grpc.ClientStream // of the present attempt
	sent    any               // the message, if once
}

var _ grpc.ClientStream = (*clientStream)(nil)

func (s *clientStream) stream() grpc.ClientStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *clientStream) Header() (metadata.MD, error) { return s.stream().Header() }
func (s *clientStream) Trailer() metadata.MD         { return s.stream().Trailer() }
func (s *clientStream) CloseSend() error             { return s.stream().CloseSend() }
func (s *clientStream) Context() context.Context     { return s.stream().Context() }

func (s *clientStream) SendMsg(m any) error {
	s.mu.Lock()
	if s.once {
		s.sent = m
	}
	s.mu.Unlock()
	return s.stream().SendMsg(m)
}

// RecvMsg opens the stream again if the service has turned it away.
func (s *clientStream) RecvMsg(m any) error {
	for {
		current, begun := s.stream(), time.Now()
		err := current.RecvMsg(m)
		if s.answered {
			return err
		}
		if err == nil || errors.Is(err, io.EOF) {
			s.answered = true
			s.client.restraint.Note(restraint.Accepted, time.Since(begun))
			return err
		}
		trailer := current.Trailer()
		s.client.restraint.Note(verdict(err, trailer), time.Since(begun))
		again := false
		if s.attempts++; s.once {
			again, err = s.client.again(s.ctx, s.method, s.attempts, err, trailer)
		}
		if again {
			err = s.reopen()
		}
		if !again || err != nil {
			s.answered = true
			return err
		}
	}
}

// reopen begins the next attempt.
func (s *clientStream) reopen() error {
	begun := time.Now()
	next, err := s.open()
	if err != nil {
		s.client.restraint.Note(verdict(err, nil), time.Since(begun))
		return err
	}
	s.mu.Lock()
	s.current = next
	sent := s.sent
	s.mu.Unlock()
	if next.SendMsg(sent) == nil { // otherwise RecvMsg says why
		_ = next.CloseSend()
	}
	return nil
}

// verdict returns what the end of an attempt says of the service.
func verdict(err error, trailer metadata.MD) restraint.Outcome {
	switch status.Code(err) {
	case codes.Canceled:
		return restraint.Unknown
	case codes.DeadlineExceeded:
		return restraint.TimedOut
	case codes.Unavailable:
		return restraint.Refused
	case codes.ResourceExhausted:
		if shedReason(trailer) == "" {
			return restraint.Unknown
		}
		return restraint.Refused
	default:
		return restraint.Accepted
	}
}

func shedReason(trailer metadata.MD) strategies.Reason {
	return strategies.Reason(first(trailer, wire.ShedHeader))
}

func first(trailer metadata.MD, name string) string {
	if values := trailer.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// retryAfter returns how long the service asks to wait, if it says so. A pushback that is
// negative or no number asks not to come again at all (gRFC A6).
func retryAfter(err error, trailer metadata.MD) (time.Duration, bool) {
	if pushback := first(trailer, pushbackHeader); pushback != "" {
		ms, err := strconv.ParseUint(pushback, 10, 31)
		if err != nil {
			return math.MaxInt64, true
		}
		return time.Duration(ms) * time.Millisecond, true
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	seconds, bad := strconv.ParseUint(first(trailer, retryAfterHeader), 10, 31)
	return time.Duration(seconds) * time.Second, bad == nil
}

// The names of metadata that say when to come again.
const (
	pushbackHeader   = "grpc-retry-pushback-ms"
	retryAfterHeader = "retry-after"
)
