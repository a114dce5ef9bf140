package admissiongrpc_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissiongrpc"
	"github.com/spillway-go/spillway/admission/internal/adaptertest"
)

// answer is what a service does with an attempt.
type answer func(context.Context) (metadata.MD, error)

func fails(err error, trailer ...string) answer {
	return func(context.Context) (metadata.MD, error) { return metadata.Pairs(trailer...), err }
}

func refuses(code codes.Code, trailer ...string) answer {
	return fails(status.Error(code, "no"), trailer...)
}

// unary returns what calls a method through the interceptor of c.
func unary(c *admissiongrpc.Client, service answer) func(context.Context) error {
	interceptor := c.UnaryClientInterceptor()
	return func(ctx context.Context) error {
		return interceptor(ctx, "/a.B/C", nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			trailer, err := service(ctx)
			for _, o := range opts {
				if to, ok := o.(grpc.TrailerCallOption); ok {
					*to.TrailerAddr = trailer
				}
			}
			return err
		})
	}
}

// stream returns what opens a stream of answers through the interceptor of c, and receives
// the first. With many it is a stream of messages too.
func stream(c *admissiongrpc.Client, service answer, many bool) func(context.Context) error {
	interceptor := c.StreamClientInterceptor()
	return func(ctx context.Context) error {
		s, err := interceptor(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: many}, nil, "/a.B/C",
			func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
				return &fakeStream{ctx: ctx, service: service}, nil
			})
		if err != nil {
			return err
		}
		if err := errors.Join(s.SendMsg("message"), s.CloseSend()); err != nil {
			return err
		}
		return s.RecvMsg(nil)
	}
}

// fakeStream is answered once its client has said everything.
type fakeStream struct {
	grpc.ClientStream
	ctx     context.Context
	service answer
	sent    any
	closed  bool
	trailer metadata.MD
}

func (s *fakeStream) Context() context.Context { return s.ctx }
func (s *fakeStream) Trailer() metadata.MD     { return s.trailer }

func (s *fakeStream) SendMsg(m any) error {
	s.sent = m
	return nil
}

func (s *fakeStream) CloseSend() error {
	s.closed = true
	return nil
}

func (s *fakeStream) RecvMsg(any) (err error) {
	if s.sent != "message" || !s.closed {
		return status.Error(codes.Internal, "the message is missing")
	}
	s.trailer, err = s.service(s.ctx)
	return err
}

// What is sent again is what the service has not begun, or what may be done twice. Streams
// that the client sends are not.
func TestClient_WhatIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		first      answer
		idempotent bool
		again      bool
	}{
		// The service has not begun it.
		{"full", refuses(codes.ResourceExhausted, "spillway-shed", "full"), false, true},
		{"late", refuses(codes.ResourceExhausted, "spillway-shed", "late"), false, true},
		{"full, of a server that says Unavailable", refuses(codes.Unavailable, "spillway-shed", "full"), false, true},
		{"draining", refuses(codes.Unavailable, "spillway-shed", "draining", "retry-after", "1"), false, true},
		// It may have had its effect.
		{"no answer", refuses(codes.Unavailable), false, false},
		{"no answer to what may be done twice", refuses(codes.Unavailable), true, true},
		// It would not help.
		{"expired", refuses(codes.DeadlineExceeded, "spillway-shed", "expired"), true, false},
		{"a deadline", refuses(codes.DeadlineExceeded), true, false},
		{"a quota, or a message that is too large", refuses(codes.ResourceExhausted), true, false},
		{"not to be asked again", refuses(codes.ResourceExhausted, "spillway-shed", "full", "grpc-retry-pushback-ms", "-1"), true, false},
		{"after longer than a client waits", refuses(codes.ResourceExhausted, "spillway-shed", "full", "retry-after", "31"), true, false},
		// An answer is an answer.
		{"a failure", refuses(codes.Internal), true, false},
		{"nothing there", refuses(codes.NotFound), true, false},
		{"served", fails(nil), true, false},
		{"the end of an empty stream", fails(io.EOF), true, false},
	} {
		for kind, call := range map[string]func(*admissiongrpc.Client, answer) func(context.Context) error{
			"unary":  unary,
			"stream": func(c *admissiongrpc.Client, s answer) func(context.Context) error { return stream(c, s, false) },
			"bidi":   func(c *admissiongrpc.Client, s answer) func(context.Context) error { return stream(c, s, true) },
		} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := &admissiongrpc.Client{Idempotent: func(method string) bool {
						require.Equal(t, "/a.B/C", method)
						return tt.idempotent
					}}
					attempts := 0
					var first error
					err := call(c, func(ctx context.Context) (metadata.MD, error) {
						if attempts++; attempts > 1 {
							return nil, nil
						}
						trailer, err := tt.first(ctx)
						first = err
						return trailer, err
					})(t.Context())
					if tt.again && kind != "bidi" {
						require.NoError(t, err)
						require.Equal(t, 2, attempts)
						return
					}
					require.Equal(t, 1, attempts)
					require.Equal(t, first, err)
				})
			})
		}
	}
}

// The service says how long to wait, and is not asked earlier.
func TestClient_RetryAfter(t *testing.T) {
	t.Parallel()
	told, err := status.New(codes.ResourceExhausted, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
	require.NoError(t, err)
	for _, tt := range []struct {
		name     string
		first    answer
		least    time.Duration
		most     time.Duration
		patience time.Duration
		want     int
	}{
		{"retry-after", refuses(codes.Unavailable, "spillway-shed", "full", "retry-after", "2"), 2 * time.Second, 3001 * time.Millisecond, time.Minute, 2},
		{"RetryInfo", fails(told.Err(), "spillway-shed", "full", "retry-after", "2"), 3 * time.Second, 4501 * time.Millisecond, time.Minute, 2},
		{"pushback", fails(told.Err(), "spillway-shed", "full", "grpc-retry-pushback-ms", "1500", "retry-after", "2"),
			1500 * time.Millisecond, 2251 * time.Millisecond, time.Minute, 2},
		{"nothing", refuses(codes.Unavailable, "spillway-shed", "full"), 0, 200 * time.Millisecond, time.Minute, 2},
		{"no number", refuses(codes.Unavailable, "spillway-shed", "full", "retry-after", "soon"), 0, 200 * time.Millisecond, time.Minute, 2},
		{"too late", refuses(codes.Unavailable, "spillway-shed", "full", "retry-after", "2"), 0, 0, 2 * time.Second, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
				defer cancel()
				var times []time.Time
				err := unary(new(admissiongrpc.Client), func(ctx context.Context) (metadata.MD, error) {
					if times = append(times, time.Now()); len(times) > 1 {
						return nil, nil
					}
					return tt.first(ctx)
				})(ctx)
				require.Len(t, times, tt.want)
				if tt.want == 1 {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
				require.GreaterOrEqual(t, times[1].Sub(times[0]), tt.least)
				require.LessOrEqual(t, times[1].Sub(times[0]), tt.most)
			})
		})
	}
}

// Who gives up while the next attempt is waited for is told at once, and by a status.
func TestClient_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		err := unary(new(admissiongrpc.Client), refuses(codes.Unavailable, "spillway-shed", "full", "retry-after", "20"))(ctx)
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Equal(t, time.Second, time.Since(begun))
		require.Equal(t, codes.Canceled, status.Code(unary(new(admissiongrpc.Client), nil)(ctx)), "it is not sent")
		require.Equal(t, codes.Canceled, status.Code(stream(new(admissiongrpc.Client), nil, false)(ctx)), "it is not sent")
	})
}

// What says nothing of the service throttles nobody.
func TestClient_WhatThrottles(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) (metadata.MD, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	slow := func(ctx context.Context) (metadata.MD, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return nil, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	for _, tt := range []struct {
		name      string
		service   answer
		deadline  time.Duration
		leaves    time.Duration
		throttled bool
	}{
		{"full", refuses(codes.ResourceExhausted, "spillway-shed", "full"), 0, 0, true},
		{"late", refuses(codes.ResourceExhausted, "spillway-shed", "late"), 0, 0, true},
		{"no answer", refuses(codes.Unavailable), 0, 0, true},
		{"a deadline", hang, time.Second, 0, true},
		// These are about the client.
		{"served", slow, 0, 0, false},
		{"a failure", refuses(codes.Internal), 0, 0, false},
		{"the client's quota", refuses(codes.ResourceExhausted), 0, 0, false},
		{"a caller that leaves", hang, 0, time.Millisecond, false},
		{"a caller with less time than it takes", slow, 100 * time.Millisecond, 0, false},
		{"a caller without time", hang, -1, 0, false},
	} {
		for kind, call := range map[string]func(*admissiongrpc.Client, answer) func(context.Context) error{
			"unary":  unary,
			"stream": func(c *admissiongrpc.Client, s answer) func(context.Context) error { return stream(c, s, false) },
			"bidi":   func(c *admissiongrpc.Client, s answer) func(context.Context) error { return stream(c, s, true) },
		} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := new(admissiongrpc.Client)
					for range 10 {
						require.NoError(t, call(c, slow)(t.Context()))
					}
					ask := call(c, tt.service)
					var throttled atomic.Int64
					var all sync.WaitGroup
					for i := range 400 {
						if i >= 200 { // the others are at once
							time.Sleep(20 * time.Millisecond)
						}
						all.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tt.deadline, time.Minute))
							defer cancel()
							if tt.leaves > 0 {
								time.AfterFunc(tt.leaves, cancel)
							}
							err := ask(ctx)
							if errors.Is(err, admissiongrpc.ErrThrottled) {
								throttled.Add(1)
								if status.Code(err) != codes.Unavailable {
									t.Error(err)
								}
							}
						})
					}
					all.Wait()
					if tt.throttled {
						require.Greater(t, throttled.Load(), int64(40))
					} else {
						require.Zero(t, throttled.Load())
					}
				})
			})
		}
	}
}

// streaming answers by one message and an end.
type streaming struct {
	testpb.UnimplementedTestServiceServer
}

func (streaming) UnaryCall(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Username: "me"}, nil
}

func (streaming) StreamingOutputCall(r *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	if err := s.SendHeader(metadata.Pairs("served", "yes")); err != nil {
		return err
	}
	return s.Send(&testpb.StreamingOutputCallResponse{Payload: r.GetPayload()})
}

// A call that a server of this package has turned away comes again when it was told to,
// and is served, whole.
func TestClient_AgainstAServer(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, testpb.TestServiceClient) error{
		"unary": func(ctx context.Context, c testpb.TestServiceClient) error {
			r, err := c.UnaryCall(ctx, &testpb.SimpleRequest{})
			if err == nil && r.GetUsername() != "me" {
				return errors.New("the answer is not whole")
			}
			return err
		},
		"stream": func(ctx context.Context, c testpb.TestServiceClient) error {
			s, err := c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte("me")}})
			if err != nil {
				return err
			}
			r, err := s.Recv()
			if err == nil && string(r.GetPayload().GetBody()) != "me" {
				return errors.New("the answer is not whole")
			}
			if err == nil {
				_, err = s.Recv()
			}
			if header, _ := s.Header(); len(header.Get("served")) == 0 {
				return errors.New("the header is not that of the answer")
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var held, waits admission.Permit
			var refused atomic.Int64
			turnedAway := make(chan struct{}, 3)
			ctl := adaptertest.Open(t, admission.Options{Concurrency: 1, Capacity: 1, Shed: func(admission.Event) {
				refused.Add(1)
				turnedAway <- struct{}{}
			}})
			held = adaptertest.Take(t, ctl)
			queued := make(chan error, 1)
			go func() {
				var err error
				waits, err = ctl.Acquire(t.Context(), admission.Request{})
				queued <- err
			}()
			adaptertest.Waiting(t, ctl, 1)
			failed := make(chan error, 1)
			conn := dial(t, ctl)
			go func() { failed <- call(t.Context(), testpb.NewTestServiceClient(conn)) }()
			<-turnedAway
			held.Release()
			require.NoError(t, <-queued)
			waits.Release()
			require.NoError(t, <-failed)
			require.Equal(t, int64(1), refused.Load())
		})
	}
}

// dial returns a connection with a Client to a server behind ctl.
func dial(t *testing.T, ctl *admission.Controller) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer(
		grpc.UnaryInterceptor(admissiongrpc.UnaryServerInterceptor(ctl)),
		grpc.StreamInterceptor(admissiongrpc.StreamServerInterceptor(ctl)),
	)
	testpb.RegisterTestServiceServer(server, streaming{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); err != nil {
			t.Error(err)
		}
	})
	calls := new(admissiongrpc.Client)
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(calls.UnaryClientInterceptor()), grpc.WithStreamInterceptor(calls.StreamClientInterceptor()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.GracefulStop()
		serving.Wait()
	})
	return conn
}

// A stream that cannot be opened got no answer either.
func TestClient_StreamThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := new(admissiongrpc.Client).StreamClientInterceptor()
		throttled := 0
		for range 400 {
			_, err := open(t.Context(), &grpc.StreamDesc{}, nil, "/a.B/C", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, status.Error(codes.Unavailable, "no")
			})
			require.Equal(t, codes.Unavailable, status.Code(err))
			if errors.Is(err, admissiongrpc.ErrThrottled) {
				throttled++
			}
		}
		require.Greater(t, throttled, 200)
	})
}
