package admissionhttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/strategies"
)

func open(t *testing.T, o admission.Options) *admission.Controller {
	t.Helper()
	if o.Strategy == "" {
		o.Strategy = "fifo"
	}
	c, err := admission.New(o)
	require.NoError(t, err)
	return c
}

// serve starts a server that is stopped, and has given all places back, at the test's end.
func serve(t *testing.T, c *admission.Controller, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		requireWhole(t, c)
	})
	return s
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

func take(t *testing.T, c *admission.Controller, cost int) admission.Permit {
	t.Helper()
	p, ok := c.TryAcquire(admission.Request{Cost: cost})
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

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestHandler_WaitsItsTurn(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	s := serve(t, c, admissionhttp.Handler(c, hello))
	held := take(t, c, 1)
	waits := start(t.Context(), s.URL)
	waiting(t, c, 1)
	held.Release()
	a := <-waits
	require.NoError(t, a.err)
	require.Equal(t, 200, a.status)
	require.Equal(t, "hello", a.body)
}

func TestHandler_Refuses(t *testing.T) {
	t.Parallel()
	for tooMany, status := range map[bool]int{false: 503, true: 429} {
		c := open(t, admission.Options{Concurrency: 1, Capacity: 1})
		s := serve(t, c, admissionhttp.Options{TooManyRequests: tooMany}.Handler(c, hello))
		held := take(t, c, 1)
		waits := start(t.Context(), s.URL)
		waiting(t, c, 1)
		a := get(t.Context(), s.URL)
		held.Release()
		require.Equal(t, 200, (<-waits).status)

		require.NoError(t, a.err)
		require.Equal(t, status, a.status)
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Equal(t, "full", a.header.Get("Spillway-Shed"))
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		var problem struct {
			Title, Detail string
			Status        int
		}
		require.NoError(t, json.Unmarshal([]byte(a.body), &problem))
		require.Equal(t, http.StatusText(status), problem.Title)
		require.Equal(t, status, problem.Status)
		require.Equal(t, "the queue is full", problem.Detail)
	}
}

// A place that is taken by a handler that panics is not lost.
func TestHandler_Panics(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	s := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
		panic(http.ErrAbortHandler)
	})))
	for range 3 {
		require.Error(t, get(t.Context(), s.URL).err)
		require.Error(t, get(t.Context(), s.URL+"/late").err)
	}
}

// A client that goes while it waits takes no place, and its request is not begun.
func TestHandler_ClientGoesWhileItWaits(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	s := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("begun")
	})))
	held := take(t, c, 1)
	defer held.Release()
	ctx, cancel := context.WithCancel(t.Context())
	gone := start(ctx, s.URL)
	waiting(t, c, 1)
	cancel()
	require.ErrorIs(t, (<-gone).err, context.Canceled)
	waiting(t, c, 0)
}

// A client that goes while it is served ends its context, and so gives its place back.
func TestHandler_ClientGoesWhileItIsServed(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	ended := make(chan struct{})
	s := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		<-ended
	})))
	ctx, cancel := context.WithCancel(t.Context())
	gone := start(ctx, s.URL)
	inUse(t, c, 1)
	cancel()
	require.ErrorIs(t, (<-gone).err, context.Canceled)
	require.Equal(t, 1, c.Stats().InUse, "it may still be at work")
	close(ended)
	inUse(t, c, 0)
}

// Whichever comes first, the place or the end of the context: none is lost, and the
// handler is called or the request refused.
func TestHandler_ContextEndsAsItsPlaceComes(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies.Names() {
		c := open(t, admission.Options{Strategy: strategy, Concurrency: 1})
		served := false
		h := admissionhttp.Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
		for range 200 {
			p, err := c.Acquire(t.Context(), admission.Request{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			w := httptest.NewRecorder()
			served = false
			wg.Go(func() { h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)) })
			wg.Go(cancel)
			wg.Go(p.Release)
			wg.Wait()
			require.Equal(t, served, w.Code == 200)
			if !served {
				require.Equal(t, 503, w.Code)
				require.Equal(t, "abandoned", w.Header().Get("Spillway-Shed"))
			}
		}
		if strategy != "sync" && strategy != "caller-runs" {
			requireWhole(t, c)
		}
	}
}

// What becomes of the places of an answer that goes on for long.
func TestHandler_Hold(t *testing.T) {
	t.Parallel()
	stream := func(w http.ResponseWriter, contentType string, next <-chan bool) {
		w.Header().Set("Content-Type", contentType)
		for <-next {
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
	for _, row := range []struct {
		name, contentType string
		hold              admissionhttp.Hold
		held              int // places, once the headers are out
	}{
		{"a body that streams for long", "text/plain", admissionhttp.HoldAuto, 1},
		{"server-sent events", "text/event-stream; charset=utf-8", admissionhttp.HoldAuto, 0},
		{"server-sent events, told otherwise", "text/event-stream", admissionhttp.HoldBody, 1},
		{"a body that streams for long, told otherwise", "text/plain", admissionhttp.HoldHeaders, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := open(t, admission.Options{Concurrency: 1})
			next := make(chan bool)
			s := serve(t, c, admissionhttp.Options{Hold: row.hold}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				stream(w, row.contentType, next)
			})))
			resp := make(chan *http.Response, 1)
			go func() {
				r, err := http.Get(s.URL)
				if err != nil {
					t.Error(err)
				}
				resp <- r
			}()
			inUse(t, c, 1)
			for range 3 {
				next <- true
			}
			r := <-resp
			defer r.Body.Close()
			line, err := bufio.NewReader(r.Body).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "data: x\n", line)
			require.Equal(t, row.held, c.Stats().InUse)
			next <- false
			_, err = io.Copy(io.Discard, r.Body)
			require.NoError(t, err)
		})
	}
}

// What goes out before the headers proper, and an answer that ends without a word.
func TestHandler_InformationalAnswersAreNotTheHeaders(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	h := admissionhttp.Options{Hold: admissionhttp.HoldHeaders}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		require.Equal(t, 1, c.Stats().InUse)
		w.WriteHeader(http.StatusOK)
		require.Zero(t, c.Stats().InUse)
		w.WriteHeader(http.StatusOK)
	}))
	s := serve(t, c, h)
	require.Equal(t, 200, get(t.Context(), s.URL).status)
	s = serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	require.Equal(t, 200, get(t.Context(), s.URL).status)
}

// A hijacked connection goes on without a place.
func TestHandler_Hijacked(t *testing.T) {
	t.Parallel()
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"by a type assertion": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return w.(http.Hijacker).Hijack()
		},
		"by a controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		for hold, held := range map[admissionhttp.Hold]int{admissionhttp.HoldAuto: 0, admissionhttp.HoldHeaders: 0, admissionhttp.HoldBody: 1} {
			t.Run(fmt.Sprint(name, hold), func(t *testing.T) {
				t.Parallel()
				c := open(t, admission.Options{Concurrency: 1})
				s := serve(t, c, admissionhttp.Options{Hold: hold}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					conn, rw, err := hijack(w)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
					_ = rw.Flush()
					line, _ := rw.ReadString('\n')
					_, _ = rw.WriteString(line)
					_ = rw.Flush()
				})))
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				require.NoError(t, err)
				defer conn.Close()
				_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
				require.NoError(t, err)
				r := bufio.NewReader(conn)
				resp, err := http.ReadResponse(r, nil)
				require.NoError(t, err)
				require.Equal(t, 101, resp.StatusCode)
				require.Equal(t, held, c.Stats().InUse)
				_, err = io.WriteString(conn, "ping\n")
				require.NoError(t, err)
				line, err := r.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "ping\n", line)
			})
		}
	}
}

// A long poll gives its place back before anything goes out, also from behind somebody
// else's writer.
func TestRelease(t *testing.T) {
	t.Parallel()
	type logged struct{ http.ResponseWriter }
	c := open(t, admission.Options{Concurrency: 1})
	s := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		admissionhttp.Release(logged{w}) // which hides it
		require.Equal(t, 1, c.Stats().InUse)
		admissionhttp.Release(unwrapper{w})
		require.Zero(t, c.Stats().InUse)
		admissionhttp.Release(w)
		require.Zero(t, c.Stats().InUse)
	})))
	require.Equal(t, 200, get(t.Context(), s.URL).status)
	admissionhttp.Release(httptest.NewRecorder())
}

type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// A request that costs more than there is is served alone; it takes what there is.
func TestHandler_CostsMoreThanThereIs(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 4})
	s := serve(t, c, admissionhttp.Options{
		Request: func(*http.Request) admission.Request { return admission.Request{Cost: 100} },
	}.Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		require.Equal(t, 4, c.Stats().InUse)
	})))
	held := take(t, c, 1)
	waits := start(t.Context(), s.URL)
	waiting(t, c, 1)
	held.Release()
	require.Equal(t, 200, (<-waits).status)
}

// Health checks, and what a function picks, neither wait nor are they measured.
func TestHandler_Exempt(t *testing.T) {
	t.Parallel()
	var told sync.Map
	note := func(e admission.Event) { told.Store(e.Request.Client, true) }
	c := open(t, admission.Options{Concurrency: 1, Admitted: note, Shed: note})
	s := serve(t, c, admissionhttp.Options{
		Request: func(r *http.Request) admission.Request { return admission.Request{Client: r.URL.Path} },
		Exempt:  func(r *http.Request) bool { return r.URL.Path == "/metrics" },
	}.Handler(c, hello))
	held := take(t, c, 1)
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/metrics"} {
		require.Equal(t, "hello", get(t.Context(), s.URL+path).body)
	}
	waits := start(t.Context(), s.URL+"/other")
	waiting(t, c, 1)
	held.Release()
	require.Equal(t, 200, (<-waits).status)
	told.Range(func(path, _ any) bool {
		require.Contains(t, []any{"", "/other"}, path)
		return true
	})
}

// Headers count for nothing unless they are trusted.
func TestHandler_TrustsHeadersOnlyIfToldTo(t *testing.T) {
	t.Parallel()
	headers := []string{"Spillway-Client: me", "Spillway-Priority: 0", "Priority: u=6", "Spillway-Timeout-Ms: 1"}
	for _, row := range []struct {
		name    string
		o       admissionhttp.Options
		headers []string
		want    admission.Request
		status  int
	}{
		{"not trusted", admissionhttp.Options{}, headers, admission.Request{Client: "127.0.0.1"}, 200},
		{
			"not trusted, with a function",
			admissionhttp.Options{Request: func(*http.Request) admission.Request { return admission.Request{Client: "t", Priority: 5} }},
			headers, admission.Request{Client: "t", Priority: 5}, 200,
		},
		{
			"trusted",
			admissionhttp.Options{TrustHeaders: true}, headers,
			admission.Request{Client: "me", Priority: strategies.MostImportant}, 504,
		},
		{
			"trusted, of the standard",
			admissionhttp.Options{TrustHeaders: true}, []string{"Priority: u=1", "Priority: i, u=6"},
			admission.Request{Client: "127.0.0.1", Priority: 6}, 200,
		},
		{
			"trusted, but they do not fit",
			admissionhttp.Options{TrustHeaders: true},
			[]string{"Spillway-Client: " + strings.Repeat("x", 129), "Spillway-Priority: 8", "Priority: u=8", "Spillway-Timeout-Ms: soon"},
			admission.Request{Client: "127.0.0.1"}, 200,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			told := make(chan admission.Request, 1)
			c := open(t, admission.Options{Concurrency: 1, Released: func(e admission.Event) {
				if e.Request.Client != "" {
					told <- e.Request
				}
			}, Shed: func(e admission.Event) { told <- e.Request }})
			s := serve(t, c, row.o.Handler(c, hello))
			held := take(t, c, 1)
			waits := start(t.Context(), s.URL, row.headers...)
			if row.status == 200 {
				waiting(t, c, 1)
				held.Release()
			}
			a := <-waits
			held.Release()
			require.NoError(t, a.err)
			require.Equal(t, row.status, a.status)
			require.Equal(t, row.want, <-told)
			if row.status == 504 {
				require.Equal(t, "expired", a.header.Get("Spillway-Shed"))
				require.Empty(t, a.header.Get("Retry-After"))
			}
		})
	}
}

// Where fewer places are left than are in use, those who have them go on, and nobody
// comes in until so many are back.
func TestHandler_ConcurrencyIsLoweredWhileAllPlacesAreTaken(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 4})
	end := make(chan struct{})
	s := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })))
	var all []<-chan answer
	for range 6 {
		all = append(all, start(t.Context(), s.URL))
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

// Drain serves what waits, and turns away what comes.
func TestHandler_Drain(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	s := serve(t, c, admissionhttp.Options{TooManyRequests: true}.Handler(c, hello))
	held := take(t, c, 1)
	waits := start(t.Context(), s.URL)
	waiting(t, c, 1)
	drained := make(chan error, 1)
	go func() { drained <- c.Drain(t.Context()) }()
	var late answer
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		late = get(ctx, s.URL) // which waits, and leaves, if it is before Drain
		return late.err == nil
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, 503, late.status, "it is not that there are too many requests")
	require.Equal(t, "draining", late.header.Get("Spillway-Shed"))
	held.Release()
	require.Equal(t, 200, (<-waits).status)
	require.NoError(t, <-drained)
}

// Close turns away what waits; what is served goes on.
func TestHandler_Close(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	end := make(chan struct{})
	s := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })))
	served := start(t.Context(), s.URL)
	inUse(t, c, 1)
	waits := start(t.Context(), s.URL)
	waiting(t, c, 1)
	c.Close()
	a := <-waits
	require.Equal(t, 503, a.status)
	require.Equal(t, "draining", a.header.Get("Spillway-Shed"))
	close(end)
	require.Equal(t, 200, (<-served).status)
}

// What is under way is served, and what waits is too, before the server has shut down.
func TestHandler_Shutdown(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 1})
	s := serve(t, c, admissionhttp.Handler(c, hello))
	held := take(t, c, 1)
	waits := start(t.Context(), s.URL)
	waiting(t, c, 1)
	down := make(chan error, 1)
	go func() { down <- s.Config.Shutdown(context.WithoutCancel(t.Context())) }()
	held.Release()
	require.Equal(t, 200, (<-waits).status)
	require.NoError(t, <-down)
}

func TestHandler_WritersKeepTheirAbilities(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		http2  bool
		check  func(w http.ResponseWriter)
		answer string
	}{
		{"HTTP/1.1", false, func(w http.ResponseWriter) {
			_, canHijack := w.(http.Hijacker)
			require.True(t, canHijack)
		}, "copied"},
		{"HTTP/2", true, func(w http.ResponseWriter) {
			_, _, err := http.NewResponseController(w).Hijack()
			require.ErrorIs(t, err, http.ErrNotSupported)
		}, "copied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := open(t, admission.Options{Concurrency: 1})
			s := httptest.NewUnstartedServer(admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				row.check(w)
				_, canFlush := w.(http.Flusher)
				require.True(t, canFlush)
				rc := http.NewResponseController(w)
				require.NoError(t, rc.SetWriteDeadline(time.Now().Add(time.Minute)))
				require.NoError(t, rc.SetReadDeadline(time.Now().Add(time.Minute)))
				_, err := io.Copy(w, strings.NewReader("copied"))
				require.NoError(t, err)
				w.(http.Flusher).Flush()
				require.NoError(t, rc.Flush())
			})))
			s.EnableHTTP2 = row.http2
			s.StartTLS()
			defer s.Close()
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, row.answer, string(b))
			require.Equal(t, row.http2, resp.ProtoMajor == 2)
			s.Client().CloseIdleConnections()
		})
	}
	c := open(t, admission.Options{Concurrency: 1})
	admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, canFlush := w.(http.Flusher)
		require.False(t, canFlush, "the writer behind cannot")
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
	})).ServeHTTP(struct{ http.ResponseWriter }{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	requireWhole(t, c)
}

func TestHandler_NothingGiven(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "admissionhttp: the controller is nil", func() { admissionhttp.Handler(nil, hello) })
	c := open(t, admission.Options{Concurrency: 1})
	w := httptest.NewRecorder()
	admissionhttp.Handler(c, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/no/such/thing", nil))
	require.Equal(t, 404, w.Code, "as http.DefaultServeMux answers")
	requireWhole(t, c)
}

// Many clients do whatever clients do, under strategies that change: nothing is lost.
func TestHandler_Soak(t *testing.T) {
	t.Parallel()
	c := open(t, admission.Options{Concurrency: 3, Capacity: 8})
	s := serve(t, c, admissionhttp.Options{
		TrustHeaders: true,
		Request:      func(r *http.Request) admission.Request { return admission.Request{Cost: len(r.URL.Path) - 1} },
	}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rand.IntN(6) {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		case 2:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.Copy(w, strings.NewReader("data: x\n\n"))
			_ = http.NewResponseController(w).Flush()
		case 3:
			admissionhttp.Release(w)
		case 4:
			select {
			case <-r.Context().Done():
			case <-time.After(rand.N(2 * time.Millisecond)):
			}
		}
	})))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond+rand.N(20*time.Millisecond))
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/"+strings.Repeat("x", rand.IntN(5)), nil)
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
