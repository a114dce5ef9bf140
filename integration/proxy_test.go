//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startProxy starts the binary in front of an upstream, with four places.
func startProxy(t *testing.T, upstream string, env ...string) *service {
	t.Helper()
	s := launchCommand(t, raced, env, "proxy", "--upstream", upstream, "--workers=4")
	s.awaitListening()
	return s
}

// upstreamAt serves on an address, and returns how to stop it.
func upstreamAt(t *testing.T, address string, handler http.HandlerFunc) (url string, stop func()) {
	t.Helper()
	var l net.Listener
	require.Eventually(t, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", address)
		return err == nil
	}, patience, 10*time.Millisecond, "the port is taken")
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			// A process that is being made has what is open, and would go on to listen.
			syscall.ForkLock.RLock()
			_ = l.Close()
			syscall.ForkLock.RUnlock()
			server.CloseClientConnections()
			server.Close()
		}
	}
	t.Cleanup(stop)
	return server.URL, stop
}

// The planes of the service are there in front of a service that knows nothing of them,
// while that comes, goes and comes back.
func TestProxy_FollowsItsUpstream(t *testing.T) {
	t.Parallel()
	address := freeAddresses(t, 1)[0]
	s := startProxy(t, "http://"+address)
	require.Equal(t, http.StatusServiceUnavailable, s.ready(), "its upstream is down")
	require.Contains(t, s.request(http.MethodGet, s.adminURL("/readyz"), "").body, "the upstream http://"+address+" cannot be reached")
	require.Equal(t, http.StatusBadGateway, s.request(http.MethodGet, s.dataURL("/"), "").status)

	for range 2 {
		_, stop := upstreamAt(t, address, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
		})
		s.eventually("it is ready", func() bool { return s.ready() == http.StatusOK })
		require.Equal(t, "PATCH /a?b=c hello", s.request(http.MethodPatch, s.dataURL("/a?b=c"), "hello").body)
		stop()
		require.Equal(t, http.StatusBadGateway, s.request(http.MethodGet, s.dataURL("/"), "").status)
		require.Equal(t, http.StatusServiceUnavailable, s.ready())
	}
	require.Equal(t, http.StatusOK, s.request(http.MethodPut, s.adminURL("/strategy"), `{"strategy":"lifo"}`).status)
	var strategy struct {
		Strategy string
		Workers  int
	}
	require.NoError(t, json.Unmarshal([]byte(s.request(http.MethodGet, s.adminURL("/strategy"), "").body), &strategy))
	require.Equal(t, "lifo", strategy.Strategy)
	require.Equal(t, 4, strategy.Workers)
	config := s.request(http.MethodGet, s.adminURL("/config"), "").body
	require.Contains(t, config, `"SPILLWAY_UPSTREAM":"http://`+address)
	require.Contains(t, config, `"SPILLWAY_QUEUE_CAPACITY":256,`)
	require.NotContains(t, config, "SPILLWAY_DATA_DIR")
	require.Equal(t, http.StatusNotFound, s.request(http.MethodPost, s.adminURL("/backup"), `{"dir":"/x"}`).status)
	s.eventually("both are counted", func() bool { return s.metrics().sum("spillway_requests_total", `method="PATCH"`) == 2 })
	s.stop()
}

// Past what the upstream does some are served, and the others are told so.
func TestProxy_HoldsOffWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	upstream, _ := upstreamAt(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) })
	s := startProxy(t, upstream, "SPILLWAY_STRATEGY=fifo", "SPILLWAY_QUEUE_CAPACITY=8")
	file := filepath.Join(t.TempDir(), "a.json")
	// Four at a time of 20 ms are 200 a second.
	r := run(t, labBinary, nil, "run", "--target", "GET "+s.dataURL("/"), "--rate=600", "--connections=500", "--duration=3s", "--timeout=1m", "--json", file)
	require.Equal(t, 0, r.code, r)
	fields := readJSON(t, file)
	require.Greater(t, fields["status"].(map[string]any)["200"], 0.0)
	require.Greater(t, fields["status"].(map[string]any)["503"], 0.0)
	require.Empty(t, fields["errors"])
	s.stop()
}

// What is under way when it is told to stop is finished.
func TestProxy_Drains(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	upstream, _ := upstreamAt(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let) // or the upstream would not end if the test fails
	s := startProxy(t, upstream)
	clients := make([]*client, 6) // two of which wait
	for i := range clients {
		clients[i] = s.dial()
		clients[i].mustSend(t, http.MethodGet, "/", "")
	}
	for range 4 {
		<-arrived
	}
	s.eventually("two wait", func() bool { return s.metrics().sum("spillway_queue_depth") == 2 })
	s.signal(syscall.SIGTERM)
	s.eventually("the listener is closed", s.refuses)
	let()
	for _, c := range clients {
		a := c.mustReceive(t)
		require.Equal(t, http.StatusOK, a.status)
		require.True(t, a.close)
	}
	require.Equal(t, 0, s.wait())
}

// How many requests its upstream has at once the proxy learns, unless it is told, and says
// so; none is lost by that.
func TestProxy_Learns(t *testing.T) {
	t.Parallel()
	upstream, _ := upstreamAt(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })
	s := launchCommand(t, raced, nil, "proxy", "--upstream", upstream)
	s.awaitListening()
	var clients sync.WaitGroup
	var served atomic.Int64
	for range 8 {
		clients.Go(func() {
			for range 50 {
				answer, err := http.Get(s.dataURL("/"))
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					served.Add(1)
				}
			}
		})
	}
	clients.Wait()
	require.EqualValues(t, 400, served.Load(), "a closed loop is no overload")
	m := s.metrics()
	limit := m.sum("spillway_concurrency_limit")
	require.GreaterOrEqual(t, limit, 1.0)
	require.LessOrEqual(t, limit, m.sum("spillway_concurrency_max"))
	require.Zero(t, m.sum("spillway_concurrency_dropped_total"))
	var status struct {
		Workers int
		Learned *struct {
			Limit int
			Why   string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.request(http.MethodGet, s.adminURL("/strategy"), "").body), &status))
	require.NotNil(t, status.Learned)
	require.Equal(t, status.Learned.Limit, status.Workers)
	require.NotEmpty(t, status.Learned.Why)
	s.stop()
}

// 10,000 clients that are idle between requests take 8 KiB each at most, and are served.
func TestProxy_IdleConnections(t *testing.T) {
	t.Parallel()
	const connections = 10_000
	upstream, _ := upstreamAt(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })
	s := launchCommand(t, plain, nil, "proxy", "--upstream", upstream, "--workers=4")
	s.awaitListening()
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	first := s.dial()
	_, err := io.WriteString(first.conn, request)
	require.NoError(t, err)
	head, err := http.ReadResponse(first.r, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, head.Body)
	require.NoError(t, err)
	c := s.dial()
	_, err = io.WriteString(c.conn, request)
	require.NoError(t, err)
	answer := 0 // bytes, which all have alike
	for line := ""; line != "hello\n"; answer += len(line) {
		line, err = c.r.ReadString('\n')
		require.NoError(t, err)
	}
	before := s.live()
	s.openMany(connections, request, answer)
	s.eventually("they rest", func() bool { return (s.live()-before)/connections <= 8*kib })
	t.Logf("%.1f KiB each", (s.live()-before)/connections/kib)
	require.GreaterOrEqual(t, s.metrics().sum("spillway_connections"), float64(connections))
	require.Equal(t, "hello\n", s.request(http.MethodGet, s.dataURL("/"), "").body)
	s.kill()
}
