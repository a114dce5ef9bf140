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

	submitted, run, shed, wouldShed, within, lateWrong metric.Int64Counter
	waits, held                                        metric.Float64Histogram

	sets sync.Map // of attributes, by strategy and reason: metric.MeasurementOption
}

// bounds are the buckets of the service's histograms, in seconds.
var bounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

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
	var failed []error
	counter := func(name, help string) metric.Int64Counter {
		c, err := meter.Int64Counter("spillway."+name, metric.WithDescription(help), metric.WithUnit("{request}"))
		failed = append(failed, err)
		return c
	}
	histogram := func(name, help string) metric.Float64Histogram {
		h, err := meter.Float64Histogram("spillway."+name, metric.WithDescription(help), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
		failed = append(failed, err)
		return h
	}
	gauge := func(name, help, unit string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge("spillway."+name, metric.WithDescription(help), metric.WithUnit(unit))
		failed = append(failed, err)
		return g
	}
	i.submitted = counter("tasks.submitted", "Requests that have asked for places, and have got them or were turned away.")
	i.run = counter("tasks.run", "Requests that have got their places.")
	i.shed = counter("shed", "Requests that were turned away, by reason.")
	i.wouldShed = counter("would_shed", "Requests that would have been turned away but for the mode observe, by reason.")
	i.within = counter("requests.within_objective", "Requests that were Good, and answered within the objective in force then.")
	i.lateWrong = counter("late_wrong", "Requests that would have been turned away as late, and that were answered in time: of a hundred of those, one is let through to see.")
	i.waits = histogram("queue.wait", "Time that a request waited for its places, 0 if it had them at once.")
	i.held = histogram("held", "Time for which a request had its places.")
	depth := gauge("queue.depth", "Requests that wait.", "{request}")
	places := gauge("workers", "Places: how many requests of a cost of 1 are let through at once.", "{place}")
	busy := gauge("workers.busy", "Places that are not free.", "{place}")
	objective, err := meter.Float64ObservableGauge("spillway.objective", metric.WithDescription("The latency objective in force, 0 if nobody is ever late."), metric.WithUnit("s"))
	if err = errors.Join(append(failed, err)...); err != nil {
		return nil, nil, err
	}
	a.Admitted, a.Released, a.Shed = both(i.admitted, a.Admitted), both(i.released, a.Released), both(i.turnedAway, a.Shed)
	if i.controller, err = admission.New(a); err != nil {
		return nil, nil, err
	}
	i.gauges, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := i.controller.Stats()
		at := i.with(s.Strategy, "")
		to.ObserveInt64(depth, int64(s.Waiting), at)
		to.ObserveInt64(places, int64(s.Concurrency), at)
		to.ObserveInt64(busy, int64(s.InUse), at)
		to.ObserveFloat64(objective, s.Objective.InForce.Seconds(), metric.WithAttributes(i.queue...))
		return nil
	}, depth, places, busy, objective)
	if err != nil {
		i.controller.Close()
		return nil, nil, err
	}
	return i.controller, i, nil
}

func both(f, g func(admission.Event)) func(admission.Event) {
	if g == nil {
		return f
	}
	return func(e admission.Event) {
		f(e)
		g(e)
	}
}

// Close ends the asking of the controller for its gauges. It does not close the controller.
func (i *Instruments) Close() error { return i.gauges.Unregister() }

// with returns the attributes of a strategy and, if it is not empty, a reason.
func (i *Instruments) with(strategy, reason string) metric.MeasurementOption {
	key := [2]string{strategy, reason}
	if set, ok := i.sets.Load(key); ok {
		return set.(metric.MeasurementOption)
	}
	all := append([]attribute.KeyValue{attribute.String("spillway.strategy", strategy)}, i.queue...)
	if reason != "" {
		all = append(all, attribute.String("spillway.shed", reason))
	}
	set := metric.WithAttributeSet(attribute.NewSet(all...))
	i.sets.Store(key, set)
	return set
}

func (i *Instruments) admitted(e admission.Event) {
	ctx, at := context.Background(), i.with(e.Strategy, "")
	i.submitted.Add(ctx, 1, at)
	i.run.Add(ctx, 1, at)
	i.waits.Record(ctx, e.Waited.Seconds(), at)
}

func (i *Instruments) turnedAway(e admission.Event) {
	ctx, at := context.Background(), i.with(e.Strategy, e.Reason.String())
	if e.Observed {
		i.wouldShed.Add(ctx, 1, at)
		return
	}
	i.submitted.Add(ctx, 1, i.with(e.Strategy, ""))
	i.shed.Add(ctx, 1, at)
}

func (i *Instruments) released(e admission.Event) {
	ctx, at := context.Background(), i.with(e.Strategy, "")
	i.held.Record(ctx, e.Held.Seconds(), at)
	if e.InTime {
		i.within.Add(ctx, 1, at)
	}
	if e.LateWrong {
		i.lateWrong.Add(ctx, 1, at)
	}
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
