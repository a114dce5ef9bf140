//go:build integration

package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tokens, right ones and wrong ones, stand neither in the log, however much is
// logged, nor in anything that the planes show.
func TestSecurity_TokensStaySecret(t *testing.T) {
	t.Parallel()
	const data, admin = "d4ta-t0ken-of-this-test", "4dmin-t0ken-of-this-test"
	s := start(t, raced, "SPILLWAY_DATA_TOKEN="+data, "SPILLWAY_ADMIN_TOKEN="+admin, "SPILLWAY_LOG_LEVEL=debug")
	bearer := func(token string) string { return "Authorization: Bearer " + token }
	var shown strings.Builder
	for _, token := range []string{data, admin, data + "-wr0ng", "wr0ng"} {
		for _, url := range []string{s.dataURL(entity("k")), s.dataURL("/nowhere"), s.adminURL("/strategy"), s.adminURL("/nowhere")} {
			for _, header := range []string{bearer(token), "Authorization: Basic " + token, "Authorization: " + token} {
				shown.WriteString(s.request(http.MethodPut, url, `{"strategy":"fifo"}`, header).body)
			}
		}
		// What is malformed is told to who has sent it, and to nobody else.
		for _, raw := range []string{
			"GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nAuthorization Bearer " + token + "\r\n\r\n",
			"GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n" + bearer(token) + "\r\n" + bearer(token) + "\r\n\r\n",
			"Bearer " + token + "\r\n\r\n",
		} {
			for _, addr := range []string{s.data, s.admin} {
				c, err := dial(addr)
				require.NoError(t, err)
				require.NoError(t, c.conn.SetDeadline(time.Now().Add(patience)))
				_, err = io.WriteString(c.conn, raw)
				require.NoError(t, err)
				_, err = c.r.ReadByte()
				require.NoError(t, err, "an answer")
				c.close()
			}
		}
	}
	for _, path := range []string{
		"/", "/metrics", "/config", "/strategy", "/healthz", "/readyz",
		"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/mutex?debug=1",
	} {
		a := s.request(http.MethodGet, s.adminURL(path), "", bearer(admin))
		require.Equal(t, http.StatusOK, a.status, path)
		shown.WriteString(a.body)
		fmt.Fprint(&shown, a.header)
	}
	s.stop()
	for _, text := range []string{shown.String(), s.stderr.String()} {
		require.NotEmpty(t, text)
		for _, token := range []string{data, admin, "wr0ng"} {
			require.NotContains(t, text, token)
		}
	}
}

// Nothing of the admin plane is on the data port, with any method, and nothing of
// the data plane on the admin port, for whoever has the port's token.
func TestSecurity_PlanesAreApart(t *testing.T) {
	t.Parallel()
	const token = "Authorization: Bearer one-f0r-both"
	s := start(t, raced, "SPILLWAY_DATA_TOKEN=one-f0r-both", "SPILLWAY_ADMIN_TOKEN=one-f0r-both")
	for _, path := range []string{
		"/", "/console/events", "/metrics", "/healthz", "/readyz", "/strategy", "/config", "/backup",
		"/debug/pprof/", "/debug/pprof/profile?seconds=1", "/debug/pprof/heap", "/debug/pprof/trace", "//metrics", "/v0/../metrics",
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete} {
			a := s.request(method, s.dataURL(path), "", token)
			require.Equal(t, http.StatusBadRequest, a.status, "%s %s", method, path)
		}
		s.request(http.MethodGet, s.dataURL(path), "", token).requireProblem(t, http.StatusBadRequest)
		s.request(http.MethodGet, s.dataURL(path), "").requireProblem(t, http.StatusUnauthorized)
	}
	for _, path := range []string{entity("k"), "/v0/entities?start=k"} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			s.request(method, s.adminURL(path), "", token).requireProblem(t, http.StatusNotFound)
		}
	}
	s.stop()
}
