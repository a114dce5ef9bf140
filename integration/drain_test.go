//go:build integration

package integration

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// Requests that are in the service when it is told to stop are answered, and
// those answers say that the connection ends.
func TestDrain_FinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies.Names() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			const requests = 8 // as many wait as there are workers, which is no queue that stands for codel
			folder := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
			s := start(t, raced, folder, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_WORKERS=4", "SPILLWAY_STORE_DELAY=300ms")
			clients := make([]*client, requests)
			for i := range clients {
				clients[i] = s.dial()
				clients[i].mustSend(t, http.MethodPut, entity(fmt.Sprint("k", i)), "v")
			}
			s.eventually("all are submitted", func() bool {
				return s.metrics().sum("spillway_tasks_submitted_total") == requests
			})
			s.signal(syscall.SIGTERM)
			s.eventually("the listener is closed", s.refuses)
			unanswered := make([]bool, requests)
			for i, c := range clients {
				unanswered[i] = c.silent()
			}
			for i, c := range clients {
				a := c.mustReceive(t)
				require.Equal(t, http.StatusCreated, a.status, "request %d: %s", i, a.body)
				require.True(t, a.close || !unanswered[i], "request %d was answered after the listener closed, without Connection: close", i)
				_, err := c.r.ReadByte()
				require.ErrorIs(t, err, io.EOF, "the connection ends")
			}
			require.Equal(t, 0, s.wait())

			s = start(t, raced, folder)
			for i := range clients {
				require.Equal(t, "v", s.request(http.MethodGet, s.dataURL(entity(fmt.Sprint("k", i))), "").body)
			}
			s.stop()
		})
	}
}

// A range whose reader is slow is sent to its end.
func TestDrain_FinishesRanges(t *testing.T) {
	t.Parallel()
	s := start(t, raced, "SPILLWAY_SYNC=never", "SPILLWAY_WORKERS=1", "SPILLWAY_WRITE_TIMEOUT=10m", "SPILLWAY_DRAIN_TIMEOUT=10m")
	const entries = 400
	value := strings.Repeat("v", 64<<10) // 26 MB in total, more than sockets buffer
	c := s.dial()
	for i := range entries {
		a, err := c.do(http.MethodPut, entity(fmt.Sprintf("k%03d", i)), value)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, a.status)
	}
	slow := s.dial()
	slow.mustSend(t, http.MethodGet, "/v0/entities?start=k", "")
	_, err := slow.r.Peek(1)
	require.NoError(t, err)
	s.signal(syscall.SIGTERM)
	s.eventually("the listener is closed", s.refuses)
	a := slow.mustReceive(t)
	require.Equal(t, http.StatusOK, a.status)
	require.Len(t, a.body, entries*(len("k000\n")+len(value)), "the last chunk has come")
	require.Equal(t, 0, s.wait())
}

// Clients that never pause. One whose connection is closed between two requests
// may have sent the next one already: it has had no effect then.
func TestDrain_UnderLoad(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"fifo", "mpmc", "sync"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			folder := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
			s := start(t, raced, folder, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_DRAIN_DELAY=2s")
			const clients = 16
			var answered, closed, cut atomic.Int64
			var told atomic.Bool
			var since atomic.Int64 // answers to requests that were sent when the service had been told to stop
			conns := make([]*client, clients)
			for i := range conns {
				conns[i] = s.dial()
			}
			failed := make([]string, clients) // keys whose PUT was cut off
			done := make(chan error, 1)
			go func() {
				done <- concurrently(clients, func(i int) error {
					c := conns[i]
					defer c.close()
					for n := 0; ; n++ {
						key := fmt.Sprintf("%d-%d", i, n)
						late := told.Load()
						a, err := c.do(http.MethodPut, entity(key), "v")
						switch {
						case err != nil:
							failed[i] = key
							cut.Add(1)
							return nil
						case a.status != http.StatusCreated:
							return fmt.Errorf("status %d: %s", a.status, a.body)
						}
						answered.Add(1)
						if late || a.close {
							since.Add(1)
						}
						if a.close {
							closed.Add(1)
							return nil
						}
					}
				})
			}()
			s.eventually("the load runs", func() bool { return answered.Load() > 500 })
			s.signal(syscall.SIGTERM)
			told.Store(true)
			require.NoError(t, <-done)
			require.Equal(t, 0, s.wait())
			require.Positive(t, since.Load(), "requests are served after SIGTERM")
			t.Logf("%d answered, of these %d after SIGTERM and %d with Connection: close; %d connections closed between requests", answered.Load(), since.Load(), closed.Load(), cut.Load())

			s = start(t, raced, folder)
			for _, key := range failed {
				if key != "" {
					a := s.request(http.MethodGet, s.dataURL(entity(key)), "")
					require.Equal(t, http.StatusNotFound, a.status, "%s was not answered and yet written", key)
				}
			}
			s.stop()
		})
	}
}

// For SPILLWAY_DRAIN_DELAY only /readyz changes. A second signal does not wait for
// its end.
func TestDrain_Delay(t *testing.T) {
	t.Parallel()
	s := start(t, raced, "SPILLWAY_DRAIN_DELAY=1h")
	open := s.dial()
	a, err := open.do(http.MethodPut, entity("before"), "v")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.status)

	s.signal(syscall.SIGTERM)
	s.eventually("/readyz says 503", func() bool { return s.ready() == http.StatusServiceUnavailable })
	require.Contains(t, s.request(http.MethodGet, s.adminURL("/readyz"), "").body, "drain")
	require.Equal(t, http.StatusOK, s.request(http.MethodGet, s.adminURL("/healthz"), "").status)
	for what, c := range map[string]*client{"an open connection": open, "a new connection": s.dial()} {
		a, err := c.do(http.MethodPut, entity("during"), "v")
		require.NoError(t, err, what)
		require.Equal(t, http.StatusCreated, a.status, what)
		require.False(t, a.close, what)
	}

	s.signal(syscall.SIGINT)
	require.Equal(t, 1, s.wait())
}

// What still waits when the time is over is turned away, and the exit code says
// that the stop was not clean.
func TestDrain_TimesOut(t *testing.T) {
	t.Parallel()
	for _, pools := range []string{"shared", "split"} {
		t.Run(pools, func(t *testing.T) {
			t.Parallel()
			s := start(t, raced, "SPILLWAY_POOLS="+pools, "SPILLWAY_WORKERS=2", "SPILLWAY_STORE_DELAY=1h", "SPILLWAY_DRAIN_TIMEOUT=300ms")
			var running, waiting []*client
			submit := func(method string) *client {
				c := s.dial()
				c.mustSend(t, method, entity("k"), "")
				return c
			}
			// Two workers, which split pools share out among reads and writes.
			running = append(running, submit(http.MethodGet), submit(http.MethodPut))
			s.eventually("the workers are busy", func() bool { return s.metrics().sum("spillway_workers_busy") == 2 })
			waiting = append(waiting, submit(http.MethodGet), submit(http.MethodPut))
			s.eventually("two wait", func() bool { return s.metrics().sum("spillway_queue_depth") == 2 })

			s.signal(syscall.SIGTERM)
			for _, c := range waiting {
				a := c.mustReceive(t)
				a.requireProblem(t, http.StatusServiceUnavailable)
				require.Equal(t, "draining", a.shed())
				require.NotEmpty(t, a.header.Get("Retry-After"))
				require.True(t, a.close)
			}
			require.Equal(t, 1, s.wait())
			for _, c := range running {
				_, err := c.receive()
				require.Error(t, err, "a request that never ends is cut off")
			}
		})
	}
}

// A second signal does not wait for requests.
func TestDrain_SecondSignal(t *testing.T) {
	t.Parallel()
	s := start(t, raced, "SPILLWAY_STORE_DELAY=1h", "SPILLWAY_DRAIN_TIMEOUT=1h")
	s.dial().mustSend(t, http.MethodPut, entity("k"), "v")
	s.eventually("a worker is busy", func() bool { return s.metrics().sum("spillway_workers_busy") == 1 })
	s.signal(syscall.SIGINT)
	s.eventually("the listener is closed", s.refuses)
	require.Equal(t, http.StatusServiceUnavailable, s.ready(), "the admin plane is the last to go")
	s.signal(syscall.SIGTERM)
	require.Equal(t, 1, s.wait())
}

// A second signal ends the waiting and loses nothing that was acknowledged. SIGHUP
// does nothing.
func TestDrain_SecondSignalLosesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"never", "interval:1h"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			folder := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
			s := start(t, plain, folder, "SPILLWAY_SYNC="+mode, "SPILLWAY_DRAIN_DELAY=1h")
			const clients = 8
			var acknowledged [clients]atomic.Int64
			total := func() (n int64) {
				for i := range acknowledged {
					n += acknowledged[i].Load()
				}
				return n
			}
			conns := make([]*client, clients)
			for i := range conns {
				conns[i] = s.dial()
			}
			done := make(chan error, 1)
			go func() {
				done <- concurrently(clients, func(i int) error {
					c := conns[i]
					defer c.close()
					for n := 0; ; n++ {
						a, err := c.do(http.MethodPut, entity(fmt.Sprintf("%d-%d", i, n)), "v")
						if err != nil {
							return nil // the end
						}
						if a.status != http.StatusCreated {
							return fmt.Errorf("status %d: %s", a.status, a.body)
						}
						acknowledged[i].Add(1)
					}
				})
			}()
			for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGHUP} {
				s.signal(sig)
				if sig == syscall.SIGTERM { // while one is not heard, another is the same
					s.eventually("/readyz says 503", func() bool { return s.ready() == http.StatusServiceUnavailable })
				}
				before := total()
				s.eventually("writes go on", func() bool { return total() > before+500 })
			}
			s.signal(syscall.SIGTERM)
			require.Equal(t, 1, s.wait())
			require.NoError(t, <-done)
			said := tail(s.stderr.String(), 200)
			require.Contains(t, said, "spillway: a second signal")
			if strings.Contains(said, "did not sync what was acknowledged within a second") {
				t.Log("this machine is too slow: the service does not wait for longer, and says so")
				return
			}

			s = start(t, plain, folder)
			lost := 0
			for i := range acknowledged {
				for n := range acknowledged[i].Load() {
					if s.request(http.MethodGet, s.dataURL(entity(fmt.Sprintf("%d-%d", i, n))), "").status != http.StatusOK {
						lost++
					}
				}
			}
			require.Zero(t, lost, "of %d acknowledged writes", total())
			s.stop()
		})
	}
}

// Connections on which nothing happens do not delay the stop, whether they have
// been used, or never, or stopped within a request.
func TestDrain_IdleConnections(t *testing.T) {
	t.Parallel()
	s := start(t, raced, "SPILLWAY_DRAIN_TIMEOUT=1h", "SPILLWAY_IDLE_TIMEOUT=1h", "SPILLWAY_READ_TIMEOUT=1h")
	const connections = 30
	idle := make([]*client, connections)
	for i := range idle {
		idle[i] = s.dial()
		if i%2 == 0 {
			_, err := idle[i].do(http.MethodGet, entity("k"), "")
			require.NoError(t, err)
		}
	}
	s.eventually("all connections are accepted", func() bool {
		return s.metrics().sum("spillway_connections") >= connections
	})
	s.stop()
	for _, c := range idle {
		_, err := c.r.ReadByte()
		require.Error(t, err)
	}
}
