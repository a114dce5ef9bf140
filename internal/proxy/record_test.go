package proxy

import (
	"fmt"
	"net/http"
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
