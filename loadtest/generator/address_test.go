package generator

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// listen serves on a port of its own, and counts connections.
func listen(t *testing.T, hosts *sync.Map) (netip.AddrPort, func() int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	opened := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts.Store(r.Host, true) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state == http.StateActive { // with a request
			opened++
		}
	}
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return listener.Addr().(*net.TCPAddr).AddrPort(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return opened
	}
}

// All addresses of a name that answer are used, and the server is told the name.
func TestSend_UsesEveryAddressThatAnswers(t *testing.T) {
	onEachEngine(t, testUsesEveryAddressThatAnswers)
}

func testUsesEveryAddressThatAnswers(t *testing.T, engine workload.Engine) {
	t.Parallel()
	gone := netip.MustParseAddrPort(testenv.Nobody(t))
	var hosts sync.Map
	first, requestsOfFirst := listen(t, &hosts)
	second, requestsOfSecond := listen(t, &hosts)
	o := workload.Options{Engine: engine, Rate: 200, Connections: 4, Loops: 2, Mix: workload.Mix{Get: 1}, Duration: 500 * time.Millisecond}.WithDefaults()
	r, err := send(t.Context(), o, &plan{engine: engine, host: "the.name", server: server{scheme: "http", host: "the.name", addresses: []netip.AddrPort{gone, first, second}}})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	require.Positive(t, requestsOfFirst())
	require.Positive(t, requestsOfSecond())
	hosts.Range(func(host, _ any) bool {
		require.Equal(t, "the.name", host)
		return true
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]server{
		"http://127.0.0.1:8080": {"http", "127.0.0.1:8080", []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8080")}},
		"https://127.0.0.1":     {"https", "127.0.0.1", []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:443")}},
		"http://[::1]":          {"http", "[::1]", []netip.AddrPort{netip.MustParseAddrPort("[::1]:80")}},
		"http://:81":            {"http", "127.0.0.1:81", []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:81"), netip.MustParseAddrPort("[::1]:81")}},
	} {
		p := new(plan)
		require.NoError(t, p.resolve(t.Context(), &workload.Options{URL: url}), url)
		require.Equal(t, want, p.server, url)
	}
	for _, url := range []string{"", "127.0.0.1:80", "ftp://127.0.0.1", "http://127.0.0.1:99999", "http://127.0.0.1:0", "http://127.0.0.1/path", "http://u@127.0.0.1"} {
		require.ErrorContains(t, new(plan).resolve(t.Context(), &workload.Options{URL: url}), "url: ", url)
	}
}
