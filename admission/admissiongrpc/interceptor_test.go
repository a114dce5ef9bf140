package admissiongrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissiongrpc"
	"github.com/spillway-go/spillway/admission/internal/adaptertest"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// service does what a test says.
type service struct {
	testpb.UnimplementedTestServiceServer
	unary  func(context.Context) error
	stream func(testpb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return &testpb.SimpleResponse{}, nil
}

// EmptyCall is never exempt but if a test says so.
func (s *service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

func (s *service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	return s.stream(stream)
}

// clients of a server that is stopped, and has given all places back, at the test's end.
type clients struct {
	testpb.TestServiceClient
	health healthpb.HealthClient
}

func serve(t *testing.T, c *admission.Controller, o admissiongrpc.Options, s *service) clients {
	t.Helper()
	return serveTimes(t, c, o, 1, s)
}

// serveTimes is serve with several interceptors, one before the other.
func serveTimes(t *testing.T, c *admission.Controller, o admissiongrpc.Options, times int, s *service) clients {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	// Whoever recovers from panics stands before.
	unary := []grpc.UnaryServerInterceptor{func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
		defer recovered(&err)
		return next(ctx, m)
	}}
	stream := []grpc.StreamServerInterceptor{func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		defer recovered(&err)
		return next(srv, stream)
	}}
	for range times {
		unary, stream = append(unary, o.UnaryServerInterceptor(c)), append(stream, o.StreamServerInterceptor(c))
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...))
	testpb.RegisterTestServiceServer(server, s)
	healthpb.RegisterHealthServer(server, health.NewServer())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.GracefulStop()
		serving.Wait()
		adaptertest.RequireWhole(t, c)
	})
	return clients{testpb.NewTestServiceClient(conn), healthpb.NewHealthClient(conn)}
}

func recovered(err *error) {
	if r := recover(); r != nil {
		*err = status.Error(codes.Internal, fmt.Sprint(r))
	}
}

// call returns the error of a unary call.
func (c clients) call(ctx context.Context) error {
	_, err := c.UnaryCall(ctx, &testpb.SimpleRequest{})
	return err
}

func (c clients) start(ctx context.Context) <-chan error {
	failed := make(chan error, 1)
	go func() { failed <- c.call(ctx) }()
	return failed
}

func options(o adaptertest.Options) admissiongrpc.Options {
	own := admissiongrpc.Options{Unavailable: o.Otherwise, TrustHeaders: o.TrustHeaders}
	if o.Hold == adaptertest.HoldHeaders {
		own.Hold = admissiongrpc.HoldHeaders
	}
	if o.Request != nil {
		own.Request = func(_ context.Context, method string, _ any) admission.Request { return o.Request(pathOf(method)) }
	}
	if o.Exempt != nil {
		own.Exempt = func(method string) bool { return o.Exempt(pathOf(method)) }
	}
	return own
}

// pathOf returns the path that stands for a method.
func pathOf(method string) string {
	switch {
	case method == "/grpc.testing.TestService/EmptyCall":
		return "/metrics"
	case admissiongrpc.HealthCheck(method):
		return "health"
	default:
		return "/"
	}
}

// Call is that of adaptertest.Client, with a method for each path.
func (c clients) Call(ctx context.Context, path string, headers ...string) adaptertest.Answer {
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	var trailer metadata.MD
	var err error
	switch path {
	case "health":
		_, err = c.health.Check(ctx, &healthpb.HealthCheckRequest{})
	case "/metrics":
		_, err = c.EmptyCall(ctx, &testpb.Empty{}, grpc.Trailer(&trailer))
	default:
		_, err = c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
	}
	if ctx.Err() != nil {
		return adaptertest.Answer{Err: ctx.Err()}
	}
	a := adaptertest.Answer{Served: err == nil, Code: status.Code(err).String()}
	for name, to := range map[string]*string{"spillway-shed": &a.Reason, "retry-after": &a.RetryAfter} {
		if said := trailer.Get(name); len(said) == 1 {
			*to = said[0]
		}
	}
	return a
}

// Post is that of adaptertest.Client: all calls have a body.
func (c clients) Post(ctx context.Context, path, _ string) adaptertest.Answer {
	return c.Call(ctx, path)
}

// Open is that of adaptertest.Client.
func (c clients) Open(ctx context.Context, _ adaptertest.Kind) (func() error, error) {
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := s.Recv()
		return err
	}, nil
}

func TestInterceptors(t *testing.T) {
	t.Parallel()
	adaptertest.Run(t, adaptertest.Adapter{
		Serve: func(t *testing.T, c *admission.Controller, o adaptertest.Options, h func(adaptertest.Call)) adaptertest.Client {
			call := func(ctx context.Context, stream func(adaptertest.Kind, <-chan bool)) error {
				h(adaptertest.Call{Context: ctx, Gone: ctx.Done(), Stream: stream, Release: func() { admissiongrpc.Release(ctx) }})
				return nil
			}
			times := 1
			if o.Twice {
				times = 2
			}
			return serveTimes(t, c, options(o), times, &service{
				unary: func(ctx context.Context) error { return call(ctx, func(adaptertest.Kind, <-chan bool) {}) },
				stream: func(s testpb.TestService_FullDuplexCallServer) error {
					return call(s.Context(), func(_ adaptertest.Kind, next <-chan bool) {
						for <-next {
							if s.Send(&testpb.StreamingOutputCallResponse{}) != nil {
								return
							}
						}
					})
				},
			})
		},
		Direct: func(c *admission.Controller, o adaptertest.Options) func(context.Context, func()) strategies.Reason {
			unary := options(o).UnaryServerInterceptor(c)
			return func(ctx context.Context, serve func()) strategies.Reason {
				_, err := unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
					serve()
					return nil, nil
				})
				return map[codes.Code]strategies.Reason{
					codes.Canceled: strategies.ReasonAbandoned, codes.DeadlineExceeded: strategies.ReasonExpired,
				}[status.Code(err)]
			}
		},
		Nil:      func() { admissiongrpc.UnaryServerInterceptor(nil) },
		NilPanic: "admissiongrpc: the controller is nil",
		Codes: map[strategies.Reason]string{
			strategies.ReasonFull: codes.ResourceExhausted.String(), "late": codes.ResourceExhausted.String(),
			strategies.ReasonDraining: codes.Unavailable.String(),
		},
		Otherwise: codes.Unavailable.String(), Mistake: codes.Internal.String(), Address: "bufconn", HealthChecks: []string{"health"},
		Kinds: []adaptertest.Kind{adaptertest.Long},
		Holds: []adaptertest.Hold{adaptertest.HoldAuto, adaptertest.HoldHeaders},
		Gone:  true, Recovers: true,
	})
}

// What a client is told beside the reason.
func TestUnary_Refusal(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1, Capacity: 1})
	client := serve(t, c, admissiongrpc.Options{}, &service{})
	held := adaptertest.Take(t, c)
	waits := client.start(t.Context())
	adaptertest.Waiting(t, c, 1)
	var trailer metadata.MD
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
	held.Release()
	require.NoError(t, <-waits)
	require.Equal(t, "admission: shed: full", status.Convert(err).Message())
	require.Equal(t, []string{"1000"}, trailer.Get("grpc-retry-pushback-ms"))
}

// The client's deadline is how long it waits.
func TestDeadline(t *testing.T) {
	t.Parallel()
	reasons := make(chan strategies.Reason, 100)
	c := adaptertest.Open(t, admission.Options{Concurrency: 1, Shed: func(e admission.Event) { reasons <- e.Reason }})
	client := serve(t, c, admissiongrpc.Options{}, &service{})
	held := adaptertest.Take(t, c)
	// A call may not have come to the queue when its time is up: then another has twice as much.
	for within := 5 * time.Millisecond; len(reasons) == 0; within *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		require.Equal(t, codes.DeadlineExceeded, status.Code(client.call(ctx)))
		cancel()
	}
	// gRPC's server cancels a call when its deadline has passed.
	require.Contains(t, []strategies.Reason{strategies.ReasonExpired, strategies.ReasonAbandoned}, <-reasons)
	held.Release()
}

// A stream's handler may give its place back before its first message.
func TestRelease(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	client := serve(t, c, admissiongrpc.Options{}, &service{stream: func(s testpb.TestService_FullDuplexCallServer) error {
		admissiongrpc.Release(s.Context())
		return s.Send(&testpb.StreamingOutputCallResponse{})
	}})
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	adaptertest.InUse(t, c, 0)
	admissiongrpc.Release(t.Context()) // which has no places
}

// Release gives back those of all interceptors that the call has come through.
func TestRelease_Nested(t *testing.T) {
	t.Parallel()
	outer, inner := adaptertest.Open(t, admission.Options{Concurrency: 1}), adaptertest.Open(t, admission.Options{Concurrency: 1})
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
	_, err := admissiongrpc.UnaryServerInterceptor(outer)(t.Context(), nil, info, func(ctx context.Context, m any) (any, error) {
		return admissiongrpc.UnaryServerInterceptor(inner)(ctx, m, info, func(ctx context.Context, _ any) (any, error) {
			require.Equal(t, []int{1, 1}, []int{outer.Stats().InUse, inner.Stats().InUse})
			admissiongrpc.Release(ctx)
			require.Equal(t, []int{0, 0}, []int{outer.Stats().InUse, inner.Stats().InUse})
			return nil, nil
		})
	})
	require.NoError(t, err)
}

// A peer need not have an address, as where a call does not leave the process.
func TestRequest_PeerWithoutAddress(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	ctx := peer.NewContext(t.Context(), new(peer.Peer))
	_, err := admissiongrpc.UnaryServerInterceptor(c)(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"},
		func(context.Context, any) (any, error) { return nil, nil })
	require.NoError(t, err)
}

// A stream that is turned away says why.
func TestStream_Fails(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1, Capacity: 1})
	client := serve(t, c, admissiongrpc.Options{}, &service{})
	held := adaptertest.Take(t, c)
	waits := client.start(t.Context())
	adaptertest.Waiting(t, c, 1)
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Equal(t, []string{"full"}, stream.Trailer().Get("spillway-shed"))
	held.Release()
	require.NoError(t, <-waits)
}

// What a call costs may go by its method and its message.
func TestRequest(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 4})
	client := serve(t, c, admissiongrpc.Options{Request: func(_ context.Context, method string, message any) admission.Request {
		require.Equal(t, "/grpc.testing.TestService/UnaryCall", method)
		return admission.Request{Cost: len(message.(*testpb.SimpleRequest).GetPayload().GetBody())}
	}}, &service{unary: func(context.Context) error {
		require.Equal(t, 3, c.Stats().InUse)
		return nil
	}})
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 3)}})
	require.NoError(t, err)
}

// Headers are headers whoever sends them, and what cannot be sent is none.
func TestStream_Headers(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(testpb.TestService_FullDuplexCallServer, metadata.MD) error{
		"by the stream": func(s testpb.TestService_FullDuplexCallServer, md metadata.MD) error { return s.SendHeader(md) },
		"by its context": func(s testpb.TestService_FullDuplexCallServer, md metadata.MD) error {
			return grpc.SendHeader(s.Context(), md)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := adaptertest.Open(t, admission.Options{Concurrency: 1})
			outer := adaptertest.Open(t, admission.Options{Concurrency: 1})
			early := admissiongrpc.Options{Hold: admissiongrpc.HoldHeaders}
			client := serve(t, c, early, &service{stream: func(s testpb.TestService_FullDuplexCallServer) error {
				// Another controller before the one of the server.
				return early.StreamServerInterceptor(outer)(nil, s, &grpc.StreamServerInfo{FullMethod: "/a.B/C"}, func(_ any, stream grpc.ServerStream) error {
					s := grpc.GenericServerStream[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]{ServerStream: stream}
					if s.SendHeader(metadata.Pairs("bad", "\x00")) == nil {
						return status.Error(codes.Internal, "that was sent")
					}
					if c.Stats().InUse != 1 || outer.Stats().InUse != 1 {
						return status.Error(codes.Internal, "what failed was taken for an answer")
					}
					if err := send(&s, metadata.Pairs("name", "value")); err != nil {
						return err
					}
					if c.Stats().InUse != 0 || outer.Stats().InUse != 0 {
						return status.Error(codes.Internal, "a place is still taken")
					}
					return nil
				})
			}})
			stream, err := client.FullDuplexCall(t.Context())
			require.NoError(t, err)
			header, err := stream.Header()
			require.NoError(t, err)
			_, err = stream.Recv()
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, []string{"value"}, header.Get("name"))
			adaptertest.RequireWhole(t, outer)
		})
	}
}

// What a call ends with says whether the service could not do enough. A stream says so by its
// first message, whatever comes later.
func TestInterceptors_Outcomes(t *testing.T) {
	t.Parallel()
	for code, how := range map[codes.Code]admission.Outcome{
		codes.OK: admission.Good, codes.NotFound: admission.Good,
		codes.Canceled: admission.Ignored, codes.ResourceExhausted: admission.Ignored,
		codes.Internal: admission.Failed, codes.Unknown: admission.Failed, codes.DataLoss: admission.Failed, codes.Unimplemented: admission.Failed,
		codes.Unavailable: admission.Dropped, codes.DeadlineExceeded: admission.Dropped,
	} {
		end := status.Error(code, "no")
		for name, row := range map[string]struct {
			call func(*admission.Controller) error
			how  admission.Outcome
		}{
			"unary": {func(c *admission.Controller) error {
				_, err := admissiongrpc.UnaryServerInterceptor(c)(t.Context(), nil, &grpc.UnaryServerInfo{},
					func(context.Context, any) (any, error) { return nil, end })
				return err
			}, how},
			"stream": {func(c *admission.Controller) error {
				return admissiongrpc.StreamServerInterceptor(c)(nil, &sink{ctx: t.Context()}, &grpc.StreamServerInfo{},
					func(any, grpc.ServerStream) error { return end })
			}, how},
			"stream with a message": {func(c *admission.Controller) error {
				return admissiongrpc.StreamServerInterceptor(c)(nil, &sink{ctx: t.Context()}, &grpc.StreamServerInfo{},
					func(_ any, s grpc.ServerStream) error { return errors.Join(s.SendMsg(nil), end) })
			}, admission.Good},
		} {
			good := false // it was, and in time
			c := adaptertest.Open(t, admission.Options{Objective: time.Hour, Released: func(e admission.Event) { good = e.InTime }})
			require.Equal(t, code, status.Code(row.call(c)))
			require.Equal(t, row.how == admission.Good, good, "%s: %v", name, code)
			require.Equal(t, row.how == admission.Dropped, c.Stats().Learned.Dropped == 1, "%s: %v", name, code)
		}
	}
}

// sink is a stream whose messages go nowhere.
type sink struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *sink) Context() context.Context { return s.ctx }
func (s *sink) SendMsg(any) error        { return nil }
