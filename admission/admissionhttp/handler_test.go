package admissionhttp_test

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/admission/internal/adaptertest"
	"github.com/spillway-go/spillway/strategies"
)

// serve starts a server that is stopped, and has given all places back, at the test's end. It
// speaks HTTP/2 too.
func serve(t *testing.T, c *admission.Controller, h http.Handler) (*httptest.Server, adaptertest.HTTP) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		adaptertest.RequireWhole(t, c)
	})
	return s, adaptertest.HTTP{URL: s.URL}
}

func options(o adaptertest.Options) admissionhttp.Options {
	own := admissionhttp.Options{Hold: admissionhttp.Hold(o.Hold), TooManyRequests: o.Otherwise, TrustHeaders: o.TrustHeaders}
	if o.Request != nil {
		own.Request = func(r *http.Request) admission.Request { return o.Request(r.URL.Path) }
	}
	if o.Exempt != nil {
		own.Exempt = func(r *http.Request) bool { return o.Exempt(r.URL.Path) }
	}
	return own
}

// stream sends messages, with or without the help of the server.
func stream(w http.ResponseWriter, k adaptertest.Kind, next <-chan bool) {
	send := func() error {
		_, err := io.WriteString(w, adaptertest.Message)
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		return err
	}
	if k == adaptertest.Hijack {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, adaptertest.Upgraded)
		send = func() error {
			_, err := io.WriteString(conn, adaptertest.Message)
			return err
		}
	} else {
		w.Header().Set("Content-Type", string(k))
	}
	for <-next {
		if send() != nil {
			return
		}
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	one := adaptertest.Adapter{
		Serve: func(t *testing.T, c *admission.Controller, o adaptertest.Options, h func(adaptertest.Call)) adaptertest.Client {
			_, client := serve(t, c, before(o, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h(adaptertest.Call{
					Context: r.Context(),
					Gone:    r.Context().Done(),
					Stream:  func(k adaptertest.Kind, next <-chan bool) { stream(w, k, next) },
					Release: func() { admissionhttp.Release(w) },
				})
			})))
			return client
		},
		Direct: func(c *admission.Controller, o adaptertest.Options) func(context.Context, func()) strategies.Reason {
			return func(ctx context.Context, serve func()) strategies.Reason {
				w := httptest.NewRecorder()
				options(o).Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { serve() })).
					ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
				return strategies.Reason(w.Header().Get("Spillway-Shed"))
			}
		},
		Nil:      func() { admissionhttp.Handler(nil, hello) },
		NilPanic: "admissionhttp: the controller is nil",
		Codes:    adaptertest.HTTPCodes, Otherwise: "429", Mistake: "500", Address: "127.0.0.1",
		HealthChecks: []string{"/healthz", "/livez", "/readyz"},
		Kinds:        []adaptertest.Kind{adaptertest.Long, adaptertest.Events, adaptertest.Hijack},
		Holds:        []adaptertest.Hold{adaptertest.HoldAuto, adaptertest.HoldBody, adaptertest.HoldHeaders},
		Gone:         true, Recovers: true, Timeout: true,
	}
	two := one
	two.Kinds = []adaptertest.Kind{adaptertest.Long, adaptertest.Events} // nothing can be hijacked
	two.Serve = func(t *testing.T, c *admission.Controller, o adaptertest.Options, h func(adaptertest.Call)) adaptertest.Client {
		client := one.Serve(t, c, o, h).(adaptertest.HTTP)
		client.Client = adaptertest.HTTP2()
		return client
	}
	for name, adapter := range map[string]adaptertest.Adapter{"HTTP1": one, "HTTP2": two} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adapter)
		})
	}
}

// before puts handlers before h, as the rules say.
func before(o adaptertest.Options, c *admission.Controller, h http.Handler) http.Handler {
	h = options(o).Handler(c, h)
	if o.Twice {
		h = options(o).Handler(c, h)
	}
	if o.Before == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range o.Before {
			w.Header().Set(name, value)
		}
		h.ServeHTTP(w, r)
	})
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestHandler_RefusesWithAProblem(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	_, client := serve(t, c, admissionhttp.Handler(c, hello))
	c.Close()
	resp, err := client.Do(t.Context(), "/", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	var problem struct {
		Title, Detail string
		Status        int
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem))
	require.Equal(t, "Service Unavailable", problem.Title)
	require.Equal(t, 503, problem.Status)
	require.Equal(t, "the service is stopping", problem.Detail)
}

// A handler may panic when part of its answer has gone out.
func TestHandler_PanicsLate(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	_, client := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		panic(http.ErrAbortHandler)
	})))
	for range 3 {
		require.Error(t, client.Call(t.Context(), "/").Err)
	}
}

// What goes out before the headers proper, and an answer that ends without a word.
func TestHandler_InformationalAnswersAreNotTheHeaders(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	h := admissionhttp.Options{Hold: admissionhttp.HoldHeaders}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		require.Equal(t, 1, c.Stats().InUse)
		w.WriteHeader(http.StatusOK)
		require.Zero(t, c.Stats().InUse)
		w.WriteHeader(http.StatusOK)
	}))
	_, client := serve(t, c, h)
	require.True(t, client.Call(t.Context(), "/").Served)
	_, client = serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	require.True(t, client.Call(t.Context(), "/").Served)
}

// A long poll gives its place back before anything goes out, also from behind somebody
// else's writer.
func TestRelease(t *testing.T) {
	t.Parallel()
	type logged struct{ http.ResponseWriter }
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	_, client := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		admissionhttp.Release(logged{w}) // which hides it
		require.Equal(t, 1, c.Stats().InUse)
		admissionhttp.Release(unwrapper{w})
		require.Zero(t, c.Stats().InUse)
		admissionhttp.Release(w)
		require.Zero(t, c.Stats().InUse)
	})))
	require.True(t, client.Call(t.Context(), "/").Served)
	admissionhttp.Release(httptest.NewRecorder())
}

// It gives back those of all handlers that the request has come through.
func TestRelease_Nested(t *testing.T) {
	t.Parallel()
	outer, inner := adaptertest.Open(t, admission.Options{Concurrency: 1}), adaptertest.Open(t, admission.Options{Concurrency: 1})
	h := admissionhttp.Handler(outer, admissionhttp.Handler(inner, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.Equal(t, []int{1, 1}, []int{outer.Stats().InUse, inner.Stats().InUse})
		admissionhttp.Release(w)
		require.Equal(t, []int{0, 0}, []int{outer.Stats().InUse, inner.Stats().InUse})
	})))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
}

type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// What is under way is served, and what waits is too, before the server has shut down.
func TestHandler_Shutdown(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	s, client := serve(t, c, admissionhttp.Handler(c, hello))
	held := adaptertest.Take(t, c)
	waits := make(chan adaptertest.Answer, 1)
	go func() { waits <- client.Call(t.Context(), "/") }()
	adaptertest.Waiting(t, c, 1)
	down := make(chan error, 1)
	go func() { down <- s.Config.Shutdown(context.WithoutCancel(t.Context())) }()
	held.Release()
	require.True(t, (<-waits).Served)
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
			_, canHijack := w.(http.Hijacker)
			require.False(t, canHijack, "it would be told so, and fail")
			_, _, err := http.NewResponseController(w).Hijack()
			require.ErrorIs(t, err, http.ErrNotSupported)
		}, "copied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := adaptertest.Open(t, admission.Options{Concurrency: 1})
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
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, canFlush := w.(http.Flusher)
		require.False(t, canFlush, "the writer behind cannot")
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
	})).ServeHTTP(struct{ http.ResponseWriter }{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	adaptertest.RequireWhole(t, c)
}

func TestHandler_NothingGiven(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	w := httptest.NewRecorder()
	admissionhttp.Handler(c, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/no/such/thing", nil))
	require.Equal(t, 404, w.Code, "as http.DefaultServeMux answers")
	adaptertest.RequireWhole(t, c)
}
