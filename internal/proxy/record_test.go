package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/served"
)

// tracer begins spans that say what they were begun with, and keep what they were ended with.
type tracer struct {
	mu    sync.Mutex
	begun []string
	ended []served.Request
}

func (t *tracer) Start(traceparent, tracestate []byte, _ int64) served.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = append(t.begun, string(traceparent)+"|"+string(tracestate))
	return (*span)(t)
}

type span tracer

func (s *span) Lines(dst []byte) []byte {
	return append(dst, "traceparent: of the proxy\r\ntracestate: too\r\n"...)
}

func (s *span) End(r *served.Request) {
	r.TraceID = "its trace"
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, *r)
}

// The record of a request is the same over both versions of HTTP, and so is what the upstream is
// told of its trace: with a tracer the proxy's, once, and without what the client has sent.
func TestRecord(t *testing.T) {
	t.Parallel()
	upstream := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Header["Traceparent"], r.Header["Tracestate"])
	})
	for _, version := range []int{1, 2} {
		for _, traced := range []bool{true, false} {
			t.Run(fmt.Sprintf("HTTP/%d traced=%v", version, traced), func(t *testing.T) {
				t.Parallel()
				var spans tracer
				told := make(chan served.Request, 9)
				f := open(t, upstream, func(o *Options) {
					o.Events.Served = func(r *served.Request) {
						kept := *r
						kept.Path = []byte(string(r.Path))
						told <- kept
					}
					require.NoError(t, o.Routes.UnmarshalText([]byte("/orders/*=orders")))
					o.Client = rules.Client("header:X-Key")
					if traced {
						o.Tracer = &spans
					}
				})
				protocols := new(http.Protocols)
				protocols.SetHTTP1(version == 1)
				protocols.SetUnencryptedHTTP2(version == 2)
				transport := &http.Transport{Protocols: protocols}
				defer transport.CloseIdleConnections()
				f.client.Transport = transport
				const id = "4bf92f3577b34da6a3ce929d0e0e4736"
				const parent = "00-" + id + "-00f067aa0ba902b7-01"
				a := f.do(t, http.MethodGet, "/orders/7;a=secret?b=secret", nil, "traceparent", parent, "tracestate", "a=b", "X-Key", "secret")
				want, trace := "["+parent+"] [a=b]", id
				if traced {
					want, trace = "[of the proxy] [too]", "its trace"
				}
				require.Equal(t, want, a.body)
				var r served.Request
				select {
				case r = <-told:
				case <-time.After(time.Minute):
					require.Fail(t, "nobody was told")
				}
				require.Equal(t, []string{"GET", "/orders/7", "orders", "upstream", trace, "fifo", ""}, []string{r.Method, string(r.Path), r.Route, r.Operation, r.TraceID, r.Strategy, r.Shed})
				require.Equal(t, 200, r.Code)
				require.EqualValues(t, 3, r.Priority)
				require.Regexp(t, "^[0-9a-f]{24}$", r.Client)
				require.Equal(t, r.Took, r.Received+r.Waited+r.Ran)
				require.NotContains(t, fmt.Sprintf("%+v", r), "secret")
				spans.mu.Lock()
				defer spans.mu.Unlock()
				if traced {
					require.Equal(t, []string{parent + "|a=b"}, spans.begun)
					require.Len(t, spans.ended, 1)
				} else {
					require.Empty(t, spans.begun)
				}
			})
		}
	}
}

// What is refused by its head is told of too, as its client's address.
func TestRecord_Refused(t *testing.T) {
	t.Parallel()
	told := make(chan served.Request, 1)
	f := open(t, serve(t, func(http.ResponseWriter, *http.Request) {}), func(o *Options) {
		o.Events.Served = func(r *served.Request) { told <- *r }
	})
	a := f.do(t, http.MethodGet, "/", strings.NewReader(""), "Host", "x", "Expect", "nonsense")
	require.Equal(t, http.StatusExpectationFailed, a.status)
	select {
	case r := <-told:
		require.Equal(t, []any{http.StatusExpectationFailed, "127.0.0.1", ""}, []any{r.Code, r.Client, r.Operation})
	case <-time.After(time.Minute):
		require.Fail(t, "nobody was told")
	}
}

// Only what the upstream answers below 500 is good. What the proxy refuses by itself is an error in all figures and
// in the access log, whatever its status, before the request waits and once it is under way.
func TestRecord_OnlyTheUpstreamIsGood(t *testing.T) {
	t.Parallel()
	const ok, failed = served.OK, served.Error
	body := strings.Repeat("b", 2000)
	for name, tc := range map[string]struct {
		request string
		two     string // the method over HTTP/2 in place of that; POST sends half of a body
		status  int
		want    served.Outcome
	}{
		"good":                     {request: "GET /200 HTTP/1.1\r\nHost: x\r\n\r\n", status: 200, want: ok},
		"the upstream's 400":       {request: "GET /400 HTTP/1.1\r\nHost: x\r\n\r\n", status: 400, want: ok},
		"the upstream's 404":       {request: "DELETE /404 HTTP/1.1\r\nHost: x\r\n\r\n", status: 404, want: ok},
		"the upstream's 408":       {request: "POST /408 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", status: 408, want: ok},
		"the upstream's 413":       {request: "POST /413 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", status: 413, want: ok},
		"the upstream's 500":       {request: "GET /500 HTTP/1.1\r\nHost: x\r\n\r\n", status: 500, want: failed},
		"two framings":             {request: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", status: 400, want: failed},
		"a byte in a header":       {request: "GET / HTTP/1.1\r\nHost: x\r\nX: \x01\r\n\r\n", status: 400, want: failed},
		"no host":                  {request: "GET / HTTP/1.1\r\n\r\n", status: 400, want: failed},
		"CONNECT":                  {request: "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", status: 405, want: failed},
		"half a head":              {request: "GET / HTTP/1.1\r\n", status: 408, want: failed},
		"half a body":              {request: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na", status: 408, want: failed},
		"half a body, under way":   {request: "POST /200 HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + body, status: 408, want: failed},
		"a bad chunk":              {request: "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", status: 400, want: failed},
		"a bad chunk, under way":   {request: "POST /200 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + body + "\r\nz\r\n", status: 400, want: failed},
		"an expectation":           {request: "GET / HTTP/1.1\r\nHost: x\r\nExpect: y\r\n\r\n", status: 417, want: failed},
		"a long head":              {request: "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 70<<10) + "\r\n\r\n", status: 431, want: failed},
		"good, over HTTP/2":        {two: "GET", status: 200, want: ok},
		"CONNECT, over HTTP/2":     {two: "CONNECT", status: 405, want: failed},
		"half a body, over HTTP/2": {two: "POST", status: 408, want: failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told, routed := make(chan served.Request, 1), make(chan served.Outcome, 1)
			f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				status, err := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
				if err != nil {
					status = 500
				}
				w.WriteHeader(status)
			}), func(o *Options) {
				o.BufferBytes = 1000
				if tc.status == 408 {
					o.ReadTimeout = 50 * time.Millisecond
				}
				require.NoError(t, o.Routes.UnmarshalText([]byte("/*=all")))
				o.Events.Served = func(r *served.Request) { told <- *r }
				o.Events.Routed = func(_ string, outcome served.Outcome, _ time.Duration) { routed <- outcome }
			})
			if tc.two != "" {
				body, half := io.Pipe()
				defer half.Close()
				r, err := http.NewRequestWithContext(t.Context(), tc.two, f.url+"/200", nil)
				require.NoError(t, err)
				if tc.two == http.MethodPost {
					r.Body = body
				}
				a, err := h2c(t).Do(r)
				require.NoError(t, err)
				_ = a.Body.Close()
				require.Equal(t, tc.status, a.StatusCode)
			} else {
				c := f.dial(t)
				go func() { _, _ = io.WriteString(c, tc.request) }()
				status, _ := c.answer(t, http.MethodGet)
				require.Equal(t, tc.status, status)
			}
			r := <-told
			require.Equal(t, tc.status, r.Code)
			require.Equal(t, tc.want, r.Outcome)
			if r.Route != "" {
				require.Equal(t, tc.want, <-routed)
			}
			text := scrape(t, f)
			require.Regexp(t, fmt.Sprintf(`spillway_request_duration_seconds_count{method="\w+",outcome="%s",strategy="fifo"} 1`, tc.want), text)
			good := map[served.Outcome]int{ok: 1}[tc.want]
			require.Contains(t, text, fmt.Sprintf(`spillway_requests_within_objective_total{strategy="fifo"} %d`, good))
			_, clients := f.metrics.Callers()
			for client, tally := range clients {
				require.EqualValues(t, good, tally.Good, client)
			}
		})
	}
}
