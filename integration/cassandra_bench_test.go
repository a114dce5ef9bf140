//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	loadresult "github.com/spillway-go/spillway/loadtest/result"
)

// BenchmarkCassandra measures one service over one node with one replica of each
// key, and over three nodes with three, read and written by quorums. Nodes, service
// and generator share the machine, so what a request costs each of them says more
// than the rate does. Each iteration is a round of all loads, five seconds each;
// what is reported is the median of the rounds and, of rate and costs, the least and
// the greatest.
//
//	go test -tags integration -run '^$' -bench '^BenchmarkCassandra$' -benchtime 3x -timeout 60m ./integration
func BenchmarkCassandra(b *testing.B) {
	binary, err := labBinary()
	require.NoError(b, err)
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			c := newCluster(b, nodes)
			c.java = []string{"-Xms1g", "-Xmx1g"}
			c.start()
			c.await()
			s := c.on(b, plain, fmt.Sprint("SPILLWAY_CASSANDRA_REPLICATION_FACTOR=", nodes))
			inNodes := func() (sum time.Duration) {
				for _, n := range c.nodes {
					sum += cpuTime(b, n.cmd.Process.Pid)
				}
				return sum
			}
			run := func(strategy, mix string, connections int, duration string) (r *loadresult.Result, service, node float64) {
				s.switchTo(strategy)
				file := filepath.Join(b.TempDir(), "result.json")
				serviceBefore, nodesBefore := s.cpuTime(), inNodes()
				_, _ = cost(b, binary, "run", "--url", s.dataURL(""), "--rate", "max", "--connections", fmt.Sprint(connections), "--mix", mix,
					"--keys", "100000", "--value-size", "100", "--duration", duration, "--warmup", "0s", "--timeout", "10s", "--json", file)
				serviceAfter, nodesAfter := s.cpuTime(), inNodes()
				r, err := loadresult.Load(file)
				require.NoError(b, err)
				require.Empty(b, r.Errors)
				per := float64(r.Requests)
				return r, float64((serviceAfter - serviceBefore).Microseconds()) / per, float64((nodesAfter - nodesBefore).Microseconds()) / per
			}
			_, _ = cost(b, binary, "fill", "--url", s.dataURL(""), "--bytes", "10MB", "--value-size", "100")
			for _, mix := range []string{"put=1", "get=1"} { // what is hot is compiled
				run("fifo", mix, 64, "40s")
			}

			type load struct {
				strategy, mix string
				connections   int
			}
			var loads []load
			for _, mix := range []string{"get=1", "put=1"} {
				for _, connections := range []int{1, 64, 256} {
					for _, strategy := range []string{"fifo", "auto"} {
						loads = append(loads, load{strategy, mix, connections})
					}
				}
			}
			type found struct{ rate, p50, p99, service, nodes []float64 }
			all := make(map[load]*found)
			for b.Loop() {
				for _, l := range loads {
					r, service, node := run(l.strategy, l.mix, l.connections, "5s")
					f := all[l]
					if f == nil {
						f = new(found)
						all[l] = f
					}
					f.rate, f.p50, f.p99 = append(f.rate, r.ServedRPS), append(f.p50, r.ServedLatency.P50), append(f.p99, r.ServedLatency.P99)
					f.service, f.nodes = append(f.service, service), append(f.nodes, node)
				}
				slices.Reverse(loads)
			}
			if loads[0].strategy != "fifo" {
				slices.Reverse(loads)
			}
			span := func(v []float64) string {
				return fmt.Sprintf("%.0f (%.0f–%.0f)", median(v), slices.Min(v), slices.Max(v))
			}
			table := "| load | connections | strategy | served a second | p50, ms | p99, ms | service, µs a request | nodes, µs a request |\n|---|---|---|---|---|---|---|---|\n"
			for _, l := range loads {
				f := all[l]
				table += fmt.Sprintf("| %s | %d | `%s` | %s | %.1f | %.1f | %s | %s |\n", l.mix, l.connections, l.strategy,
					span(f.rate), median(f.p50), median(f.p99), span(f.service), span(f.nodes))
			}
			fmt.Printf("\n%d rounds:\n%s\n", b.N, table) // a log would be cut off
			b.ReportMetric(0, "ns/op")
		})
	}
}
