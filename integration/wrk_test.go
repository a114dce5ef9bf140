//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// wrk writes and reads by wrk, with 64 connections, and returns what it says, and how
// many requests were refused. None may fail in another way.
func (s *service) wrk(seconds int) (said string, refused float64, err error) {
	for i := range 100 { // to wrk a 404 is an error
		if a, err := s.try(http.MethodPut, s.dataURL(entity(fmt.Sprint("key", i))), "v"); err != nil || a.status != http.StatusCreated {
			return "", 0, fmt.Errorf("put: %d %w", a.status, err)
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "wrk", "-t", "2", "-c", "64", "-d", fmt.Sprint(seconds, "s"),
		"--timeout", "60s", "-s", "testdata/mix.lua", s.dataURL("")).CombinedOutput()
	text := string(out)
	switch {
	case err != nil:
		return text, 0, fmt.Errorf("wrk: %w\n%s", err, text)
	case strings.Contains(text, "Socket errors"):
		return text, 0, fmt.Errorf("wrk has seen errors:\n%s", text)
	case !requests.MatchString(text) || requests.FindStringSubmatch(text)[1] == "0":
		return text, 0, fmt.Errorf("wrk has had no answer:\n%s", text)
	}
	if found := refusals.FindStringSubmatch(text); found != nil {
		refused, err = strconv.ParseFloat(found[1], 64)
	}
	return text, refused, err
}

var (
	requests = regexp.MustCompile(`(\d+) requests in`)
	refusals = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	rate     = regexp.MustCompile(`Requests/sec:\s*(\S+)`)
)

// requireServed asserts that nobody was refused but by codel, which turns away who has
// waited long, as some have on a slow machine. When wrk ends it leaves some waiting.
func (s *service) requireServed(refused float64) {
	s.t.Helper()
	m := s.metrics()
	late := m.sum("spillway_shed_total", `reason="codel"`)
	require.LessOrEqual(s.t, refused, late)
	require.Equal(s.t, late+m.sum("spillway_shed_total", `reason="abandoned"`), m.sum("spillway_shed_total"))
}

func requireWrk(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Fatal("wrk is missing: make deps")
	}
}

// Under every strategy 64 connections write and read without a failure, and
// /metrics shows that strategy's series.
func TestWrk_EveryStrategy(t *testing.T) {
	t.Parallel()
	requireWrk(t)
	seconds := longer(t, "SPILLWAY_WRK_SECONDS", 1)
	for _, strategy := range strategies.Names() {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, plain, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_SLO=10s") // so that no machine is too slow
			out, refused, err := s.wrk(seconds)
			require.NoError(t, err)
			t.Logf("%s requests a second", rate.FindStringSubmatch(out)[1])
			s.awaitConserved(strategy)
			s.requireServed(refused)
			if strategy != "codel" {
				require.Zero(t, refused)
			}
			l := strategyLabel(strategy)
			var m metrics
			s.eventually("how long each has waited is known", func() bool {
				m = s.metrics()
				return m.sum("spillway_tasks_run_total", l) == m.sum("spillway_queue_wait_seconds_count", l)
			})
			require.Greater(t, m.sum("spillway_requests_total", l, `method="PUT"`), 100.0, "those before wrk, and its own")
			require.NotZero(t, m.sum("spillway_requests_total", l, `method="GET"`))
			require.NotZero(t, m.sum("spillway_request_duration_seconds_count", l, `outcome="ok"`))
			require.NotZero(t, m.sum("spillway_commit_batch_size_count", l))
			require.Equal(t, m.sum("spillway_requests_total"), m.sum("spillway_requests_total", l), "all series are this strategy's")
			s.stop()
		})
	}
}

// PUT /strategy under that load fails no request.
func TestWrk_Switching(t *testing.T) {
	t.Parallel()
	requireWrk(t)
	s := start(t, plain, "SPILLWAY_SLO=10s") // so that no machine is too slow
	names, seconds := strategies.Names(), longer(t, "SPILLWAY_WRK_SECONDS", 1)
	var refused float64 // belongs to the goroutine until done
	var enough atomic.Bool
	done := make(chan error, 1)
	go func() { // until there were enough switches, however slow the machine is
		for {
			_, more, err := s.wrk(seconds)
			refused += more
			if err != nil || enough.Load() {
				done <- err
				return
			}
		}
	}()
	s.eventually("the load runs", func() bool { return s.metrics().sum("spillway_tasks_run_total") > 100 })
	var err error
	switches := 0
	for running := true; running; switches++ {
		s.switchTo(names[switches%len(names)])
		enough.Store(switches > len(names))
		select {
		case err = <-done:
			running = false
		default:
		}
	}
	require.NoError(t, err)
	require.Greater(t, switches, len(names))
	t.Logf("%d switches", switches)
	s.awaitConserved(names...)
	s.requireServed(refused)
	s.stop()
}
