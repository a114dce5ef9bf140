//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// More is asked for than a cluster can do through a few workers. What is too much
// is turned away before it reaches the store, each time with the reason, and the
// rest is served: nothing gathers behind the workers, in the driver or in the node.
func TestCassandra_Overload(t *testing.T) {
	t.Parallel()
	const (
		workers, capacity, clients = 4, 32, 96
		enough                     = 1000 // answers of each kind
		own                        = 4    // what the node is asked beside: probes and the question itself
	)
	c := startCluster(t, 1)
	s := c.on(t, raced, "SPILLWAY_STRATEGY=auto", "SPILLWAY_CASSANDRA_REPLICATION_FACTOR=1",
		fmt.Sprint("SPILLWAY_WORKERS=", workers), fmt.Sprint("SPILLWAY_QUEUE_CAPACITY=", capacity))
	require.Equal(t, http.StatusCreated, s.insist(http.MethodPut, entity("k"), "v").status)
	session, err := c.nodes[0].connect()
	require.NoError(t, err)
	t.Cleanup(session.Close)

	var served, late atomic.Int64
	var times tally
	var mu sync.Mutex
	shed := map[string]int{}
	total := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, of := range shed {
			n += of
		}
		return n
	}
	s.awaitConserved("auto") // what is asked above counts as before
	before := s.metrics()
	var stopped atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- concurrently(clients, func(i int) error {
			conn, err := dial(s.data)
			if err != nil {
				return err
			}
			defer conn.close()
			for n := 0; !stopped.Load(); n++ {
				method, body := http.MethodGet, ""
				if n%2 == 0 {
					method, body = http.MethodPut, fmt.Sprint(n)
				}
				began := time.Now()
				a, err := conn.do(method, entity(fmt.Sprint("k", i)), body)
				times.took(time.Since(began))
				switch {
				case err != nil:
					return err
				case a.status == http.StatusOK, a.status == http.StatusCreated, a.status == http.StatusNotFound:
					served.Add(1)
				case a.status != http.StatusServiceUnavailable:
					return fmt.Errorf("%s: %d %s", method, a.status, a.body)
				case a.shed() == "": // the store was too slow
					late.Add(1)
				case a.header.Get("Retry-After") == "":
					return fmt.Errorf("%s: shed (%s) without Retry-After", method, a.shed())
				default:
					mu.Lock()
					shed[a.shed()]++
					mu.Unlock()
				}
			}
			return nil
		})
	}()
	t.Cleanup(func() { stopped.Store(true) })
	var busiest, deepest float64
	var inNode int
	s.eventually("much is served and much is turned away", func() bool {
		m := s.metrics()
		busiest = max(busiest, m.sum("spillway_workers_busy"))
		deepest = max(deepest, m.sum("spillway_queue_depth"))
		var active, pending int
		const question = "SELECT active_tasks, pending_tasks FROM system_views.thread_pools WHERE name = 'Native-Transport-Requests'"
		if session.Query(question).Scan(&active, &pending) == nil {
			inNode = max(inNode, active+pending)
		}
		return served.Load() >= enough && total() >= enough && busiest == workers
	})
	stopped.Store(true)
	require.NoError(t, <-done)

	reasons := map[string]bool{}
	for _, r := range strategies.Reasons() {
		reasons[r.String()] = true
	}
	for reason := range shed {
		require.True(t, reasons[reason], "%v", shed)
	}
	require.LessOrEqual(t, busiest, float64(workers))
	require.LessOrEqual(t, deepest, float64(capacity))
	// What the service has given up, or asked for a second time, the node may still be at.
	if late.Load() == 0 && time.Duration(times.longest.Load()) < 2*time.Second {
		require.LessOrEqual(t, inNode, workers+own, "operations in the node")
	}

	// Each request was run or turned away, and what was run was one operation of the
	// store: nothing is left behind the workers.
	s.awaitConserved("auto")
	after := s.metrics()
	grown := func(name string, labels ...string) float64 {
		return after.sum(name, labels...) - before.sum(name, labels...)
	}
	require.EqualValues(t, total(), grown("spillway_shed_total"))
	require.EqualValues(t, served.Load()+late.Load(), grown("spillway_tasks_run_total"))
	require.EqualValues(t, served.Load()+late.Load(), grown("spillway_store_operation_duration_seconds_count", `store="cassandra"`))
	s.eventually("no worker is busy, and nothing waits", func() bool {
		m := s.metrics()
		return m.sum("spillway_workers_busy") == 0 && m.sum("spillway_queue_depth") == 0
	})
	begun := time.Now()
	require.Equal(t, http.StatusCreated, s.insist(http.MethodPut, entity("k"), "after").status)
	t.Logf("served %d, too slow %d, turned away %v; in the node at most %d; the next write took %v",
		served.Load(), late.Load(), shed, inNode, time.Since(begun).Round(time.Millisecond))
	s.stop()
}
