//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// wrk writes and reads by wrk, with 64 connections, and returns what it says. No
// request may fail.
func (s *service) wrk(seconds int) (string, error) {
	for i := range 100 { // to wrk a 404 is an error
		if a, err := s.try(http.MethodPut, s.dataURL(entity(fmt.Sprint("key", i))), "v"); err != nil || a.status != http.StatusCreated {
			return "", fmt.Errorf("put: %d %w", a.status, err)
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "wrk", "-t", "2", "-c", "64", "-d", fmt.Sprint(seconds, "s"),
		"--timeout", "60s", "-s", "testdata/mix.lua", s.dataURL("")).CombinedOutput()
	text := string(out)
	switch {
	case err != nil:
		return text, fmt.Errorf("wrk: %w\n%s", err, text)
	case strings.Contains(text, "Non-2xx") || strings.Contains(text, "Socket errors"):
		return text, fmt.Errorf("wrk has seen errors:\n%s", text)
	case !requests.MatchString(text) || requests.FindStringSubmatch(text)[1] == "0":
		return text, fmt.Errorf("wrk has had no answer:\n%s", text)
	}
	return text, nil
}

var (
	requests = regexp.MustCompile(`(\d+) requests in`)
	rate     = regexp.MustCompile(`Requests/sec:\s*(\S+)`)
)

func requireWrk(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Fatal("wrk is missing: make deps")
	}
}

// Under every strategy 64 connections write and read without an error, and
// /metrics shows that strategy's series.
func TestWrk_EveryStrategy(t *testing.T) {
	t.Parallel()
	requireWrk(t)
	seconds := longer(t, "SPILLWAY_WRK_SECONDS", 1)
	for _, strategy := range strategies.Names() {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, plain, "SPILLWAY_STRATEGY="+strategy)
			out, err := s.wrk(seconds)
			require.NoError(t, err)
			t.Logf("%s requests a second", rate.FindStringSubmatch(out)[1])
			s.awaitConserved(strategy)
			m, l := s.metrics(), strategyLabel(strategy)
			for _, method := range []string{"PUT", "GET"} {
				require.Greater(t, m.sum("spillway_requests_total", l, `method="`+method+`"`), 100.0)
			}
			require.Equal(t, m.sum("spillway_tasks_run_total", l), m.sum("spillway_queue_wait_seconds_count", l))
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
	s := start(t, plain)
	done := make(chan error, 1)
	go func() {
		_, err := s.wrk(longer(t, "SPILLWAY_WRK_SECONDS", 1))
		done <- err
	}()
	s.eventually("the load runs", func() bool { return s.metrics().sum("spillway_tasks_run_total") > 100 })
	names := strategies.Names()
	var err error
	switches := 0
	for running := true; running; switches++ {
		s.switchTo(names[switches%len(names)])
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
	s.stop()
}
