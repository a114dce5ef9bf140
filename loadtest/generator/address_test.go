package generator

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// The address of a name that answers is used, and the server is told the name.
func TestRun_FindsTheAddressThatAnswers(t *testing.T) {
	onEachEngine(t, func(t *testing.T, engine workload.Engine) {
		t.Parallel()
		var hosts sync.Map
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) { hosts.Store(r.Host, true) }) // on 127.0.0.1 alone
		host := "localhost" + strings.TrimPrefix(url, "http://127.0.0.1")
		o := workload.Options{URL: "http://" + host, Engine: engine, Rate: 200, Connections: 4, Mix: workload.Mix{Get: 1}, Duration: 200 * time.Millisecond}
		r, err := Run(t.Context(), o)
		require.NoError(t, err)
		require.Empty(t, r.Errors)
		hosts.Range(func(sent, _ any) bool {
			require.Equal(t, host, sent)
			return true
		})
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]string{
		"http://127.0.0.1:8080": {"127.0.0.1:8080", "127.0.0.1:8080"},
		"https://127.0.0.1":     {"127.0.0.1", "127.0.0.1:443"},
		"http://[::1]":          {"[::1]", "[::1]:80"},
		"http://:81":            {"localhost:81", "localhost:81"},
	} {
		p := new(plan)
		require.NoError(t, p.resolve(&workload.Options{URL: url}), url)
		require.Equal(t, want, [2]string{p.server.host, p.server.address()}, url)
	}
	for _, url := range []string{"", "127.0.0.1:80", "ftp://127.0.0.1", "http://127.0.0.1:99999", "http://127.0.0.1:0", "http://127.0.0.1/path", "http://u@127.0.0.1"} {
		require.ErrorContains(t, new(plan).resolve(&workload.Options{URL: url}), "url: ", url)
	}
}
