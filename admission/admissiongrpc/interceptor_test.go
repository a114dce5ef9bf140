package admissiongrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissiongrpc"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func (s *service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	return s.stream(stream)
}

func open(t *testing.T, o admission.Options) *admission.Controller {
	t.Helper()
	if o.Strategy == "" {
		o.Strategy = "fifo"
	}
	c, err := admission.New(o)
	require.NoError(t, err)
	return c
}

// clients of a server that is stopped, and has given all places back, at the test's end.
type clients struct {
	testpb.TestServiceClient
	health healthpb.HealthClient
}

func serve(t *testing.T, c *admission.Controller, o admissiongrpc.Options, s *service) clients {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	// Whoever recovers from panics stands before.
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer recovered(&err)
			return next(ctx, m)
		}, o.UnaryServerInterceptor(c)),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer recovered(&err)
			return next(srv, stream)
		}, o.StreamServerInterceptor(c)),
	)
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
		requireWhole(t, c)
	})
	return clients{testpb.NewTestServiceClient(conn), healthpb.NewHealthClient(conn)}
}

func recovered(err *error) {
	if r := recover(); r != nil {
		*err = status.Error(codes.Internal, fmt.Sprint(r))
	}
}

// requireWhole finds a place that was lost, or one too many.
func requireWhole(t *testing.T, c *admission.Controller) {
	t.Helper()
	require.Eventually(t, func() bool { s := c.Stats(); return s.InUse == 0 && s.Waiting == 0 },
		10*time.Second, time.Millisecond, "a place is lost, or a request")
	var all []admission.Permit
	for {
		p, ok := c.TryAcquire(admission.Request{})
		if !ok {
			break
		}
		all = append(all, p)
	}
	if len(all) > 0 { // it is not closed
		require.Len(t, all, c.Stats().Concurrency)
	}
	for _, p := range all {
		p.Release()
	}
}

func take(t *testing.T, c *admission.Controller) admission.Permit {
	t.Helper()
	p, ok := c.TryAcquire(admission.Request{})
	require.True(t, ok)
	return p
}

func waiting(t *testing.T, c *admission.Controller, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Waiting == n }, 10*time.Second, time.Millisecond)
}

func inUse(t *testing.T, c *admission.Controller, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().InUse == n }, 10*time.Second, time.Millisecond)
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

func TestUnary_WaitsOrFails(t *testing.T) {
	t.Parallel()
	for unavailable, code := range map[bool]codes.Code{false: codes.ResourceExhausted, true: codes.Unavailable} {
		c := open(t, admission.Options{Concurrency: 1, Capacity: 1})
		client := serve(t, c, admissiongrpc.Options{Unavailable: unavailable}, &service{})
		held := take(t, c)
		waits := client.start(t.Context())
		waiting(t, c, 1)
		var trailer metadata.MD
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
		held.Release()
		require.NoError(t, <-waits)
		require.Equal(t, code, status.Code(err))
		require.Equal(t, "admission: shed: full", status.Convert(err).Message())
		require.Equal(t, []string{"full"}, trailer.Get("spillway-shed"))
		require.Equal(t, []string{"1"}, trailer.Get("retry-after"))
		require.Equal(t, []string{"1000"}, trailer.Get("grpc-retry-pushback-ms"))
	}
}

// A handler that panics, and whose panic is recovered from, gives its place back.
func TestPanics(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	client := serve(t, c, admissiongrpc.Options{}, &service{
		unary:  func(context.Context) error { panic("oops") },
		stream: func(testpb.TestService_FullDuplexCallServer) error { panic("oops") },
	})
	for range 3 {
		require.Equal(t, codes.Internal, status.Code(client.call(t.Context())))
		stream, err := client.FullDuplexCall(t.Context())
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, codes.Internal, status.Code(err))
	}
}

// A client that goes while it waits is not served; one that goes while it is served ends
// its context.
func TestClientGoes(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	begun := 0
	client := serve(t, c, admissiongrpc.Options{}, &service{unary: func(ctx context.Context) error {
		begun++
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	served := client.start(ctx)
	inUse(t, c, 1)
	leaving, leave := context.WithCancel(t.Context())
	waits := client.start(leaving)
	waiting(t, c, 1)
	leave()
	require.Equal(t, codes.Canceled, status.Code(<-waits))
	waiting(t, c, 0)
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-served))
	inUse(t, c, 0)
	require.Equal(t, 1, begun)
}

// The client's deadline is how long it waits.
func TestDeadline(t *testing.T) {
	t.Parallel()
	reasons := make(chan strategies.Reason, 1)
	c := open(t, admission.Options{Concurrency: 1, Shed: func(e admission.Event) { reasons <- e.Reason }})
	client := serve(t, c, admissiongrpc.Options{}, &service{})
	held := take(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	require.Equal(t, codes.DeadlineExceeded, status.Code(client.call(ctx)))
	select {
	case r := <-reasons:
		// gRPC's server cancels a call when its deadline has passed.
		require.Contains(t, []strategies.Reason{strategies.ReasonExpired, strategies.ReasonAbandoned}, r)
	case <-time.After(10 * time.Millisecond): // the call may not have come that far
	}
	held.Release()
}

// Whichever comes first, the place or the end of the context: none is lost, and the
// handler is called or the call fails.
func TestContextEndsAsItsPlaceComes(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies.Names() {
		c := open(t, admission.Options{Strategy: strategy, Concurrency: 1})
		unary := admissiongrpc.UnaryServerInterceptor(c)
		for range 200 {
			p, err := c.Acquire(t.Context(), admission.Request{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			served := false
			wg.Go(func() {
				_, err = unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
					served = true
					return nil, nil
				})
			})
			wg.Go(cancel)
			wg.Go(p.Release)
			wg.Wait()
			require.Equal(t, served, err == nil)
			if !served {
				require.Equal(t, codes.Canceled, status.Code(err))
			}
		}
		if strategy != "sync" && strategy != "caller-runs" {
			requireWhole(t, c)
		}
	}
}

// A stream keeps its place until its end, or as it is told.
func TestStream_Hold(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		hold    admissiongrpc.Hold
		release bool // by the handler, before its first message
		held    int  // places, once the first message is out
	}{
		{"until its end", admissiongrpc.HoldAuto, false, 1},
		{"until its headers", admissiongrpc.HoldHeaders, false, 0},
		{"until its handler says so", admissiongrpc.HoldAuto, true, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := open(t, admission.Options{Concurrency: 1})
			client := serve(t, c, admissiongrpc.Options{Hold: row.hold}, &service{stream: func(s testpb.TestService_FullDuplexCallServer) error {
				if row.release {
					admissiongrpc.Release(s.Context())
				}
				for {
					if _, err := s.Recv(); errors.Is(err, io.EOF) {
						return nil
					} else if err != nil {
						return err
					}
					if err := s.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
						return err
					}
				}
			}})
			stream, err := client.FullDuplexCall(t.Context())
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
				_, err = stream.Recv()
				require.NoError(t, err)
				require.Equal(t, row.held, c.Stats().InUse)
			}
			require.NoError(t, stream.CloseSend())
			_, err = stream.Recv()
			require.ErrorIs(t, err, io.EOF)
			inUse(t, c, 0)

			// Its client goes.
			ctx, cancel := context.WithCancel(t.Context())
			stream, err = client.FullDuplexCall(ctx)
			require.NoError(t, err)
			require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
			_, err = stream.Recv()
			require.NoError(t, err)
			cancel()
			_, err = stream.Recv()
			require.Equal(t, codes.Canceled, status.Code(err))
		})
	}
	admissiongrpc.Release(t.Context()) // which has no places
}

// A stream that is turned away says why.
func TestStream_Fails(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1, Capacity: 1})
	client := serve(t, c, admissiongrpc.Options{}, &service{})
	held := take(t, c)
	waits := client.start(t.Context())
	waiting(t, c, 1)
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Equal(t, []string{"full"}, stream.Trailer().Get("spillway-shed"))
	held.Release()
	require.NoError(t, <-waits)
}

// A call that costs more than there is takes what there is.
func TestCostsMoreThanThereIs(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 4})
	client := serve(t, c, admissiongrpc.Options{Request: func(_ context.Context, method string, message any) admission.Request {
		require.Equal(t, "/grpc.testing.TestService/UnaryCall", method)
		return admission.Request{Cost: len(message.(*testpb.SimpleRequest).GetPayload().GetBody())}
	}}, &service{unary: func(context.Context) error {
		require.Equal(t, 4, c.Stats().InUse)
		return nil
	}})
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 100)}})
	require.NoError(t, err)
}

// Health checks, and what a function picks, do not wait.
func TestExempt(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1, Shed: func(admission.Event) { t.Error("measured") }})
	client := serve(t, c, admissiongrpc.Options{
		Exempt: func(method string) bool { return method == "/grpc.testing.TestService/FullDuplexCall" },
	}, &service{stream: func(testpb.TestService_FullDuplexCallServer) error { return nil }})
	held := take(t, c)
	defer held.Release()
	_, err := client.health.Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

// Metadata counts for nothing unless it is trusted.
func TestTrustsMetadataOnlyIfToldTo(t *testing.T) {
	t.Parallel()
	for trust, want := range map[bool]admission.Request{
		false: {Client: "bufconn"},
		true:  {Client: "me", Priority: strategies.MostImportant},
	} {
		told := make(chan admission.Request, 1)
		c := open(t, admission.Options{Concurrency: 1, Admitted: func(e admission.Event) {
			if e.Request.Client != "" {
				told <- e.Request
			}
		}})
		client := serve(t, c, admissiongrpc.Options{TrustHeaders: trust}, &service{})
		ctx := metadata.AppendToOutgoingContext(t.Context(), "spillway-client", "me", "spillway-priority", "0", "priority", "u=6")
		require.NoError(t, client.call(ctx))
		require.Equal(t, want, <-told)
	}
}

// Places are taken away while all are taken.
func TestConcurrencyIsLoweredWhileAllPlacesAreTaken(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 4})
	end := make(chan struct{})
	client := serve(t, c, admissiongrpc.Options{}, &service{unary: func(context.Context) error { <-end; return nil }})
	var all []<-chan error
	for range 6 {
		all = append(all, client.start(t.Context()))
	}
	waiting(t, c, 2)
	require.NoError(t, c.SetConcurrency(1))
	for range 3 {
		end <- struct{}{}
	}
	inUse(t, c, 1)
	require.Equal(t, 2, c.Stats().Waiting)
	close(end)
	for _, a := range all {
		require.NoError(t, <-a)
	}
}

// Drain serves what waits, Close turns it away; both turn away what comes.
func TestStops(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		stop func(c *admission.Controller)
		code codes.Code
	}{
		"drain": {func(c *admission.Controller) { _ = c.Drain(context.Background()) }, codes.OK},
		"close": {func(c *admission.Controller) { c.Close() }, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, admission.Options{Concurrency: 1})
			client := serve(t, c, admissiongrpc.Options{}, &service{})
			held := take(t, c)
			waits := client.start(t.Context())
			waiting(t, c, 1)
			stopped := make(chan struct{})
			go func() { row.stop(c); close(stopped) }()
			if row.code == codes.OK {
				held.Release()
			}
			require.Equal(t, row.code, status.Code(<-waits))
			held.Release()
			<-stopped
			require.Equal(t, codes.Unavailable, status.Code(client.call(t.Context())))
		})
	}
}

func TestNothingGiven(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "admissiongrpc: the controller is nil", func() { admissiongrpc.UnaryServerInterceptor(nil) })
	require.PanicsWithValue(t, "admissiongrpc: the controller is nil", func() { admissiongrpc.StreamServerInterceptor(nil) })
}

// Many clients do whatever clients do, under strategies that change: nothing is lost.
func TestSoak(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 3, Capacity: 8})
	client := serve(t, c, admissiongrpc.Options{
		Request: func(context.Context, string, any) admission.Request { return admission.Request{Cost: rand.IntN(5)} },
	}, &service{
		unary: func(ctx context.Context) error {
			switch rand.IntN(3) {
			case 0:
				panic("oops")
			case 1:
				<-ctx.Done()
			case 2:
				admissiongrpc.Release(ctx)
			}
			return nil
		},
		stream: func(s testpb.TestService_FullDuplexCallServer) error {
			for range rand.IntN(3) {
				if err := s.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return nil
		},
	})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(10*time.Millisecond))
				if rand.IntN(2) == 0 {
					_ = client.call(ctx)
				} else if stream, err := client.FullDuplexCall(ctx); err == nil {
					_, _ = stream.Recv()
				}
				cancel()
			}
		})
	}
	all.Go(func() {
		for i, name := range strategies.Names() {
			if name != "sync" && name != "caller-runs" { // whose places nobody counts
				require.NoError(t, c.Switch(name))
			}
			require.NoError(t, c.SetConcurrency(1+i%4))
			time.Sleep(time.Millisecond)
		}
	})
	all.Wait()
}
