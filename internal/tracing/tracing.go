// Package tracing exports spans by OTLP, as OpenTelemetry's standard variables say. Without them
// there is nothing of it.
//
// A request is a span of kind server, in the trace of its traceparent. It has two children: the
// wait, with the strategy and the reason of a refusal, and the work, an operation of the store or
// the upstream, whose own spans go on from there.
//
//	GET orders            server
//	├── wait              internal: strategy, depth of the queue when it came, reason
//	└── upstream          client: parent of what the upstream says of it
//
// All that a request does is to hand its spans over. What the collector does not take in time is
// dropped, and counted.
package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/served"
)

// Options say what is traced.
type Options struct {
	// Env looks up a variable. The exporter and the sampler read those of the process.
	Env func(name string) string
	// Service is the name of the service unless OTEL_SERVICE_NAME says another, and Version
	// its version.
	Service, Version string
	// Epoch is the zero of the clock of requests.
	Epoch time.Time
	// Depth returns how many requests wait.
	Depth func() int
	Log   *slog.Logger
}

// Tracing begins spans, and exports them. All methods are safe for concurrent use.
type Tracing struct {
	o        Options
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	sampler  sdk.Sampler
	exporter *exporter
}

var _ served.Tracer = (*Tracing)(nil)

// otlp returns the variable that says something of the exporter of spans, and what it says.
func (o *Options) otlp(what string) (variable, value string) {
	for _, variable = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + what, "OTEL_EXPORTER_OTLP_" + what} {
		if value = o.Env(variable); value != "" {
			break
		}
	}
	return variable, value
}

// client returns what speaks the protocol that the variables name, or nil if they do not ask for
// spans by OTLP.
func (o *Options) client() otlptrace.Client {
	if o.Env("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	variable, endpoint := o.otlp("ENDPOINT")
	switch name := o.Env("OTEL_TRACES_EXPORTER"); {
	case name == "otlp", name == "" && endpoint != "":
	case name == "", name == "none":
		return nil
	default:
		o.Log.Warn("no traces are exported: OTEL_TRACES_EXPORTER may be otlp or none", "value", name)
		return nil
	}
	named, protocol := o.otlp("PROTOCOL")
	if protocol != "" && protocol != "grpc" && protocol != "http/protobuf" {
		o.Log.Warn("the protocol http/protobuf is used: "+named+" may be that, or grpc", "value", protocol)
	}
	u, err := url.Parse(endpoint)
	if endpoint != "" && (err != nil || protocol != "grpc" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "")) {
		o.Log.Warn("no traces are exported: "+variable+" may be http://HOST:PORT or https://HOST:PORT", "value", secure.HideUser(endpoint))
		return nil
	}
	// Without an endpoint it is http://localhost:4318, or 4317, by the specification; by the SDK https.
	if protocol == "grpc" {
		if endpoint == "" {
			return otlptracegrpc.NewClient(otlptracegrpc.WithInsecure())
		}
		return otlptracegrpc.NewClient()
	}
	if endpoint == "" {
		return otlptracehttp.NewClient(otlptracehttp.WithInsecure())
	}
	return otlptracehttp.NewClient()
}

// sampler returns that of the variables, as the SDK has them: it is asked before there is a span,
// as most requests have none where few are sampled.
func (o *Options) sampler() sdk.Sampler {
	ratio := func() sdk.Sampler {
		text := o.Env("OTEL_TRACES_SAMPLER_ARG")
		share, err := strconv.ParseFloat(text, 64)
		if text != "" && (err != nil || share < 0 || share > 1) {
			o.Log.Warn("all traces are sampled: OTEL_TRACES_SAMPLER_ARG may be a number from 0 to 1", "value", text)
		}
		if err != nil || share < 0 || share > 1 {
			share = 1
		}
		return sdk.TraceIDRatioBased(share)
	}
	switch name := o.Env("OTEL_TRACES_SAMPLER"); name {
	case "always_on":
		return sdk.AlwaysSample()
	case "always_off":
		return sdk.NeverSample()
	case "traceidratio":
		return ratio()
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample())
	case "parentbased_traceidratio":
		return sdk.ParentBased(ratio())
	case "", "parentbased_always_on":
	default:
		o.Log.Warn("all traces are sampled that their parents are: OTEL_TRACES_SAMPLER may be always_on, always_off, traceidratio, or parentbased_ and one of these", "value", name)
	}
	return sdk.ParentBased(sdk.AlwaysSample())
}

// Open returns nil if the variables do not ask for spans. It does not wait for a collector.
func Open(o Options) (*Tracing, error) {
	// What the SDK has to say, such as of a time-out that is no number, which it ignores.
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	client := o.client()
	if client == nil {
		return nil, nil
	}
	ctx := context.Background()
	// Attributes and names in the environment win.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", o.Service), attribute.String("service.version", o.Version)), resource.WithFromEnv())
	if err != nil && about == nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	inner, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	size := sdk.DefaultMaxQueueSize
	if n, err := strconv.Atoi(o.Env("OTEL_BSP_MAX_QUEUE_SIZE")); err == nil && n > 0 {
		size = n
	}
	e := &exporter{SpanExporter: inner, room: int64(size), log: o.Log}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { e.complain("OpenTelemetry", err) }))
	t := &Tracing{o: o, exporter: e, sampler: o.sampler()}
	t.provider = sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithIDGenerator(ids{}), sdk.WithSampler(t.sampler),
		sdk.WithSpanProcessor(&bounded{SpanProcessor: sdk.NewBatchSpanProcessor(e, sdk.WithMaxQueueSize(size)), exporter: e}))
	t.tracer = t.provider.Tracer("github.com/spillway-go/spillway")
	return t, nil
}

// Dropped returns how many spans were ended and will never be exported.
func (t *Tracing) Dropped() uint64 { return t.exporter.dropped.Load() }

// Close exports what is left, if the collector takes it within that time.
func (t *Tracing) Close(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if t.provider.Shutdown(ctx) != nil {
		_ = t.exporter.SpanExporter.Shutdown(ctx) // ends an export that hangs
	}
}

// exporter counts the spans on their way, and what becomes of them.
type exporter struct {
	sdk.SpanExporter
	room    int64        // how many may be on their way
	inside  atomic.Int64 // are
	dropped atomic.Uint64
	log     *slog.Logger
	warned  atomic.Int64 // when, in nanoseconds of Unix time
}

// ExportSpans is sdk.SpanExporter's. It returns no error, as nobody could do anything about it.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.inside.Add(-int64(len(spans)))
	if err != nil {
		e.dropped.Add(uint64(len(spans)))
		e.complain("spans were not exported", err)
	}
	return nil
}

// complain warns, once in a minute.
func (e *exporter) complain(what string, err error) {
	now, last := time.Now().UnixNano(), e.warned.Load()
	if now-last >= int64(time.Minute) && e.warned.CompareAndSwap(last, now) {
		e.log.Warn(what, "err", err)
	}
}

// bounded drops what comes when there is no room, before the processor would without counting.
type bounded struct {
	sdk.SpanProcessor
	exporter *exporter
}

// OnEnd is sdk.SpanProcessor's.
func (b *bounded) OnEnd(s sdk.ReadOnlySpan) {
	e := b.exporter
	if e.inside.Add(1) > e.room {
		e.inside.Add(-1)
		e.dropped.Add(1)
		return
	}
	b.SpanProcessor.OnEnd(s)
}

// ids are random, but for those that were handed out before the span began: the sampler of
// that of a trace, and the next server of that of a span.
type ids struct{}

type given struct{}

// NewIDs is sdk.IDGenerator's.
func (i ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(given{}).(trace.TraceID)
	if !ok {
		id = newTraceID()
	}
	return id, i.NewSpanID(ctx, id)
}

func newTraceID() (id trace.TraceID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) // which is not 0
	return id
}

// NewSpanID is sdk.IDGenerator's.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if id, ok := ctx.Value(given{}).(trace.SpanID); ok {
		return id
	}
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// headers are the two of W3C Trace Context.
type headers struct{ parent, state string }

func (h headers) Get(key string) string {
	switch key {
	case "traceparent":
		return h.parent
	case "tracestate":
		return h.state
	}
	return ""
}
func (headers) Set(string, string) {}
func (headers) Keys() []string     { return []string{"traceparent", "tracestate"} }

// Start begins a span: see served.Tracer.
func (t *Tracing) Start(traceparent, tracestate []byte, arrived int64) served.Span {
	ctx := context.Background()
	if traceparent != nil {
		ctx = propagation.TraceContext{}.Extract(ctx, headers{string(traceparent), string(tracestate)})
	}
	id := trace.SpanContextFromContext(ctx).TraceID()
	begins := !id.IsValid()
	if begins {
		id = newTraceID()
	}
	sampled := t.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: id, Name: spanName, Kind: trace.SpanKindServer})
	next := place{id: id, next: ids{}.NewSpanID(ctx, id), state: sampled.Tracestate}
	if sampled.Decision == sdk.Drop {
		return &unsampled{next}
	}
	if begins {
		ctx = context.WithValue(ctx, given{}, id)
	}
	next.flags = trace.FlagsSampled
	s := &span{place: next, t: t, arrived: t.o.Epoch.Add(time.Duration(arrived)), depth: t.o.Depth()}
	s.ctx, s.Span = t.tracer.Start(ctx, spanName, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(s.arrived))
	return s
}

// spanName is the name of a span as long as nobody knows a better one.
const spanName = "request"

// place is where the next server goes on with a trace.
type place struct {
	id    trace.TraceID
	next  trace.SpanID // the parent of what it does
	flags trace.TraceFlags
	state trace.TraceState
}

// Lines is served.Span's.
func (p *place) Lines(dst []byte) []byte {
	dst = hex.AppendEncode(append(dst, "traceparent: 00-"...), p.id[:])
	dst = hex.AppendEncode(append(dst, '-'), p.next[:])
	dst = append(hex.AppendEncode(append(dst, '-'), []byte{byte(p.flags)}), "\r\n"...)
	if state := p.state.String(); state != "" {
		dst = append(append(append(dst, "tracestate: "...), state...), "\r\n"...)
	}
	return dst
}

// unsampled is a request of which no span is exported.
type unsampled struct{ place }

// End is served.Span's.
func (u *unsampled) End(r *served.Request) { r.TraceID = u.id.String() }

// span is that of a request.
type span struct {
	trace.Span
	place
	t       *Tracing
	ctx     context.Context // of its children
	arrived time.Time
	depth   int
}

// End is served.Span's.
func (s *span) End(r *served.Request) {
	r.TraceID = s.id.String()
	begun := s.arrived.Add(r.Received)
	if r.Operation != "" || r.Shed != "" {
		s.child(s.ctx, "wait", trace.SpanKindInternal, begun, r.Waited,
			attribute.String("spillway.strategy", r.Strategy), attribute.Int("spillway.queue.depth", s.depth), attribute.String("spillway.shed", r.Shed))
	}
	if r.Operation != "" {
		kind := trace.SpanKindInternal
		if r.Operation == upstream {
			kind = trace.SpanKindClient
		}
		s.child(context.WithValue(s.ctx, given{}, s.next), r.Operation, kind, begun.Add(r.Waited), r.Ran)
	}
	name := r.Method
	if r.Route != "" {
		name += " " + r.Route
	} else if r.Operation != upstream { // whose paths are many
		name += " " + string(r.Path)
	}
	s.SetName(name)
	s.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", string(r.Path)),
		attribute.Int("http.response.status_code", r.Code), attribute.String("spillway.client", r.Client), attribute.Int("spillway.priority", int(r.Priority)))
	if r.Route != "" {
		s.SetAttributes(attribute.String("http.route", r.Route))
	}
	if r.Code >= 500 || r.Code == codeLeft {
		why := r.Shed
		if r.Code == codeLeft {
			why = "the client left"
		}
		s.SetStatus(codes.Error, why)
	}
	s.Span.End(trace.WithTimestamp(s.arrived.Add(r.Took)))
}

// upstream is the work of the proxy.
const upstream = "upstream"

// codeLeft stands for a client that has left.
const codeLeft = 499

func (s *span) child(ctx context.Context, name string, kind trace.SpanKind, begun time.Time, took time.Duration, attributes ...attribute.KeyValue) {
	_, child := s.t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(begun), trace.WithAttributes(attributes...))
	child.End(trace.WithTimestamp(begun.Add(took)))
}
