// Package admissiongrpc puts queues in front of gRPC's handlers.
//
//	srv := grpc.NewServer(
//		grpc.UnaryInterceptor(admissiongrpc.UnaryServerInterceptor(ctl)),
//		grpc.StreamInterceptor(admissiongrpc.StreamServerInterceptor(ctl)),
//	)
//
// It is a module of its own, so that only users of gRPC depend on gRPC.
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
	// Exempt reports which methods pass without places and unmeasured. Those of
	// grpc.health.v1.Health always do.
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
	// streams that go on for ever and need little meanwhile.
	HoldHeaders
)

// UnaryServerInterceptor returns an interceptor that has every call wait for its places. A
// call that is turned away fails with codes.ResourceExhausted, with Unavailable if the
// service is stopping, and with DeadlineExceeded or Canceled if its context ended. The
// trailer has the reason in spillway-shed. If a retry is of use it also has retry-after, in
// seconds, and grpc-retry-pushback-ms, which clients with a retry policy heed.
//
// A learned concurrency measures the time until the call ends. DeadlineExceeded, Unavailable
// and calls whose context has ended are Dropped; ResourceExhausted is Unmeasured.
func (o Options) UnaryServerInterceptor(c *admission.Controller) grpc.UnaryServerInterceptor {
	check(c)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if o.exempt(info.FullMethod) {
			return handler(ctx, message)
		}
		permit, err := c.Acquire(ctx, o.request(ctx, info.FullMethod, message))
		if err != nil {
			trailer, err := o.refusal(err)
			_ = grpc.SetTrailer(ctx, trailer) // fails without a server's stream, as in tests
			return nil, err
		}
		how := admission.Unmeasured // if it panics
		defer func() {
			permit.Answered(how)
			permit.Release()
		}()
		answer, err := handler(hold(ctx, permit), message)
		how = outcome(ctx, err)
		return answer, err
	}
}

// StreamServerInterceptor returns an interceptor that has every stream wait for its places.
// A stream that is turned away fails as a unary call does. A learned concurrency measures
// the time until the stream's answer begins.
func (o Options) StreamServerInterceptor(c *admission.Controller) grpc.StreamServerInterceptor {
	check(c)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if o.exempt(info.FullMethod) {
			return handler(srv, stream)
		}
		ctx := stream.Context()
		permit, err := c.Acquire(ctx, o.request(ctx, info.FullMethod, nil))
		if err != nil {
			trailer, err := o.refusal(err)
			stream.SetTrailer(trailer)
			return err
		}
		how := admission.Unmeasured // if it panics
		defer func() {
			permit.Answered(how)
			permit.Release()
		}()
		held := &serverStream{ServerStream: stream, ctx: hold(ctx, permit), permit: permit, early: o.Hold == HoldHeaders}
		err = handler(srv, held)
		how = outcome(ctx, err)
		return err
	}
}

func check(c *admission.Controller) {
	if c == nil {
		panic("admissiongrpc: the controller is nil")
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
	return context.WithValue(ctx, heldKey{}, &held{p, heldBy(ctx)})
}

func heldBy(ctx context.Context) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}

// outcome returns what the end of a call tells a concurrency that is learned.
func outcome(ctx context.Context, err error) admission.Outcome {
	switch code := status.Code(err); {
	case ctx.Err() != nil, code == codes.DeadlineExceeded, code == codes.Unavailable, errors.Is(err, context.DeadlineExceeded):
		return admission.Dropped
	case code == codes.ResourceExhausted:
		return admission.Unmeasured // it may be the client's own limit
	default:
		return admission.Good
	}
}

// serverStream notices when its answer begins, and gives its places back then if it is to.
type serverStream struct {
	grpc.ServerStream
	ctx    context.Context
	permit admission.Permit
	early  bool
}

func (s *serverStream) begin() {
	s.permit.Answered(admission.Good)
	if s.early {
		s.permit.Release()
	}
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendHeader(md metadata.MD) error {
	s.begin()
	return s.ServerStream.SendHeader(md)
}

func (s *serverStream) SendMsg(m any) error {
	s.begin()
	return s.ServerStream.SendMsg(m)
}

func (o *Options) exempt(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/") || o.Exempt != nil && o.Exempt(method)
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
	shed, ok := errors.AsType[*admission.Shed](err)
	if !ok {
		return nil, status.FromContextError(err).Err()
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
