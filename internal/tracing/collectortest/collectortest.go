// Package collectortest is a collector of spans for tests: it takes OTLP over HTTP and gRPC, and
// can be told to misbehave.
package collectortest

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is a span that was exported.
type Span struct {
	Service, Name, Kind string
	Trace, ID, Parent   string // hexadecimal; Parent is empty for none
	Begun               time.Time
	Took                time.Duration
	Status              string // error, or empty
	Attributes          map[string]string
}

// Collector keeps the spans that it is sent.
type Collector struct {
	collected.UnimplementedTraceServiceServer
	// URL is where it takes OTLP over HTTP.
	URL string

	server  *httptest.Server
	refuses atomic.Bool
	hangs   atomic.Bool
	closing chan struct{}
	closed  sync.Once
	mu      sync.Mutex
	spans   []Span
}

// Open starts a collector, which is closed with the test.
func Open(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{closing: make(chan struct{})}
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	c.URL = c.server.URL
	t.Cleanup(c.Close)
	return c
}

// Hang has the collector answer nothing any more.
func (c *Collector) Hang() { c.hangs.Store(true) }

// Refuse has it answer everything by 400.
func (c *Collector) Refuse() { c.refuses.Store(true) }

// Close ends the collector, and what hangs in it.
func (c *Collector) Close() {
	c.closed.Do(func() {
		close(c.closing)
		c.server.CloseClientConnections()
		c.server.Close()
	})
}

// GRPC starts to take OTLP over gRPC, and returns where.
func (c *Collector) GRPC(t testing.TB) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	collected.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return "http://" + listener.Addr().String()
}

// Export is collected.TraceServiceServer's.
func (c *Collector) Export(_ context.Context, r *collected.ExportTraceServiceRequest) (*collected.ExportTraceServiceResponse, error) {
	c.keep(r)
	return &collected.ExportTraceServiceResponse{}, nil
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	var from io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		from = unzipped
	}
	text, err := io.ReadAll(from)
	var request collected.ExportTraceServiceRequest
	if r.URL.Path != "/v1/traces" || err != nil || proto.Unmarshal(text, &request) != nil || c.refuses.Load() {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if c.hangs.Load() {
		select {
		case <-c.closing:
		case <-r.Context().Done():
		}
		return
	}
	c.keep(&request)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) keep(r *collected.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		service := attributes(resource.Resource.GetAttributes())["service.name"]
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				span := Span{
					Service: service, Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Kind: map[trace.Span_SpanKind]string{
						trace.Span_SPAN_KIND_SERVER: "server", trace.Span_SPAN_KIND_CLIENT: "client", trace.Span_SPAN_KIND_INTERNAL: "internal",
					}[s.Kind],
					Begun: time.Unix(0, int64(s.StartTimeUnixNano)), Took: time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano), Attributes: attributes(s.Attributes),
				}
				if s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR {
					span.Status = "error"
				}
				c.spans = append(c.spans, span)
			}
		}
	}
}

func attributes(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			all[a.Key] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return all
}

// All returns the spans so far.
func (c *Collector) All() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Spans returns the spans so far, by name.
func (c *Collector) Spans() map[string]Span {
	all := map[string]Span{}
	for _, s := range c.All() {
		all[s.Name] = s
	}
	return all
}

// Tree returns the spans of a trace as a tree, a line each: how deep, the service, the name.
// Siblings are in order of their beginning.
func (c *Collector) Tree(traceID string) (lines []string) {
	all := c.All()
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for {
			next := -1
			for i := range all {
				if s := &all[i]; s.Trace == traceID && s.Parent == parent && (next < 0 || s.Begun.Before(all[next].Begun)) {
					next = i
				}
			}
			if next < 0 {
				return
			}
			s := all[next]
			all = append(all[:next:next], all[next+1:]...)
			lines = append(lines, indent+s.Service+": "+s.Name)
			below(s.ID, indent+"  ")
		}
	}
	below("", "")
	return lines
}
