package admin

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// A page whose name was made to point here can neither read nor change anything,
// whatever it does about its headers. Programs use any name.
func TestServer_Rebinding(t *testing.T) {
	t.Parallel()
	const name = "rebound.example:6060"
	d := &switcher{status: dispatch.Gauge{Strategy: "fifo"}}
	p := open(t, Options{Dispatcher: d})
	marks := [][]string{
		// What Chromium sends with a PUT, with a GET over TLS, and with a GET
		// whose script would rather send no mark.
		{"Origin", "http://" + name},
		{"Sec-Fetch-Site", "same-origin"},
		{"Accept-Language", ""},
	}
	for _, mark := range marks {
		for _, path := range []string{"/", "/metrics", "/config", "/debug/pprof/heap", "/console/events"} {
			requireProblem(t, p.do(http.MethodGet, path, "", append(mark, "Host", name)...), 403, name, "SPILLWAY_ADMIN_TOKEN")
		}
		requireProblem(t, p.do(http.MethodPut, "/strategy", `{"strategy":"lifo"}`, append(mark, "Host", name)...), 403, name)
		require.Equal(t, "fifo", d.status.Strategy)
		require.Equal(t, 200, p.do(http.MethodGet, "/metrics", "", append(mark, "Host", "localhost:6060")...).status)
	}

	for _, program := range [][]string{
		{"User-Agent", "Prometheus/2.42.0", "X-Prometheus-Scrape-Timeout-Seconds", "5", "Accept-Encoding", "gzip"},
		{"User-Agent", "curl/7.88.1", "Accept", "*/*"},
	} {
		require.Equal(t, 200, p.do(http.MethodGet, "/metrics", "", append(program, "Host", name)...).status)
	}
	require.Equal(t, 200, p.do(http.MethodPut, "/strategy", `{"strategy":"lifo"}`, "Host", name).status)

	// A token is not known to such a page, and lets people use names.
	p = open(t, Options{Token: secure.NewToken("secret")})
	for _, mark := range marks {
		requireProblem(t, p.do(http.MethodGet, "/metrics", "", append(mark, "Host", name)...), 401)
		require.Equal(t, 200, p.do(http.MethodGet, "/metrics", "", append(mark, "Host", name, "Authorization", "Bearer secret")...).status)
	}
}
