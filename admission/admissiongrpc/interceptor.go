package admissiongrpc

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/internal/wire"
	"github.com/spillway-go/spillway/strategies"
)

// UnaryServerInterceptor returns an interceptor that has every call wait for its places. It
// is that of the zero Options.
func UnaryServerInterceptor(c *admission.Controller) grpc.UnaryServerInterceptor {
	return Options{}.UnaryServerInterceptor(c)
}

// StreamServerInterceptor returns an interceptor that has every stream wait for its places.
// It is that of the zero Options.
func StreamServerInterceptor(c *admission.Controller) grpc.StreamServerInterceptor {
	return Options{}.StreamServerInterceptor(c)
}

// Options say how the interceptors work. The zero value of each field is its default. All
// functions are called by many goroutines at once.
type Options struct {
	// Request says whose a call is, how important it is and what it costs. The method looks
	// like /package.Service/Method; message is that of a unary call, and nil for a stream.
	// By default the client is the address that the call comes from, its priority is
	// ordinary, and it costs 1.
	Request func(ctx context.Context, method string, message any) admission.Request
	// Exempt reports which methods pass without places and unmeasured. The default is
	// HealthCheck, and there are no others if it is given.
	Exempt func(method string) bool
	// Hold says how long a stream keeps its places.
	Hold Hold
	// Unavailable returns codes.Unavailable instead of codes.ResourceExhausted, for clients
	// that retry only the former.
	Unavailable bool
	// TrustHeaders takes the client from the metadata spillway-client, and the priority from
	// spillway-priority or priority (RFC 9218). They win over what Request says. Malformed
	// ones are ignored.
	TrustHeaders bool
}

// Hold says how long a stream keeps its places: at most as long as its handler runs. When a
// client hangs up, the stream's context ends.
type Hold uint8

const (
	// HoldAuto keeps them until the handler returns.
	HoldAuto Hold = iota
	// HoldHeaders keeps them until the handler sends the headers or the first message: for
	// streams that go on for ever and need little meanwhile. grpc.SetSendCompressor and
	// grpc.ClientSupportedCompressors do not know the context of such a stream.
	HoldHeaders
)

// HealthCheck reports whether method is one of grpc.health.v1.Health.
func HealthCheck(method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.Health/") }

// UnaryServerInterceptor returns an interceptor that has every call wait for its places. A
// call that comes through two interceptors of the same controller waits in the first alone,
// and so does what its handler asks that controller for under the context of the call.
//
// A call that is turned away fails with codes.ResourceExhausted, with Unavailable if the
// service is stopping, and with DeadlineExceeded or Canceled if its context ended. The
// trailer has the reason in spillway-shed. If a retry is of use it also has retry-after, in
// seconds, and grpc-retry-pushback-ms, which clients with a retry policy heed.
//
// A learned concurrency measures the time until the call ends. DeadlineExceeded, Unavailable
// and calls that end after their deadline are Dropped. ResourceExhausted, Canceled, panics and
// calls whose clients left are Ignored.
func (o Options) UnaryServerInterceptor(c *admission.Controller) grpc.UnaryServerInterceptor {
	o.check(c)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if o.Exempt(info.FullMethod) {
			return handler(ctx, message)
		}
		permit, err := c.Acquire(ctx, o.request(ctx, info.FullMethod, message))
		if err != nil {
			trailer, err := o.refusal(err)
			_ = grpc.SetTrailer(ctx, trailer) // fails without a server's stream, as in tests
			return nil, err
		}
		how := admission.Ignored // if it panics
		defer func() { permit.Done(how) }()
		answer, err := handler(hold(ctx, permit), message)
		how = outcome(ctx, err)
		return answer, err
	}
}

// StreamServerInterceptor returns an interceptor that has every stream wait for its places.
// A stream that is turned away fails as a unary call does. A learned concurrency measures
// the time until the stream's answer begins.
func (o Options) StreamServerInterceptor(c *admission.Controller) grpc.StreamServerInterceptor {
	o.check(c)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if o.Exempt(info.FullMethod) {
			return handler(srv, stream)
		}
		ctx := stream.Context()
		permit, err := c.Acquire(ctx, o.request(ctx, info.FullMethod, nil))
		if err != nil {
			trailer, err := o.refusal(err)
			stream.SetTrailer(trailer)
			return err
		}
		how := admission.Ignored // if it panics
		defer func() { permit.Done(how) }()
		held := &serverStream{ServerStream: stream, ctx: hold(ctx, permit), permit: permit, early: o.Hold == HoldHeaders}
		if sends := grpc.ServerTransportStreamFromContext(ctx); held.early && sends != nil {
			held.ctx = grpc.NewContextWithServerTransportStream(held.ctx, transportStream{sends, held})
		}
		err = handler(srv, held)
		how = outcome(ctx, err)
		return err
	}
}

// check finds what is missing, and sets what has a default.
func (o *Options) check(c *admission.Controller) {
	if c == nil {
		panic("admissiongrpc: the controller is nil")
	}
	if o.Exempt == nil {
		o.Exempt = HealthCheck
	}
}

// Release gives back the places of the call with the context ctx before its handler
// returns, for example of a stream that waits for events: those of each interceptor that it
// has come through. It does nothing if they have been given back, or if the call has none.
func Release(ctx context.Context) {
	for h := heldBy(ctx); h != nil; h = h.outer {
		h.permit.Release()
	}
}

// held is the permit of one interceptor, and leads to that of the one around it.
type held struct {
	permit admission.Permit
	outer  *held
}

type heldKey struct{}

func hold(ctx context.Context, p admission.Permit) context.Context {
	return context.WithValue(p.Context(ctx), heldKey{}, &held{p, heldBy(ctx)})
}

func heldBy(ctx context.Context) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}

// outcome returns what the end of a call is to a concurrency that is learned.
func outcome(ctx context.Context, err error) admission.Outcome {
	how := admission.Good
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded, code == codes.Unavailable, errors.Is(err, context.DeadlineExceeded):
		how = admission.Dropped
	case ctx.Err() != nil: // whatever the handler made of that
	case code == codes.ResourceExhausted, code == codes.Canceled: // it may be the client's own limit
		how = admission.Ignored
	case code == codes.Unknown, code == codes.Internal, code == codes.DataLoss, code == codes.Unimplemented: // 500 and 501 in HTTP
		how = admission.Failed
	}
	return wire.Outcome(ctx, how)
}

// serverStream notices when its answer begins, and gives its places back then if it is to.
type serverStream struct {
	grpc.ServerStream
	ctx    context.Context
	permit admission.Permit
	early  bool
}

func (s *serverStream) begin() {
	s.permit.Tell(wire.Outcome(s.ctx, admission.Good))
	if s.early {
		s.permit.Release()
	}
}

// begun is begin if what should go out has.
func (s *serverStream) begun(err error) error {
	if err == nil {
		s.begin()
	}
	return err
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendHeader(md metadata.MD) error {
	return s.begun(s.ServerStream.SendHeader(md))
}

// SendMsg begins before, as the client may hold it up.
func (s *serverStream) SendMsg(m any) error {
	s.begin()
	return s.ServerStream.SendMsg(m)
}

// transportStream is where grpc.SendHeader sends the headers of a stream, by its context.
type transportStream struct {
	grpc.ServerTransportStream
	held *serverStream
}

func (s transportStream) SendHeader(md metadata.MD) error {
	return s.held.begun(s.ServerTransportStream.SendHeader(md))
}

func (o *Options) request(ctx context.Context, method string, message any) admission.Request {
	var r admission.Request
	if o.Request != nil {
		r = o.Request(ctx, method, message)
	} else if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		r.Client = wire.Host(from.Addr.String())
	}
	if o.TrustHeaders {
		said := func(name string) string {
			return strings.Join(metadata.ValueFromIncomingContext(ctx, name), ",")
		}
		r.Client = wire.Client(said(wire.ClientHeader), r.Client)
		r.Priority = wire.Priority(said(wire.PriorityHeader), said(wire.UrgencyHeader), r.Priority)
	}
	return r
}

// refusal returns what a call that was turned away fails with.
func (o *Options) refusal(err error) (metadata.MD, error) {
	shed, ok := errors.AsType[*admission.ShedError](err)
	if !ok { // whoever makes the admission.Request makes a mistake
		return nil, status.Error(codes.Internal, err.Error())
	}
	code := codes.ResourceExhausted
	switch {
	case shed.Reason == strategies.ReasonExpired:
		code = codes.DeadlineExceeded
	case shed.Reason == strategies.ReasonAbandoned:
		code = codes.Canceled
	case shed.Reason == strategies.ReasonDraining || o.Unavailable:
		code = codes.Unavailable
	}
	trailer := metadata.Pairs(wire.ShedHeader, shed.Reason.String())
	if shed.RetryAfter > 0 {
		trailer.Set("retry-after", strconv.FormatInt(int64((shed.RetryAfter+time.Second-1)/time.Second), 10))
		trailer.Set("grpc-retry-pushback-ms", strconv.FormatInt(shed.RetryAfter.Milliseconds(), 10))
	}
	return trailer, status.Error(code, shed.Error())
}
