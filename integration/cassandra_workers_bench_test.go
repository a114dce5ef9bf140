//go:build integration

package integration

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	loadresult "github.com/spillway-go/spillway/loadtest/result"
)

// BenchmarkCassandra_Workers compares a learned number of workers with 128, of two services
// over the same three nodes with three replicas, under auto. Each iteration is a round of
// all loads, eight seconds each, half GET and half PUT; what is reported is the median of the
// rounds, the least and the greatest.
//
//	go test -tags integration -run '^$' -bench '^BenchmarkCassandra_Workers$' -benchtime 5x -timeout 60m ./integration
func BenchmarkCassandra_Workers(b *testing.B) {
	binary, err := labBinary()
	require.NoError(b, err)
	c := newCluster(b, 3)
	c.java = []string{"-Xms1g", "-Xmx1g"}
	c.start()
	c.await()
	workers := []string{"128", "auto"}
	services := make(map[string]*service)
	for _, n := range workers {
		services[n] = c.on(b, plain, "SPILLWAY_CASSANDRA_REPLICATION_FACTOR=3", "SPILLWAY_STRATEGY=auto", "SPILLWAY_WORKERS="+n)
	}
	run := func(n, rate, connections, duration string) *loadresult.Result {
		file := filepath.Join(b.TempDir(), "result.json")
		_, _ = cost(b, binary, "run", "--url", services[n].dataURL(""), "--rate", rate, "--connections", connections, "--mix", "get=1,put=1",
			"--keys", "100000", "--value-size", "100", "--duration", duration, "--warmup", "2s", "--slo", "250ms", "--timeout", "5s", "--json", file)
		r, err := loadresult.Load(file)
		require.NoError(b, err)
		return r
	}
	_, _ = cost(b, binary, "fill", "--url", services["128"].dataURL(""), "--bytes", "10MB", "--value-size", "100")
	capacity := 0.
	for _, n := range append(workers, workers...) { // what is hot is compiled, and the number learned
		capacity = math.Max(capacity, run(n, "max", "256", "20s").ServedRPS)
	}
	type load struct{ name, rate, connections string }
	loads := []load{{"256 connections", "max", "256"}}
	for _, times := range []float64{0.7, 1.5, 3} {
		loads = append(loads, load{fmt.Sprintf("%v x", times), fmt.Sprintf("%.0f", times*capacity), "2048"})
	}
	type key struct{ load, workers string }
	good, p50, p99 := make(map[key][]float64), make(map[key][]float64), make(map[key][]float64)
	for b.Loop() {
		for _, l := range loads {
			for _, n := range workers {
				r, k := run(n, l.rate, l.connections, "8s"), key{l.name, n}
				good[k], p50[k], p99[k] = append(good[k], r.GoodputRPS), append(p50[k], r.ServedLatency.P50), append(p99[k], r.ServedLatency.P99)
			}
		}
		slices.Reverse(workers)
	}
	span := func(v []float64) string {
		return fmt.Sprintf("%.0f (%.0f–%.0f)", median(v), slices.Min(v), slices.Max(v))
	}
	fmt.Printf("\n%d rounds, capacity %.0f a second:\n| load | workers | good a second | p50, ms | p99, ms |\n|---|---|---|---|---|\n", b.N, capacity)
	for _, l := range loads {
		for _, n := range []string{"128", "auto"} {
			k := key{l.name, n}
			fmt.Printf("| %s | %s | %s | %s | %s |\n", l.name, n, span(good[k]), span(p50[k]), span(p99[k]))
		}
	}
	b.ReportMetric(0, "ns/op")
}
