package admissionfasthttp_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionfasthttp"
	"github.com/spillway-go/spillway/admission/internal/adaptertest"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) {
	testenv.Main(m,
		// fasthttp has one goroutine for the date, as long as the process lives,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// and one a server that sleeps for seconds before it sees that it may end.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// serve starts a server that is stopped, and has given all places back, at the test's end.
func serve(t *testing.T, c *admission.Controller, h fasthttp.RequestHandler) adaptertest.HTTP {
	t.Helper()
	client, stop := listen(t, h)
	t.Cleanup(func() {
		stop()
		adaptertest.RequireWhole(t, c)
	})
	return client
}

func listen(t *testing.T, h fasthttp.RequestHandler) (client adaptertest.HTTP, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fasthttp.Server{Handler: h, CloseOnShutdown: true, Logger: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	return adaptertest.HTTP{URL: "http://" + l.Addr().String()}, func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	}
}

func options(o adaptertest.Options) admissionfasthttp.Options {
	own := admissionfasthttp.Options{Hold: admissionfasthttp.Hold(o.Hold), TooManyRequests: o.Otherwise, TrustHeaders: o.TrustHeaders}
	if o.Request != nil {
		own.Request = func(ctx *fasthttp.RequestCtx) admission.Request { return o.Request(string(ctx.Path())) }
	}
	if o.Exempt != nil {
		own.Exempt = func(ctx *fasthttp.RequestCtx) bool { return o.Exempt(string(ctx.Path())) }
	}
	return own
}

// stream leaves behind what sends messages.
func stream(ctx *fasthttp.RequestCtx, k adaptertest.Kind, next <-chan bool) {
	if k == adaptertest.Hijack {
		ctx.HijackSetNoResponse(true)
		ctx.Hijack(func(conn net.Conn) {
			_, err := io.WriteString(conn, adaptertest.Upgraded)
			for err == nil && <-next {
				_, err = io.WriteString(conn, adaptertest.Message)
			}
		})
		return
	}
	ctx.SetContentType(string(k))
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		for <-next {
			_, _ = w.WriteString(adaptertest.Message)
			if w.Flush() != nil {
				return
			}
		}
	})
}

func TestHandler(t *testing.T) {
	t.Parallel()
	adaptertest.Run(t, adaptertest.Adapter{
		Serve: func(t *testing.T, c *admission.Controller, o adaptertest.Options, h func(adaptertest.Call)) adaptertest.Client {
			handler := options(o).Handler(c, func(ctx *fasthttp.RequestCtx) {
				h(adaptertest.Call{Context: ctx, Stream: func(k adaptertest.Kind, next <-chan bool) { stream(ctx, k, next) }})
			})
			if o.Twice {
				handler = options(o).Handler(c, handler)
			}
			return serve(t, c, func(ctx *fasthttp.RequestCtx) {
				for name, value := range o.Before {
					ctx.Response.Header.Set(name, value)
				}
				handler(ctx)
			})
		},
		Direct: func(c *admission.Controller, o adaptertest.Options) func(context.Context, func()) strategies.Reason {
			own := options(o)
			own.Wait = o.Wait
			return func(_ context.Context, serve func()) strategies.Reason {
				var ctx fasthttp.RequestCtx
				own.Handler(c, func(*fasthttp.RequestCtx) { serve() })(&ctx)
				return strategies.Reason(ctx.Response.Header.Peek("Spillway-Shed"))
			}
		},
		Nil:      func() { admissionfasthttp.Handler(nil, hello) },
		NilPanic: "admissionfasthttp: the controller is nil",
		Codes:    adaptertest.HTTPCodes, Otherwise: "429", Mistake: "500", Address: "127.0.0.1",
		HealthChecks: []string{"/healthz", "/livez", "/readyz"},
		Kinds:        []adaptertest.Kind{adaptertest.Long, adaptertest.Events, adaptertest.Hijack},
		Holds:        []adaptertest.Hold{adaptertest.HoldAuto, adaptertest.HoldBody, adaptertest.HoldHeaders},
		Timeout:      true,
	})
}

func hello(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("hello") }

// A request waits for no longer than it may.
func TestHandler_Wait(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	client := serve(t, c, admissionfasthttp.Options{Wait: time.Millisecond}.Handler(c, hello))
	held := adaptertest.Take(t, c)
	a := client.Call(t.Context(), "/")
	held.Release()
	require.Equal(t, adaptertest.Answer{Code: "504", Reason: "expired"}, a)
}

// A request that fasthttp has given up while its handler left a stream behind.
func TestHandler_TimesOut(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	end, returned := make(chan struct{}), make(chan struct{})
	inner := admissionfasthttp.Handler(c, func(ctx *fasthttp.RequestCtx) {
		<-end
		ctx.SetBodyStream(strings.NewReader("late"), -1)
	})
	client := serve(t, c, fasthttp.TimeoutHandler(func(ctx *fasthttp.RequestCtx) {
		inner(ctx)
		close(returned)
	}, 10*time.Millisecond, "timed out"))
	require.Equal(t, "408", client.Call(t.Context(), "/").Code)
	close(end)
	<-returned
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.Stats().InUse == 0
	}, time.Minute, time.Millisecond)
}

// A stream that panics, which fasthttp recovers from, gives its place back.
func TestHandler_StreamPanics(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	client := serve(t, c, admissionfasthttp.Handler(c, func(ctx *fasthttp.RequestCtx) { ctx.SetBodyStream(panicking{}, -1) }))
	for range 3 {
		require.Error(t, client.Call(t.Context(), "/").Err)
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("oops") }

// A server that shuts down serves what waits.
func TestHandler_Shutdown(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	client, stop := listen(t, admissionfasthttp.Handler(c, hello))
	held := adaptertest.Take(t, c)
	waits := make(chan adaptertest.Answer, 1)
	go func() { waits <- client.Call(t.Context(), "/") }()
	adaptertest.Waiting(t, c, 1)
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	held.Release()
	require.True(t, (<-waits).Served)
	<-stopped
	adaptertest.RequireWhole(t, c)
}

func TestHandler_NothingGiven(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	require.PanicsWithValue(t, "admissionfasthttp: the handler is nil", func() { admissionfasthttp.Handler(c, nil) })
}

// A stream behind two handlers, as one for the server and one for a route, keeps the
// places of both, and gives both back.
func TestHandler_Nested(t *testing.T) {
	t.Parallel()
	outer := adaptertest.Open(t, admission.Options{Concurrency: 1})
	inner := adaptertest.Open(t, admission.Options{Concurrency: 1})
	h := admissionfasthttp.Handler(outer, admissionfasthttp.Handler(inner, func(ctx *fasthttp.RequestCtx) {
		ctx.SetBodyStream(strings.NewReader("x"), -1)
	}))
	var ctx fasthttp.RequestCtx
	ctx.Init(new(fasthttp.Request), nil, nil)
	h(&ctx)
	require.Equal(t, []int{1, 1}, []int{outer.Stats().InUse, inner.Stats().InUse})
	ctx.ResetUserValues() // as fasthttp does once the answer has been sent
	require.Equal(t, []int{0, 0}, []int{outer.Stats().InUse, inner.Stats().InUse})
}

// How long a request may wait says nothing of how long its answer may take: one that has waited
// for long, and then is refused by the resource, was dropped.
func TestHandler_WaitIsNoDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := adaptertest.Open(t, admission.Options{MaxConcurrency: 1})
		held := adaptertest.Take(t, c)
		time.AfterFunc(time.Second, held.Release) // which is usual
		admissionfasthttp.Options{Wait: 1500 * time.Millisecond}.Handler(c, func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
		})(new(fasthttp.RequestCtx))
		require.EqualValues(t, 1, c.Stats().Learned.Dropped)
	})
}
