//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// queueing lists the strategies under which requests wait.
func queueing() []string {
	var names []string
	for _, spec := range strategies.Specs() {
		if !spec.Inline {
			names = append(names, spec.Name)
		}
	}
	return names
}

// occupy starts a service with one worker that works on one request for ever,
// under the key "running". Nobody is refused for being late.
func occupy(t *testing.T, strategy string, env ...string) *service {
	t.Helper()
	s := start(t, raced, append([]string{"SPILLWAY_STRATEGY=" + strategy,
		"SPILLWAY_WORKERS=1", "SPILLWAY_STORE_DELAY=1h"}, env...)...)
	s.dial().mustSend(t, http.MethodPut, entity("running"), "v")
	s.eventually("the worker is busy", func() bool {
		return s.metrics().sum("spillway_workers_busy", strategyLabel(strategy)) == 1
	})
	return s
}

// awaitDepth waits until that many requests wait.
func (s *service) awaitDepth(n float64) {
	s.t.Helper()
	s.eventually(fmt.Sprint(n, " requests wait"), func() bool { return s.metrics().sum("spillway_queue_depth") == n })
}

// awaitAnswered waits until that many answers are counted, which is after they
// are sent.
func (s *service) awaitAnswered(strategy string, code, n int) {
	s.t.Helper()
	s.eventually(fmt.Sprint(n, " answers ", code, " are counted"), func() bool {
		return s.metrics().sum("spillway_requests_total", fmt.Sprintf(`code="%d"`, code), strategyLabel(strategy)) == float64(n)
	})
}

// requireShed asserts that the answer is that of the queueing layer.
func (a answer) requireShed(t *testing.T, reason string) {
	t.Helper()
	status := http.StatusServiceUnavailable
	if reason == "expired" {
		status = http.StatusGatewayTimeout
	}
	a.requireProblem(t, status)
	require.Equal(t, reason, a.shed())
	if reason == "expired" {
		require.Empty(t, a.header.Get("Retry-After"))
		return
	}
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	require.True(t, 1 <= after && after <= 30, after)
}

// When there is no room, each strategy turns away whom it says it does, while
// the worker is still busy.
func TestOverload_NoRoom(t *testing.T) {
	t.Parallel()
	const capacity = 2
	for _, test := range []struct {
		strategy string
		reason   string // "" where nobody is turned away
		victim   int    // of the requests in order of arrival
	}{
		{"fifo", "full", capacity},
		{"mpmc", "full", capacity},
		{"lifo", "displaced", 0},
		{"drop-oldest", "displaced", 0},
		{"caller-runs", "", 0},
		{"unbounded", "", 0},
	} {
		t.Run(test.strategy, func(t *testing.T) {
			t.Parallel()
			s := occupy(t, test.strategy, fmt.Sprint("SPILLWAY_QUEUE_CAPACITY=", capacity))
			var clients []*client
			for i := range capacity {
				c := s.dial()
				c.mustSend(t, http.MethodGet, entity(fmt.Sprint("k", i)), "")
				clients = append(clients, c)
				s.awaitDepth(float64(i + 1))
			}
			last := s.dial()
			last.mustSend(t, http.MethodPut, entity("last"), "v")
			clients = append(clients, last)

			if test.reason == "" {
				s.eventually("the last request is submitted", func() bool {
					return s.metrics().sum("spillway_tasks_submitted_total") == capacity+2
				})
				require.Zero(t, s.metrics().sum("spillway_shed_total"))
				return
			}
			a := clients[test.victim].mustReceive(t)
			a.requireShed(t, test.reason)
			require.False(t, a.close, "the connection goes on")
			m := s.metrics()
			require.Equal(t, 1.0, m.sum("spillway_shed_total"))
			require.Equal(t, 1.0, m.sum("spillway_shed_total", `reason="`+test.reason+`"`, strategyLabel(test.strategy)))
			require.EqualValues(t, capacity, m.sum("spillway_queue_depth"))
			s.awaitAnswered(test.strategy, 503, 1)
			// The connection of the one turned away is good for another try, which
			// meets the same fate or another's.
			clients[test.victim].mustSend(t, http.MethodGet, entity("again"), "")
			if test.reason == "full" {
				clients[test.victim].mustReceive(t).requireShed(t, "full")
			} else {
				clients[1].mustReceive(t).requireShed(t, "displaced")
			}
		})
	}
}

// A request whose deadline passes while it waits is answered before its turn:
// here its turn never comes. It makes room at once.
func TestOverload_Expired(t *testing.T) {
	t.Parallel()
	for _, strategy := range queueing() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			folder := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
			s := occupy(t, strategy, folder, "SPILLWAY_QUEUE_CAPACITY=1")
			patient := s.dial()
			for range 3 {
				for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
					a, err := patient.do(method, entity("expired"), "", "Spillway-Timeout-Ms: 1")
					require.NoError(t, err)
					a.requireShed(t, "expired")
					require.False(t, a.close)
				}
			}
			a, err := patient.do(http.MethodGet, "/v0/entities?start=e", "", "Spillway-Timeout-Ms: 1")
			require.NoError(t, err)
			a.requireShed(t, "expired")
			m := s.metrics()
			require.Equal(t, 10.0, m.sum("spillway_shed_total", `reason="expired"`, strategyLabel(strategy)))
			s.awaitAnswered(strategy, 504, 10)
			require.Zero(t, m.sum("spillway_queue_depth"))
			require.Equal(t, 1.0, m.sum("spillway_workers_busy"))
		})
	}
}

// A client that goes away while its request waits is noticed.
func TestOverload_Abandoned(t *testing.T) {
	t.Parallel()
	for _, strategy := range queueing() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := occupy(t, strategy)
			gone, closed, stays := s.dial(), s.dial(), s.dial()
			for i, c := range []*client{gone, closed, stays} {
				c.mustSend(t, http.MethodPut, entity(fmt.Sprint("k", i)), "v")
			}
			s.awaitDepth(3)
			abandoned := func() float64 {
				return s.metrics().sum("spillway_shed_total", `reason="abandoned"`, strategyLabel(strategy))
			}
			require.NoError(t, gone.reset())
			s.eventually("the reset is noticed", func() bool { return abandoned() == 1 })
			closed.close()
			s.eventually("the end of the stream is noticed", func() bool { return abandoned() == 2 })
			s.awaitDepth(1)
			s.awaitAnswered(strategy, 503, 2)
			require.True(t, stays.silent(), "the client that stays is still waiting")
		})
	}
}

// What was turned away, has expired or was abandoned has had no effect on the
// store, although the worker becomes free afterwards.
func TestOverload_ShedRequestsHaveNoEffect(t *testing.T) {
	t.Parallel()
	for _, strategy := range queueing() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := start(t, raced, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_WORKERS=1",
				"SPILLWAY_QUEUE_CAPACITY=2", "SPILLWAY_STORE_DELAY=1s")
			// The worker may be free before the requests below arrive, if the machine
			// is slow. They are done then, and it is tried again.
			var seen struct{ expired, abandoned bool }
			for try := 0; !seen.expired || !seen.abandoned; try++ {
				require.Less(t, try, 20, "requests have never had to wait: %+v", seen)
				s.eventually("nothing is left of the last try", func() bool {
					m := s.metrics()
					return m.sum("spillway_workers_busy") == 0 && m.sum("spillway_queue_depth") == 0
				})
				slow, fast, gone := s.dial(), s.dial(), s.dial()
				before := s.metrics().sum("spillway_shed_total", `reason="abandoned"`)
				slow.mustSend(t, http.MethodPut, entity("slow"), "v")
				s.eventually("the worker is busy", func() bool {
					return s.metrics().sum("spillway_workers_busy") == 1 || !slow.silent()
				})
				expired, abandoned := fmt.Sprint("expired", try), fmt.Sprint("abandoned", try)
				fast.mustSend(t, http.MethodPut, entity(expired), "v", "Spillway-Timeout-Ms: 1")
				gone.mustSend(t, http.MethodPut, entity(abandoned), "v")
				s.eventually("the request that will be abandoned waits", func() bool {
					m := s.metrics()
					return m.sum("spillway_queue_depth") == 1 || !slow.silent() || !gone.silent()
				})
				require.NoError(t, gone.reset())
				a := fast.mustReceive(t)
				if b := slow.mustReceive(t); b.shed() == "" { // unless the last try has come late
					require.Equal(t, http.StatusCreated, b.status)
				}
				s.awaitConserved(strategy)

				stored := func(key string) bool {
					for {
						r := s.request(http.MethodGet, s.dataURL(entity(key)), "")
						if r.shed() == "" {
							return r.status == http.StatusOK
						}
					}
				}
				switch {
				case a.status == http.StatusGatewayTimeout:
					seen.expired = true
					require.False(t, stored(expired), "an expired request was carried out")
				case a.shed() != "": // there was no room any more, or it has waited long
					require.False(t, stored(expired), "a request that was turned away was carried out")
				default:
					require.Equal(t, http.StatusCreated, a.status)
				}
				if s.metrics().sum("spillway_shed_total", `reason="abandoned"`) > before {
					seen.abandoned = true
					require.False(t, stored(abandoned), "an abandoned request was carried out")
				}
			}
			s.stop()
		})
	}
}

// Under the strategies that never turn a request away, none is.
func TestOverload_NobodyTurnedAway(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"sync", "unbounded", "caller-runs"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := start(t, raced, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_WORKERS=1",
				"SPILLWAY_QUEUE_CAPACITY=1", "SPILLWAY_STORE_DELAY=exp:10ms")
			require.NoError(t, concurrently(10, func(i int) error {
				c, err := dial(s.data)
				if err != nil {
					return err
				}
				defer c.close()
				for n := range 5 {
					a, err := c.do(http.MethodPut, entity(fmt.Sprint(i, "-", n)), "v")
					if err != nil || a.status != http.StatusCreated {
						return fmt.Errorf("status %d: %w", a.status, err)
					}
				}
				return nil
			}))
			s.awaitConserved(strategy)
			require.Equal(t, 50.0, s.metrics().sum("spillway_tasks_run_total", strategyLabel(strategy)))
			s.stop()
		})
	}
}

// Clients that reset their connections at any moment, while others work: nobody
// sees another's bytes, a value is whole or not there, and every task is
// accounted for.
func TestOverload_ResetsUnderLoad(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies.Names() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := start(t, raced, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_WORKERS=2",
				"SPILLWAY_QUEUE_CAPACITY=4", "SPILLWAY_STORE_DELAY=exp:200us")
			const clients, rounds = 12, 80
			value := func(i, n int) string {
				return strings.Repeat(fmt.Sprintf("<%d:%d>", i, n), 1+(i*31+n*17)%300)
			}
			require.NoError(t, concurrently(clients, func(i int) error {
				rng := rand.New(rand.NewPCG(uint64(i), 0))
				key := fmt.Sprint("own", i)
				c, err := dial(s.data)
				if err != nil {
					return err
				}
				defer func() { c.close() }()
				may := []string{""} // what the key may hold: these connections are its only writers
				for n := range rounds {
					want := value(i, n)
					if i%2 == 0 && n%2 == 0 {
						if err := c.send(http.MethodPut, entity(key), want); err != nil {
							return err
						}
						if rng.IntN(2) == 0 {
							runtime.Gosched() // sometimes it is under way already
						}
						if err := c.reset(); err != nil {
							return err
						}
						if c, err = dial(s.data); err != nil {
							return err
						}
						may = append(may, want) // now, later or never
						continue
					}
					a, err := c.do(http.MethodGet, entity(key), "")
					if err != nil {
						return err
					}
					if a.shed() == "" && !slices.Contains(may, a.body) {
						return fmt.Errorf("%s holds %.40q (%d bytes, status %d), which was never written", key, a.body, len(a.body), a.status)
					}
					a, err = c.do(http.MethodPut, entity(key), want)
					if err != nil {
						return err
					}
					if a.shed() == "" {
						if a.status != http.StatusCreated {
							return fmt.Errorf("status %d: %s", a.status, a.body)
						}
						if i%2 == 1 {
							may = may[:0] // no write of this client is left under way
						}
						may = append(may, want)
					}
				}
				return nil
			}))
			s.awaitConserved(strategy)
			s.eventually("all connections are closed", func() bool { return s.metrics().sum("spillway_connections") == 0 })
			s.stop()
		})
	}
}
