//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/spillway-go/spillway/internal/tracing/collectortest"
)

// A trace goes from a client through the proxy to the store and back: the collector has it as one
// tree, and the access logs name it.
func TestTracing_ClientProxyStore(t *testing.T) {
	t.Parallel()
	c := collectortest.Open(t)
	traced := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=50", "SPILLWAY_ACCESS_LOG=all"}
	store := start(t, raced, append(traced, "SPILLWAY_WORKERS=1")...)
	p := launchCommand(t, raced, append(traced, "SPILLWAY_PROXY_ROUTES=/v0/entity=entity"), "proxy", "--upstream", store.dataURL(""))
	p.awaitListening()

	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	require.NoError(t, err)
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "client"))))
	tracer := provider.Tracer("test")
	for method, status := range map[string]int{http.MethodPut: http.StatusCreated, http.MethodGet: http.StatusOK} {
		ctx, span := tracer.Start(t.Context(), "order")
		header := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, header)
		if method == http.MethodGet { // the map's order is random
			require.Equal(t, http.StatusCreated, p.request(http.MethodPut, p.dataURL(entity("k")), "v").status)
		}
		a := p.request(method, p.dataURL(entity("k")), "v", "traceparent: "+header["traceparent"])
		require.Equal(t, status, a.status)
		span.End()
		require.NoError(t, provider.ForceFlush(t.Context()))
		id := span.SpanContext().TraceID().String()
		operation := map[string]string{http.MethodPut: "put", http.MethodGet: "get"}[method]
		want := []string{
			"client: order",
			"  spillway-proxy: " + method + " entity",
			"    spillway-proxy: wait",
			"    spillway-proxy: upstream",
			"      spillway: " + method + " /v0/entity",
			"        spillway: wait",
			"        spillway: " + operation,
		}
		p.eventually("the collector has the tree", func() bool { return len(c.Tree(id)) == len(want) })
		require.Equal(t, want, c.Tree(id))
		for _, line := range c.Tree(id) {
			t.Log(line)
		}
		for _, s := range []*service{store, p} {
			s.eventually("its log names the trace", func() bool {
				for _, line := range s.accessLines() {
					if line["trace_id"] == id {
						return true
					}
				}
				return false
			})
		}
	}
	require.NoError(t, provider.Shutdown(t.Context()))
	p.stop()
	store.stop()
}

// A collector that hangs, or is gone, costs the spans and nothing else.
func TestTracing_CollectorFails(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"hangs", "gone"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := collectortest.Open(t)
			if c.Hang(); how == "gone" {
				c.Close()
			}
			s := start(t, raced, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16", "SPILLWAY_SYNC=never")
			const requests = 400
			require.NoError(t, concurrently(8, func(i int) error {
				client, err := dial(s.data)
				if err != nil {
					return err
				}
				defer client.close()
				for n := range requests / 8 {
					if a, err := client.do(http.MethodPut, entity(fmt.Sprint(i, n)), "v"); err != nil || a.status != http.StatusCreated {
						return fmt.Errorf("%w, status %d", err, a.status)
					}
				}
				return nil
			}))
			s.eventually("what was dropped is counted", func() bool { return s.metrics()["spillway_spans_dropped_total"] >= 3*requests-64 })
			begin := time.Now()
			s.stop()
			t.Logf("stopped in %v", time.Since(begin))
		})
	}
}
