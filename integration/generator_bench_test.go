//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	loadresult "github.com/spillway-go/spillway/loadtest/result"
)

// serveFast serves a handler on a port of loopback until the benchmark ends.
func serveFast(b *testing.B, handler fasthttp.RequestHandler) (url string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := &fasthttp.Server{Handler: handler, CloseOnShutdown: true, NoDefaultDate: true, MaxIdleWorkerDuration: 50 * time.Millisecond}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	b.Cleanup(func() {
		_ = server.Shutdown()
		<-done
	})
	return "http://" + listener.Addr().String()
}

// cost runs a command and returns its CPU time.
func cost(b *testing.B, name string, args ...string) (out string, cpu time.Duration) {
	cmd := exec.CommandContext(b.Context(), name, args...)
	text, err := cmd.CombinedOutput()
	require.NoError(b, err, "%s", text)
	return string(text), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// BenchmarkGenerator_AgainstWrk compares the CPU time that a request costs the
// load generator with what it costs wrk, at the rate that wrk reaches against a
// bare server. Each iteration runs both, one after the other.
func BenchmarkGenerator_AgainstWrk(b *testing.B) {
	if _, err := exec.LookPath("wrk"); err != nil {
		b.Fatal("wrk is missing: make deps")
	}
	binary, err := labBinary()
	require.NoError(b, err)
	url := serveFast(b, func(c *fasthttp.RequestCtx) { c.SetBodyString("a value of some length, as answers have one") })
	for _, connections := range []int{64, 1024} {
		b.Run(fmt.Sprint("connections=", connections), func(b *testing.B) {
			var wrks, ours, closed, ratios, rates []float64
			for b.Loop() {
				out, cpu := cost(b, "wrk", "-t", "1", "-c", fmt.Sprint(connections), "-d", "3s", url+"/v0/entity?id=key000000000042")
				n, err := strconv.ParseFloat(requests.FindStringSubmatch(out)[1], 64)
				require.NoError(b, err)
				wrk := float64(cpu.Microseconds()) / n
				rate := n / 3
				run := func(rate string) float64 {
					file := filepath.Join(b.TempDir(), "result.json")
					_, cpu := cost(b, binary, "run", "--url", url, "--rate", rate, "--connections", fmt.Sprint(connections), "--loops", "1",
						"--mix", "get=1", "--duration", "3s", "--warmup", "0s", "--timeout", "10s", "--json", file)
					r, err := loadresult.Load(file)
					require.NoError(b, err)
					require.Empty(b, r.Errors)
					return float64(cpu.Microseconds()) / float64(r.Requests)
				}
				open := run(strconv.FormatFloat(rate, 'f', 0, 64))
				wrks, ours, rates = append(wrks, wrk), append(ours, open), append(rates, rate)
				ratios, closed = append(ratios, open/wrk), append(closed, run("max"))
			}
			b.ReportMetric(median(rates), "wrk-req/s")
			b.ReportMetric(median(wrks), "wrk-us/req")
			b.ReportMetric(median(ours), "open-us/req")
			b.ReportMetric(median(closed), "closed-us/req")
			b.ReportMetric(median(ratios), "open/wrk")
			b.ReportMetric(slices.Min(ratios), "open/wrk-min")
			b.ReportMetric(slices.Max(ratios), "open/wrk-max")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// BenchmarkGenerator_KnownLatency compares the percentiles that the load
// generator finds with those of a server that knows its own: it answers after a
// log-normal time with a median of 20 ms, and notes how long that really was.
func BenchmarkGenerator_KnownLatency(b *testing.B) {
	binary, err := labBinary()
	require.NoError(b, err)
	var mu sync.Mutex
	truth := hdrhistogram.New(1, time.Minute.Microseconds(), 3)
	draws := rand.New(rand.NewPCG(1, 2))
	url := serveFast(b, func(*fasthttp.RequestCtx) {
		begin := time.Now()
		mu.Lock()
		wait := time.Duration(20e6 * math.Exp(0.5*draws.NormFloat64()))
		mu.Unlock()
		time.Sleep(wait)
		mu.Lock()
		defer mu.Unlock()
		_ = truth.RecordValue(time.Since(begin).Microseconds())
	})
	for _, engine := range []string{"epoll", "portable"} {
		b.Run("engine="+engine, func(b *testing.B) {
			ratios := map[string][]float64{}
			for b.Loop() {
				truth.Reset()
				file := filepath.Join(b.TempDir(), "result.json")
				cost(b, binary, "run", "--url", url, "--engine", engine, "--rate", "2000", "--connections", "512", "--mix", "get=1", "--duration", "10s", "--warmup", "0s", "--json", file)
				text, err := os.ReadFile(file)
				require.NoError(b, err)
				var found struct {
					Latency loadresult.Percentiles `json:"latency_ms"`
				}
				require.NoError(b, json.Unmarshal(text, &found))
				mu.Lock()
				for _, p := range []struct {
					name  string
					found float64
					at    float64
				}{{"p50", found.Latency.P50, 50}, {"p90", found.Latency.P90, 90}, {"p99", found.Latency.P99, 99}, {"p99.9", found.Latency.P999, 99.9}} {
					ratios[p.name] = append(ratios[p.name], p.found*1000/float64(truth.ValueAtQuantile(p.at)))
				}
				mu.Unlock()
			}
			for name, values := range ratios {
				b.ReportMetric(median(values), name+"-found/true")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
