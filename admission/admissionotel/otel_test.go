package admissionotel

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a controller of one place whose metrics and spans are kept.
type fixture struct {
	*Instruments
	ctl    *admission.Controller
	reader *metric.ManualReader
	spans  *tracetest.InMemoryExporter
	traces *sdk.TracerProvider
}

func open(t *testing.T, a admission.Options) *fixture {
	t.Helper()
	f := &fixture{reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	f.traces = sdk.NewTracerProvider(sdk.WithSyncer(f.spans))
	var err error
	f.ctl, f.Instruments, err = New(a, Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(f.reader)), TracerProvider: f.traces, Name: "database",
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		f.ctl.Close()
	})
	return f
}

// sums are the values of counters, gauges and counts of histograms, by name and reason.
func (f *fixture) sums(t *testing.T) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, f.reader.Collect(t.Context(), &all))
	sums := map[string]float64{}
	add := func(name string, of attribute.Set, value float64) {
		queue, _ := of.Value("spillway.queue")
		require.Equal(t, "database", queue.AsString(), name)
		if reason, ok := of.Value("spillway.shed"); ok {
			name += " " + reason.AsString()
		}
		sums[name] += value
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, float64(p.Count))
				}
			}
		}
	}
	return sums
}

// What is submitted is run or shed, under the names of the service.
func TestInstruments_Metrics(t *testing.T) {
	t.Parallel()
	told := 0
	f := open(t, admission.Options{Strategy: "fifo", Concurrency: 1, Capacity: 1, Shed: func(admission.Event) { told++ }})
	permit, err := f.ctl.Acquire(t.Context(), admission.Request{})
	require.NoError(t, err)
	waiting := make(chan error, 1)
	go func() {
		p, err := f.Acquire(t.Context(), admission.Request{})
		p.Release()
		waiting <- err
	}()
	require.Eventually(t, func() bool { return f.ctl.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	_, err = f.Acquire(t.Context(), admission.Request{})
	require.ErrorIs(t, err, admission.ErrShed)
	require.Equal(t, 1, told, "the hook of the options is called too")
	sums := f.sums(t)
	require.Equal(t, []float64{1, 1, 1}, []float64{sums["spillway.queue.depth"], sums["spillway.workers"], sums["spillway.workers.busy"]})
	permit.Release()
	require.NoError(t, <-waiting)

	sums = f.sums(t)
	for name, want := range map[string]float64{
		"spillway.tasks.submitted": 3, "spillway.tasks.run": 2, "spillway.shed full": 1, "spillway.queue.wait": 2, "spillway.held": 2,
		"spillway.queue.depth": 0, "spillway.workers.busy": 0, "spillway.queue.capacity": 1, "spillway.strategy.info": 1, "spillway.objective": 0.1, "spillway.requests.within_objective": 2,
	} {
		require.InDelta(t, want, sums[name], 1e-9, name)
	}
}

// Who waits within a sampled trace has a span of it; who does not wait, or is in no trace, none.
func TestInstruments_Span(t *testing.T) {
	t.Parallel()
	f := open(t, admission.Options{Strategy: "fifo", Concurrency: 1})
	ctx, parent := f.traces.Tracer("test").Start(t.Context(), "request")
	permit, err := f.Acquire(ctx, admission.Request{})
	require.NoError(t, err)
	require.Empty(t, f.spans.GetSpans(), "the place was free")

	leaving, leave := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		_, err := f.Acquire(leaving, admission.Request{Priority: 1})
		failed <- err
	}()
	require.Eventually(t, func() bool { return f.ctl.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	leave()
	require.ErrorIs(t, <-failed, context.Canceled)
	spans := f.spans.GetSpans()
	require.Len(t, spans, 1)
	require.Equal(t, "wait", spans[0].Name)
	require.Equal(t, parent.SpanContext().SpanID(), spans[0].Parent.SpanID())
	attributes := attribute.NewSet(spans[0].Attributes...)
	for name, want := range map[attribute.Key]string{"spillway.strategy": "fifo", "spillway.shed": "abandoned", "spillway.queue.depth": "0", "spillway.priority": "1", "spillway.queue": "database"} {
		value, ok := attributes.Value(name)
		require.True(t, ok, name)
		require.Equal(t, want, value.String())
	}

	waited := make(chan error, 1)
	go func() {
		p, err := f.Acquire(ctx, admission.Request{})
		p.Release()
		waited <- err
	}()
	require.Eventually(t, func() bool { return f.ctl.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	permit.Release()
	require.NoError(t, <-waited)
	require.Len(t, f.spans.GetSpans(), 2)

	outside, err := f.Acquire(t.Context(), admission.Request{})
	require.NoError(t, err)
	outside.Release()
	require.Len(t, f.spans.GetSpans(), 2, "it is in no trace")
}

// Options that cannot be are refused as by admission.New, and the global providers do by default.
func TestNew(t *testing.T) {
	t.Parallel()
	_, _, err := New(admission.Options{Strategy: "nonsense"}, Options{})
	require.Error(t, err)
	ctl, instruments, err := New(admission.Options{}, Options{})
	require.NoError(t, err)
	defer ctl.Close()
	permit, err := instruments.Acquire(t.Context(), admission.Request{Cost: 1})
	require.NoError(t, err)
	permit.Release()
	_, err = instruments.Acquire(t.Context(), admission.Request{Cost: -1})
	require.Error(t, err)
	require.NotErrorIs(t, err, admission.ErrShed)
	require.NoError(t, errors.Join(instruments.Close()))
}

func BenchmarkAcquire(b *testing.B) {
	for _, kind := range []string{"plain", "instrumented"} {
		b.Run("controller="+kind, func(b *testing.B) {
			ctl, instruments, err := New(admission.Options{Concurrency: 4}, Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
			require.NoError(b, err)
			acquire := instruments.Acquire
			if kind == "plain" {
				ctl, err = admission.New(admission.Options{Concurrency: 4})
				require.NoError(b, err)
				acquire = ctl.Acquire
			}
			defer ctl.Close()
			b.ReportAllocs()
			for b.Loop() {
				p, _ := acquire(b.Context(), admission.Request{})
				p.Release()
			}
		})
	}
}
