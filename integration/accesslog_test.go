//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// accessLines are the lines of the access log so far.
func (s *service) accessLines() (lines []map[string]any) {
	for text := range strings.Lines(s.stderr.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(text), &fields) == nil && fields["status"] != nil && fields["took_ms"] != nil {
			lines = append(lines, fields)
		}
	}
	return lines
}

const traceparent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// There is one line for each answer, and nothing secret in any.
func TestAccessLog_Service(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"all", "shed"} {
		s := start(t, raced, "SPILLWAY_ACCESS_LOG="+mode, "SPILLWAY_DATA_TOKEN=t0psecret", "SPILLWAY_MAX_CONNECTIONS=1")
		const token = "Authorization: Bearer t0psecret"
		key := entity("s3cretkey")
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(key), "s3cretvalue", token, traceparent, "Spillway-Client: tenant-7", "Spillway-Priority: 1").status)
		require.Equal(t, http.StatusNotFound, s.request(http.MethodGet, s.dataURL(entity("other")), "", token).status)
		require.Equal(t, http.StatusOK, s.request(http.MethodGet, s.dataURL("/v0/entities?start=s3cretkey"), "", token).status)
		require.Equal(t, http.StatusUnauthorized, s.request(http.MethodGet, s.dataURL(key), "", "Authorization: Bearer t0psecre").status)
		c := s.dial() // one too many
		_, err := c.do(http.MethodGet, key, "")
		require.NoError(t, err)
		answered := func() int { return int(s.metrics().sum("spillway_requests_total")) }
		s.eventually("all are counted", func() bool { return answered() == 5 })
		want := map[string]int{"all": 5, "shed": 2}[mode]
		s.eventually("all are logged", func() bool { return len(s.accessLines()) >= want })
		s.stop()
		lines := s.accessLines()
		require.Len(t, lines, want)
		require.NotContains(t, s.stderr.String(), "s3cret")
		require.NotContains(t, s.stderr.String(), "t0psecre")
		for _, line := range lines {
			if line["method"] != "PUT" {
				continue
			}
			require.Equal(t, []any{"4bf92f3577b34da6a3ce929d0e0e4736", "/v0/entity", "tenant-7", 1.0, 201.0, "ok", "auto", "put"},
				[]any{line["trace_id"], line["path"], line["client"], line["priority"], line["status"], line["outcome"], line["strategy"], line["work"]})
			require.InDelta(t, line["took_ms"], line["received_ms"].(float64)+line["wait_ms"].(float64)+line["work_ms"].(float64), 0.01)
		}
	}
}

func TestAccessLog_Proxy(t *testing.T) {
	t.Parallel()
	upstream, _ := upstreamAt(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Header.Get("traceparent")) })
	s := startProxy(t, upstream, "SPILLWAY_ACCESS_LOG=all", "SPILLWAY_PROXY_CLIENT=header:X-Key", "SPILLWAY_PROXY_ROUTES=/orders/*=orders")
	a := s.request(http.MethodGet, s.dataURL("/orders/7;jsession=s3cret?card=s3cret"), "", "X-Key: s3cret", traceparent)
	require.Equal(t, strings.TrimPrefix(traceparent, "traceparent: "), a.body, "without tracing it passes as it is")
	s.eventually("it is logged", func() bool { return len(s.accessLines()) == 1 })
	line := s.accessLines()[0]
	require.Equal(t, []any{"4bf92f3577b34da6a3ce929d0e0e4736", "/orders/7", "orders", "upstream", 200.0},
		[]any{line["trace_id"], line["path"], line["route"], line["work"], line["status"]})
	require.Regexp(t, "^[0-9a-f]{24}$", line["client"])
	s.stop()
	require.NotContains(t, s.stderr.String(), "s3cret")
}

// A target that is full costs the lines, which are counted, and nothing else.
func TestAccessLog_Full(t *testing.T) {
	t.Parallel()
	full := func() (string, error) {
		binary, err := raced()
		script := filepath.Join(t.TempDir(), "spillway")
		if err == nil {
			err = writeProgram(script, "#!/bin/sh\nexec "+binary+" \"$@\" >/dev/full\n")
		}
		return script, err
	}
	s := start(t, full, "SPILLWAY_ACCESS_LOG=all", "SPILLWAY_SYNC=never")
	for n := range 100 {
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity(fmt.Sprint("k", n))), "v").status)
	}
	s.eventually("all are counted", func() bool { return s.metrics()["spillway_access_log_lines_dropped_total"] == 100 })
	s.stop()
}
