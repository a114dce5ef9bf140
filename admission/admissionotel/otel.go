package admissionotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/internal/instruments"
	"github.com/spillway-go/spillway/strategies"
)

const scope = "github.com/spillway-go/spillway/admission/admissionotel"

// Options say where metrics and spans go.
type Options struct {
	// MeterProvider and TracerProvider are the global ones if they are nil.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// Name tells several controllers of a process apart: it is the attribute spillway.queue of
	// all that is told, which is left out if it is empty.
	Name string
}

// Instruments tell of one controller. All methods are safe for concurrent use.
type Instruments struct {
	controller *admission.Controller
	tracer     trace.Tracer
	queue      []attribute.KeyValue // the name, if there is one
	gauges     metric.Registration

	counters [len(instruments.Counters)]metric.Int64Counter
	times    [len(instruments.Times)]metric.Float64Histogram

	sets sync.Map // of attributes, by strategy and reason: metric.MeasurementOption
}

// New returns a controller as admission.New does, and the instruments that tell of it. The hooks
// of a are called as well. Close must be called before the controller is let go of.
func New(a admission.Options, o Options) (*admission.Controller, *Instruments, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	meter := o.MeterProvider.Meter(scope)
	i := &Instruments{tracer: o.TracerProvider.Tracer(scope)}
	if o.Name != "" {
		i.queue = []attribute.KeyValue{attribute.String("spillway.queue", o.Name)}
	}
	var err error
	var failed []error
	for c, of := range instruments.Counters {
		i.counters[c], err = meter.Int64Counter("spillway."+of.Name, metric.WithDescription(of.Help), metric.WithUnit("{request}"))
		failed = append(failed, err)
	}
	for t, of := range instruments.Times {
		i.times[t], err = meter.Float64Histogram("spillway."+of.Name, metric.WithDescription(of.Help), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(instruments.Buckets()...))
		failed = append(failed, err)
	}
	var asked [len(instruments.Gauges)]metric.Float64Observable
	var observables []metric.Observable // the same
	for n, g := range instruments.Gauges {
		if g.Kind == instruments.Sum {
			asked[n], err = meter.Float64ObservableCounter("spillway."+g.Name, metric.WithDescription(g.Help), metric.WithUnit(g.Unit))
		} else {
			asked[n], err = meter.Float64ObservableGauge("spillway."+g.Name, metric.WithDescription(g.Help), metric.WithUnit(g.Unit))
		}
		observables, failed = append(observables, asked[n]), append(failed, err)
	}
	if err = errors.Join(failed...); err != nil {
		return nil, nil, err
	}
	instruments.Tell(&a, sink{i})
	if i.controller, err = admission.New(a); err != nil {
		return nil, nil, err
	}
	i.gauges, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := i.controller.Stats()
		for n, g := range instruments.Gauges {
			v, ok := g.Of(&s)
			switch {
			case ok && g.Kind == instruments.PerStrategy:
				to.ObserveFloat64(asked[n], v, i.with(s.Strategy, strategies.ReasonNone))
			case ok:
				to.ObserveFloat64(asked[n], v, metric.WithAttributes(i.queue...))
			}
		}
		return nil
	}, observables...)
	if err != nil {
		i.controller.Close()
		return nil, nil, err
	}
	return i.controller, i, nil
}

// Close ends the asking of the controller for its gauges. It does not close the controller.
func (i *Instruments) Close() error { return i.gauges.Unregister() }

// with returns the attributes of a strategy and, if it is not ReasonNone, a reason.
func (i *Instruments) with(strategy string, reason strategies.Reason) metric.MeasurementOption {
	key := [2]string{strategy, string(reason)}
	if set, ok := i.sets.Load(key); ok {
		return set.(metric.MeasurementOption)
	}
	all := append([]attribute.KeyValue{attribute.String("spillway.strategy", strategy)}, i.queue...)
	if reason != strategies.ReasonNone {
		all = append(all, attribute.String("spillway.shed", reason.String()))
	}
	set := metric.WithAttributeSet(attribute.NewSet(all...))
	i.sets.Store(key, set)
	return set
}

// sink is the Instruments, as the controller's hooks see them.
type sink struct{ *Instruments }

// Count implements instruments.Sink.
func (i sink) Count(c instruments.Counter, strategy string, reason strategies.Reason) {
	i.counters[c].Add(context.Background(), 1, i.with(strategy, reason))
}

// Time implements instruments.Sink.
func (i sink) Time(t instruments.Time, strategy string, took time.Duration) {
	i.times[t].Record(context.Background(), took.Seconds(), i.with(strategy, strategies.ReasonNone))
}

// Acquire is admission.Controller.Acquire, with a span for the wait in the trace of ctx: it has
// the strategy, how many waited when it began, and the reason if the request is turned away. There
// is none where the places are free.
func (i *Instruments) Acquire(ctx context.Context, r admission.Request) (admission.Permit, error) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return i.controller.Acquire(ctx, r)
	}
	begun, stats := time.Now(), i.controller.Stats()
	if _, ok := ctx.Deadline(); !ok && ctx.Err() == nil && stats.Waiting == 0 {
		if permit, ok := i.controller.TryAcquire(r); ok {
			return permit, nil
		}
	}
	_, span := i.tracer.Start(ctx, "wait", trace.WithTimestamp(begun), trace.WithAttributes(append([]attribute.KeyValue{
		attribute.String("spillway.strategy", stats.Strategy), attribute.Int("spillway.queue.depth", stats.Waiting),
		attribute.Int("spillway.priority", r.Priority.Class()),
	}, i.queue...)...))
	defer span.End()
	permit, err := i.controller.Acquire(ctx, r)
	if shed, ok := errors.AsType[*admission.ShedError](err); ok {
		span.SetAttributes(attribute.String("spillway.shed", shed.Reason.String()))
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return permit, err
}
