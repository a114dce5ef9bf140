package admissionfasthttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionfasthttp"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp has one goroutine for the date, as long as the process lives,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// and one a server that sleeps for seconds before it sees that it may end.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
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

// serve returns the URL of a server that is stopped, and has given all places back, at the
// test's end.
func serve(t *testing.T, c *admission.Controller, h fasthttp.RequestHandler) string {
	t.Helper()
	url, stop := listen(t, h)
	t.Cleanup(func() {
		stop()
		requireWhole(t, c)
	})
	return url
}

func listen(t *testing.T, h fasthttp.RequestHandler) (url string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fasthttp.Server{Handler: h, CloseOnShutdown: true}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String(), func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		serving.Wait()
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

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func get(ctx context.Context, url string, headers ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{err: err}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

func start(ctx context.Context, url string, headers ...string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- get(ctx, url, headers...) }()
	return c
}

func hello(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("hello") }

func TestHandler_WaitsOrRefuses(t *testing.T) {
	t.Parallel()
	for tooMany, status := range map[bool]int{false: 503, true: 429} {
		c := open(t, admission.Options{Concurrency: 1, Capacity: 1})
		url := serve(t, c, admissionfasthttp.Options{TooManyRequests: tooMany}.Handler(c, hello))
		held := take(t, c)
		waits := start(t.Context(), url)
		waiting(t, c, 1)
		a := get(t.Context(), url)
		held.Release()
		require.Equal(t, "hello", (<-waits).body)

		require.NoError(t, a.err)
		require.Equal(t, status, a.status)
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Equal(t, "full", a.header.Get("Spillway-Shed"))
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.JSONEq(t, fmt.Sprintf(`{"title":%q,"status":%d,"detail":"the queue is full"}`, http.StatusText(status), status), a.body)
	}
}

// A handler that panics, and whose panic is recovered from, gives its place back.
func TestHandler_Panics(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	h := admissionfasthttp.Handler(c, func(*fasthttp.RequestCtx) { panic("oops") })
	for range 3 {
		require.PanicsWithValue(t, "oops", func() { h(new(fasthttp.RequestCtx)) })
	}
	requireWhole(t, c)
}

// fasthttp does not say that a client has gone. What it has asked for is served, and its
// place comes back.
func TestHandler_ClientGoes(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	end := make(chan struct{})
	url := serve(t, c, admissionfasthttp.Handler(c, func(*fasthttp.RequestCtx) { <-end }))
	ctx, cancel := context.WithCancel(t.Context())
	served := start(ctx, url)
	inUse(t, c, 1)
	waits := start(ctx, url)
	waiting(t, c, 1)
	cancel()
	require.ErrorIs(t, (<-served).err, context.Canceled)
	require.ErrorIs(t, (<-waits).err, context.Canceled)
	close(end)
	inUse(t, c, 0)
}

// A request waits for no longer than it may.
func TestHandler_Wait(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	url := serve(t, c, admissionfasthttp.Options{Wait: time.Millisecond}.Handler(c, hello))
	held := take(t, c)
	a := get(t.Context(), url)
	held.Release()
	require.Equal(t, 504, a.status)
	require.Equal(t, "expired", a.header.Get("Spillway-Shed"))
	require.Empty(t, a.header.Get("Retry-After"))
}

// Whichever comes first, the place or the end of the wait: none is lost.
func TestHandler_WaitEndsAsItsPlaceComes(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"fifo", "auto", "mpmc", "sharded", "unbounded"} {
		c := open(t, admission.Options{Strategy: strategy, Concurrency: 1})
		served := false
		h := admissionfasthttp.Options{Wait: 100 * time.Microsecond}.Handler(c, func(*fasthttp.RequestCtx) { served = true })
		for range 100 {
			p, err := c.Acquire(t.Context(), admission.Request{})
			require.NoError(t, err)
			served = false
			var ctx fasthttp.RequestCtx
			done := make(chan struct{})
			go func() { h(&ctx); close(done) }()
			time.Sleep(100 * time.Microsecond)
			p.Release()
			<-done
			require.Equal(t, served, ctx.Response.StatusCode() == 200)
		}
		requireWhole(t, c)
	}
}

// What becomes of the place of a body that streams for long, and of events.
func TestHandler_Hold(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, contentType string
		hold              admissionfasthttp.Hold
		held              int // places, once the handler has returned
	}{
		{"a body that streams for long", "text/plain", admissionfasthttp.HoldAuto, 1},
		{"server-sent events", "text/event-stream; charset=utf-8", admissionfasthttp.HoldAuto, 0},
		{"server-sent events, told otherwise", "text/event-stream", admissionfasthttp.HoldBody, 1},
		{"a body that streams for long, told otherwise", "text/plain", admissionfasthttp.HoldHeaders, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := open(t, admission.Options{Concurrency: 1})
			next := make(chan bool)
			url := serve(t, c, admissionfasthttp.Options{Hold: row.hold}.Handler(c, func(ctx *fasthttp.RequestCtx) {
				ctx.SetContentType(row.contentType)
				ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
					for <-next {
						_, _ = w.WriteString("data: x\n\n")
						_ = w.Flush()
					}
				})
			}))
			answered := start(t.Context(), url)
			next <- true
			next <- true // by which time the handler has returned
			inUse(t, c, row.held)
			next <- false
			a := <-answered
			require.NoError(t, a.err)
			require.Equal(t, strings.Repeat("data: x\n\n", 2), a.body)
		})
	}
}

// A client that goes in the midst of a stream gives its place back.
func TestHandler_ClientGoesWhileItsBodyStreams(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	url := serve(t, c, admissionfasthttp.Handler(c, func(ctx *fasthttp.RequestCtx) {
		ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
			for w.Flush() == nil {
				_, _ = w.WriteString(strings.Repeat("x", 1<<16))
			}
		})
	}))
	ctx, cancel := context.WithCancel(t.Context())
	answered := start(ctx, url)
	inUse(t, c, 1)
	cancel()
	require.ErrorIs(t, (<-answered).err, context.Canceled)
	inUse(t, c, 0)
}

// A request that fasthttp has given up while its handler left a stream behind.
func TestHandler_TimesOut(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	end, returned := make(chan struct{}), make(chan struct{})
	inner := admissionfasthttp.Handler(c, func(ctx *fasthttp.RequestCtx) {
		<-end
		ctx.SetBodyStream(strings.NewReader("late"), -1)
	})
	url := serve(t, c, fasthttp.TimeoutHandler(func(ctx *fasthttp.RequestCtx) {
		inner(ctx)
		close(returned)
	}, 10*time.Millisecond, "timed out"))
	require.Equal(t, 408, get(t.Context(), url).status)
	close(end)
	<-returned
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.Stats().InUse == 0
	}, 10*time.Second, time.Millisecond)
}

// A hijacked connection goes on without a place, unless told otherwise.
func TestHandler_Hijacked(t *testing.T) {
	t.Parallel()
	for hold, held := range map[admissionfasthttp.Hold]int{
		admissionfasthttp.HoldAuto: 0, admissionfasthttp.HoldHeaders: 0, admissionfasthttp.HoldBody: 1,
	} {
		c := open(t, admission.Options{Concurrency: 1})
		url := serve(t, c, admissionfasthttp.Options{Hold: hold}.Handler(c, func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(fasthttp.StatusSwitchingProtocols)
			ctx.Hijack(func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
		}))
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		r := bufio.NewReader(conn)
		for line := ""; line != "\r\n"; {
			line, err = r.ReadString('\n')
			require.NoError(t, err)
		}
		_, err = io.WriteString(conn, "ping\n")
		require.NoError(t, err)
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ping\n", line)
		require.Equal(t, held, c.Stats().InUse)
		require.NoError(t, conn.Close())
		inUse(t, c, 0)
	}
}

// A request that costs more than there is takes what there is.
func TestHandler_CostsMoreThanThereIs(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 4})
	url := serve(t, c, admissionfasthttp.Options{
		Request: func(*fasthttp.RequestCtx) admission.Request { return admission.Request{Cost: 100} },
	}.Handler(c, func(ctx *fasthttp.RequestCtx) { _, _ = fmt.Fprint(ctx, c.Stats().InUse) }))
	held := take(t, c)
	waits := start(t.Context(), url)
	waiting(t, c, 1)
	held.Release()
	require.Equal(t, "4", (<-waits).body)
}

// Health checks, and what a function picks, do not wait.
func TestHandler_Exempt(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1, Capacity: 1, Shed: func(admission.Event) { t.Error("measured") }})
	url := serve(t, c, admissionfasthttp.Options{
		Exempt: func(ctx *fasthttp.RequestCtx) bool { return string(ctx.Path()) == "/metrics" },
	}.Handler(c, hello))
	held := take(t, c)
	defer held.Release()
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/metrics"} {
		require.Equal(t, "hello", get(t.Context(), url+path).body)
	}
}

// Headers count for nothing unless they are trusted.
func TestHandler_TrustsHeadersOnlyIfToldTo(t *testing.T) {
	t.Parallel()
	for trust, want := range map[bool]admission.Request{
		false: {Client: "127.0.0.1"},
		true:  {Client: "me", Priority: strategies.MostImportant},
	} {
		told := make(chan admission.Request, 1)
		c := open(t, admission.Options{Concurrency: 1, Admitted: func(e admission.Event) {
			if e.Waited > 0 {
				told <- e.Request
			}
		}, Shed: func(e admission.Event) { told <- e.Request }})
		url := serve(t, c, admissionfasthttp.Options{TrustHeaders: trust}.Handler(c, hello))
		held := take(t, c)
		waits := start(t.Context(), url, "Spillway-Client: me", "Spillway-Priority: 0", "Priority: u=6", "Spillway-Timeout-Ms: 1")
		if !trust {
			waiting(t, c, 1)
			held.Release()
		}
		a := <-waits
		held.Release()
		require.Equal(t, want, <-told)
		require.Equal(t, map[bool]int{false: 200, true: 504}[trust], a.status)
	}
}

// Places are taken away while all are taken.
func TestHandler_ConcurrencyIsLoweredWhileAllPlacesAreTaken(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 4})
	end := make(chan struct{})
	url := serve(t, c, admissionfasthttp.Handler(c, func(*fasthttp.RequestCtx) { <-end }))
	var all []<-chan answer
	for range 6 {
		all = append(all, start(t.Context(), url))
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
		require.Equal(t, 200, (<-a).status)
	}
}

// Drain, and a server that shuts down, serve what waits; Close turns it away.
func TestHandler_Stops(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		stop   func(c *admission.Controller, server func())
		status int
	}{
		"drain":    {func(c *admission.Controller, _ func()) { _ = c.Drain(context.Background()) }, 200},
		"shutdown": {func(_ *admission.Controller, server func()) { server() }, 200},
		"close":    {func(c *admission.Controller, _ func()) { c.Close() }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, admission.Options{Concurrency: 1})
			url, stop := listen(t, admissionfasthttp.Handler(c, hello))
			stop = sync.OnceFunc(stop)
			held := take(t, c)
			waits := start(t.Context(), url)
			waiting(t, c, 1)
			stopped := make(chan struct{})
			go func() { row.stop(c, stop); close(stopped) }()
			if row.status == 200 {
				held.Release()
			}
			a := <-waits
			held.Release()
			<-stopped
			stop()
			require.NoError(t, a.err)
			require.Equal(t, row.status, a.status)
			if row.status == 503 {
				require.Equal(t, "draining", a.header.Get("Spillway-Shed"))
			}
			requireWhole(t, c)
		})
	}
}

func TestHandler_NothingGiven(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	require.PanicsWithValue(t, "admissionfasthttp: the controller is nil", func() { admissionfasthttp.Handler(nil, hello) })
	require.PanicsWithValue(t, "admissionfasthttp: the handler is nil", func() { admissionfasthttp.Handler(c, nil) })
}

// panicking is a stream whose panic fasthttp recovers from.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("oops") }

// Many clients do whatever clients do, under strategies that change: nothing is lost.
func TestHandler_Soak(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 3, Capacity: 8})
	url := serve(t, c, admissionfasthttp.Options{
		TrustHeaders: true,
		Request:      func(ctx *fasthttp.RequestCtx) admission.Request { return admission.Request{Cost: len(ctx.Path()) - 1} },
	}.Handler(c, func(ctx *fasthttp.RequestCtx) {
		switch rand.IntN(5) {
		case 0:
			ctx.Hijack(func(net.Conn) {})
		case 1:
			ctx.SetContentType("text/event-stream")
			ctx.SetBodyStream(strings.NewReader("data: x\n\n"), -1)
		case 2:
			ctx.SetBodyStream(panicking{}, -1)
		case 3:
			time.Sleep(rand.N(2 * time.Millisecond))
		}
	}))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond+rand.N(20*time.Millisecond))
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/"+strings.Repeat("x", rand.IntN(5)), nil)
				req.Header.Set("Spillway-Timeout-Ms", fmt.Sprint(1+rand.IntN(5)))
				if resp, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				cancel()
			}
		})
	}
	clients.Go(func() {
		for i, name := range strategies.Names() {
			if name != "sync" && name != "caller-runs" { // whose places nobody counts
				require.NoError(t, c.Switch(name))
			}
			require.NoError(t, c.SetConcurrency(1+i%4))
			time.Sleep(time.Millisecond)
		}
	})
	clients.Wait()
}
