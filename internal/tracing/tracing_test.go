package tracing

import (
	"bytes"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/internal/tracing/collectortest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// open starts tracing to a collector. The exporter reads the variables of the process, so that
// these tests cannot run at the same time.
func open(t *testing.T, endpoint string, env map[string]string) (*Tracing, *bytes.Buffer) {
	t.Helper()
	all := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "10", "OTEL_SERVICE_NAME": "shop"}
	for name, value := range env {
		all[name] = value
	}
	for name, value := range all {
		t.Setenv(name, value)
	}
	var log bytes.Buffer
	var mu sync.Mutex
	tracing, err := Open(Options{
		Env: func(name string) string { return all[name] }, Service: "spillway", Version: "v1", Epoch: time.Now(), Depth: func() int { return 5 },
		Log: slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(p)
		}), nil)),
	})
	require.NoError(t, err)
	return tracing, &log
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func request() *served.Request {
	return &served.Request{
		Request: slowest.Request{Strategy: "fifo", Method: "GET", Route: "orders", Code: 200,
			Took: 6 * time.Millisecond, Received: time.Millisecond, Waited: 2 * time.Millisecond, Ran: 3 * time.Millisecond},
		Path: []byte("/orders/7"), Operation: "upstream", Client: "10.0.0.1", Priority: 3,
	}
}

// Nothing of it is there unless the standard variables ask for it.
func TestOpen_Off(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "zipkin"},
	} {
		tracing, err := Open(Options{Env: func(name string) string { return env[name] }, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.Nil(t, tracing, env)
	}
}

// Where the SDK would use another endpoint, or write what it does in a way of its own, it does not.
func TestOpen_Endpoint(t *testing.T) {
	for _, tt := range []struct {
		env    map[string]string
		opens  bool
		logged string
	}{
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"}, false, `OTEL_EXPORTER_OTLP_ENDPOINT may be http://HOST:PORT or https://HOST:PORT" value=127.0.0.1:4318`},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}, false, "value=localhost:4318"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "me:my word@localhost:4318"}, false, "value=xxxxx@localhost:4318"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "/v1/traces"}, false, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT may be"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "value=127.0.0.1:4317"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, true, "level=ERROR"},
	} {
		tracing, log := open(t, tt.env["OTEL_EXPORTER_OTLP_ENDPOINT"], tt.env)
		require.Equal(t, tt.opens, tracing != nil, tt.env)
		require.Contains(t, log.String(), tt.logged)
		if tracing != nil {
			tracing.Close(time.Second)
		}
		for name := range tt.env {
			t.Setenv(name, "")
		}
	}
	// Without an endpoint it is that of the specification, http://localhost:4318.
	tracing, _ := open(t, "", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"})
	defer tracing.Close(time.Second)
	client := reflect.ValueOf(tracing.exporter.SpanExporter).Elem().FieldByName("client").Elem().Elem().FieldByName("cfg")
	require.Equal(t, "localhost:4318", client.FieldByName("Endpoint").String())
	require.True(t, client.FieldByName("Insecure").Bool())
}

// The spans of a request are a tree, in the trace that it came with, and the next server is told
// of the one that it is for, by either protocol.
func TestTracing_Tree(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := collectortest.Open(t)
			endpoint := c.URL
			if protocol == "grpc" {
				endpoint = c.GRPC(t)
			}
			tracing, log := open(t, endpoint, map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
			const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
			span := tracing.Start([]byte("00-"+trace+"-"+parent+"-01"), []byte("a=b"), int64(time.Second))
			lines := string(span.Lines([]byte("Host: x\r\n")))
			require.Regexp(t, "^Host: x\r\ntraceparent: 00-"+trace+"-[0-9a-f]{16}-01\r\ntracestate: a=b\r\n$", lines)
			next := lines[len("Host: x\r\ntraceparent: 00-")+len(trace)+1:][:16]
			r := request()
			span.End(r)
			require.Equal(t, trace, r.TraceID)
			tracing.Close(10 * time.Second)
			require.Zero(t, tracing.Dropped())
			require.Empty(t, log.String())

			spans := c.Spans()
			require.Len(t, spans, 3)
			root := spans["GET orders"]
			require.Equal(t, parent, root.Parent)
			require.Equal(t, "server", root.Kind)
			require.Equal(t, 6*time.Millisecond, root.Took)
			require.Equal(t, "shop", root.Service)
			require.Equal(t, map[string]string{
				"http.request.method": "GET", "url.path": "/orders/7", "http.route": "orders", "http.response.status_code": "200", "spillway.client": "10.0.0.1", "spillway.priority": "3",
			}, root.Attributes)
			wait, work := spans["wait"], spans["upstream"]
			require.Equal(t, root.ID, wait.Parent)
			require.Equal(t, 2*time.Millisecond, wait.Took)
			require.Equal(t, map[string]string{"spillway.strategy": "fifo", "spillway.queue.depth": "5", "spillway.shed": ""}, wait.Attributes)
			require.Equal(t, []string{root.ID, next, "client"}, []string{work.Parent, work.ID, work.Kind})
			require.Equal(t, 3*time.Millisecond, work.Took)
			require.Equal(t, root.Begun.Add(3*time.Millisecond), work.Begun)
			for _, s := range spans {
				require.Equal(t, trace, s.Trace)
			}
		})
	}
}

// What was shed has no work, and says why; what had no trace begins one; what is not sampled
// tells the next server so.
func TestTracing_Kinds(t *testing.T) {
	c := collectortest.Open(t)
	tracing, _ := open(t, c.URL, nil)
	shed := request()
	shed.Shed, shed.Operation, shed.Code, shed.Ran = "late", "", 503, 0
	span := tracing.Start(nil, nil, 0)
	span.End(shed)
	require.Len(t, shed.TraceID, 32)
	span = tracing.Start([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"), nil, 0)
	require.Regexp(t, "^traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-00\r\n$", string(span.Lines(nil)))
	r := request()
	span.End(r)
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", r.TraceID)
	span = tracing.Start([]byte("nonsense"), nil, 0)
	r = request()
	r.Operation, r.Shed, r.Method, r.Route = "", "", "PUT", "" // refused by its head
	span.End(r)
	tracing.Close(10 * time.Second)
	spans := c.Spans()
	require.Len(t, spans, 3)
	require.Equal(t, "late", spans["wait"].Attributes["spillway.shed"])
	require.Equal(t, "error", spans["GET orders"].Status)
	require.Contains(t, spans, "PUT /orders/7")
}

// A collector that hangs, or is gone, costs the spans, which are counted, and nothing else: no
// request waits, and little of the end.
func TestTracing_CollectorFails(t *testing.T) {
	for _, kind := range []string{"hangs", "gone", "refuses"} {
		t.Run(kind, func(t *testing.T) {
			c := collectortest.Open(t)
			switch kind {
			case "hangs":
				c.Hang()
			case "gone":
				c.Close()
			case "refuses":
				c.Refuse()
			}
			tracing, log := open(t, c.URL, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "50"})
			const requests = 1000
			for range requests {
				tracing.Start(nil, nil, 0).End(request())
			}
			require.LessOrEqual(t, tracing.exporter.inside.Load(), int64(100), "what is kept is bounded")
			if kind == "hangs" {
				require.GreaterOrEqual(t, tracing.Dropped(), uint64(3*requests-100))
			}
			tracing.Close(50 * time.Millisecond)
			c.Close()
			require.Eventually(t, func() bool { return tracing.Dropped() == 3*requests-uint64(len(c.All())) }, time.Minute, time.Millisecond, "all are counted")
			if kind == "refuses" {
				require.Contains(t, log.String(), "spans were not exported")
			}
		})
	}
}

// The sampler is that of the variables, as the SDK reads them.
func TestOptions_Sampler(t *testing.T) {
	for _, tt := range []struct{ name, arg, want, warning string }{
		{"", "", "ParentBased{root:AlwaysOnSampler", ""},
		{"always_on", "", "AlwaysOnSampler", ""},
		{"always_off", "", "AlwaysOffSampler", ""},
		{"traceidratio", "0.25", "TraceIDRatioBased{0.25}", ""},
		{"parentbased_always_on", "", "ParentBased{root:AlwaysOnSampler", ""},
		{"parentbased_always_off", "", "ParentBased{root:AlwaysOffSampler", ""},
		{"parentbased_traceidratio", "0.01", "ParentBased{root:TraceIDRatioBased{0.01}", ""},
		{"parentbased_traceidratio", "", "ParentBased{root:TraceIDRatioBased{1}", ""},
		{"traceidratio", "7", "TraceIDRatioBased{1}", "OTEL_TRACES_SAMPLER_ARG may be a number from 0 to 1"},
		{"jaeger_remote", "", "ParentBased{root:AlwaysOnSampler", "OTEL_TRACES_SAMPLER may be always_on"},
	} {
		var log bytes.Buffer
		o := Options{Env: func(name string) string {
			return map[string]string{"OTEL_TRACES_SAMPLER": tt.name, "OTEL_TRACES_SAMPLER_ARG": tt.arg}[name]
		}, Log: slog.New(slog.NewTextHandler(&log, nil))}
		require.Contains(t, o.sampler().Description(), tt.want, tt.name)
		require.Contains(t, log.String(), tt.warning)
		require.Equal(t, tt.warning == "", log.Len() == 0)
	}
}

// What a request costs: unset, at 1%, and always.
func BenchmarkTracing(b *testing.B) {
	for _, sampled := range []string{"0", "0.01", "1"} {
		b.Run("sampled="+sampled, func(b *testing.B) {
			c := collectortest.Open(b)
			b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
			tracing, err := Open(Options{Env: func(name string) string {
				return map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": sampled}[name]
			}, Epoch: time.Now(), Depth: func() int { return 0 }, Log: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			defer tracing.Close(time.Second)
			r, room := request(), make([]byte, 0, 256)
			b.ReportAllocs()
			for b.Loop() {
				s := tracing.Start(nil, nil, 0)
				room = s.Lines(room[:0])
				s.End(r)
			}
		})
	}
}
