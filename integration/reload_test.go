//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// configured is a service, or a proxy, that runs by a file.
type configured struct {
	*service
	file    string
	reloads int
	broken  int
}

func launchConfigured(t *testing.T, b build, content string, env []string, args ...string) *configured {
	t.Helper()
	c := &configured{file: filepath.Join(t.TempDir(), "spillway.yaml")}
	require.NoError(t, os.WriteFile(c.file, []byte(content), 0o600))
	c.service = launchCommand(t, b, append([]string{"SPILLWAY_CONFIG=" + c.file}, env...), args...)
	c.awaitListening()
	return c
}

// reload has the file read again with that content, and waits until it was, or was refused.
func (c *configured) reload(content string, wrong bool) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(c.file, []byte(content), 0o600))
	said, times := `"msg":"configuration reloaded"`, &c.reloads
	if wrong {
		said, times = `"msg":"the configuration was not reloaded, nothing has changed"`, &c.broken
	}
	*times++
	c.signal(syscall.SIGHUP)
	c.eventually(said, func() bool { return strings.Count(c.stderr.String(), said) >= *times })
}

func (c *configured) settings() map[string]string {
	c.t.Helper()
	fields := jsonFields(c.t, c.request(http.MethodGet, c.adminURL("/config"), "").body)
	shown := map[string]string{}
	for name, value := range fields["settings"].(map[string]any) {
		shown[name] = fmt.Sprint(value, " by ", fields["from"].(map[string]any)[name])
	}
	return shown
}

// While it is reloaded, time and again and sometimes with a file that is wrong, no request is
// lost or answered wrongly.
func TestReload_UnderLoad(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]build{"raced": raced, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := launchConfigured(t, b, "workers: 4\n", []string{"SPILLWAY_SYNC=never"})
			const connections = 64
			var answered atomic.Int64
			var stop atomic.Bool
			done := make(chan error, 1)
			begin := time.Now()
			go func() {
				done <- concurrently(connections, func(i int) error {
					c, err := dial(s.data)
					if err != nil {
						return err
					}
					defer c.close()
					path := entity(fmt.Sprint("k", i))
					for n := 0; !stop.Load(); n++ {
						value := fmt.Sprint("value ", n)
						a, err := c.do(http.MethodPut, path, value)
						if err != nil || a.status != http.StatusCreated {
							return fmt.Errorf("put %d: %w, status %d: %s", n, err, a.status, a.body)
						}
						a, err = c.do(http.MethodGet, path, "")
						if err != nil || a.status != http.StatusOK || a.body != value {
							return fmt.Errorf("get %d: %w, status %d: %q, want %q", n, err, a.status, a.body, value)
						}
						answered.Add(2)
					}
					return nil
				})
			}()
			t.Cleanup(func() { stop.Store(true) })
			strategies := []string{"fifo", "lifo", "auto", "priority", "sharded", "mpmc", "fair", "edf", "sync"}
			for i := range longer(t, "SPILLWAY_TORTURE_CYCLES", 20) {
				if i%5 == 4 {
					s.reload("strategy: codel\nworkers: 1\nqueue-capacity: none\n", true)
					require.Contains(t, s.stderr.String(), s.file+`:3: bad value \"none\" for SPILLWAY_QUEUE_CAPACITY`)
				} else {
					s.reload(fmt.Sprintf("strategy: %s\nworkers: %d\nqueue-capacity: %d\nmode: %s\nmax-body-bytes: %d\nidle-timeout: %ds\n", strategies[i%len(strategies)], 1+i%7,
						connections+i, []string{"enforce", "observe"}[i%2], 1<<30-i<<20, 20+i), false)
				}
				// Each connection has met it.
				target := answered.Load() + 4*connections
				s.eventually("requests are answered", func() bool { return answered.Load() >= target || len(done) > 0 })
			}
			stop.Store(true)
			require.NoError(t, <-done)
			t.Logf("%d requests, %.0f a second, %d reloads, %d of them wrong", answered.Load(), float64(answered.Load())/time.Since(begin).Seconds(), s.reloads+s.broken, s.broken)
			m := s.metrics()
			require.Zero(t, m.sum("spillway_shed_total"))
			s.eventually("all are counted", func() bool {
				return int64(s.metrics().sum("spillway_requests_total")) == answered.Load()
			})
			s.stop()
		})
	}
}

// What can change live does, all else is named; what is wrong changes nothing, and is said with
// its line; a change by PUT /strategy lasts until a reload.
func TestReload_Service(t *testing.T) {
	t.Parallel()
	s := launchConfigured(t, raced, "workers: 4\nmax-value-bytes: 10\n", []string{"SPILLWAY_QUEUE_CAPACITY=100"}, "--drain-delay=0")
	put := func(value string) int { return s.request(http.MethodPut, s.dataURL(entity("k")), value).status }
	require.Equal(t, http.StatusRequestEntityTooLarge, put("eleven byte"))
	shown := s.settings()
	require.Equal(t, "4 by "+s.file+":1", shown["SPILLWAY_WORKERS"])
	require.Equal(t, "100 by environment", shown["SPILLWAY_QUEUE_CAPACITY"])
	require.Equal(t, "0s by flag", shown["SPILLWAY_DRAIN_DELAY"])
	require.Equal(t, "10s by default", shown["SPILLWAY_READ_TIMEOUT"])

	s.reload("strategy: lifo\nworkers: 7\nqueue-capacity: 5\nmax-value-bytes: 11\nsync: never\nmax-connections: 2\nslo: 1s\nlog-level: debug\n", false)
	require.Equal(t, http.StatusCreated, put("eleven byte"))
	require.Contains(t, s.stderr.String(), `"changed":"log-level,max-connections,max-value-bytes,strategy,workers"`)
	require.Contains(t, s.stderr.String(), `"msg":"these settings change with a restart only, and stay as they were","settings":"sync"`)
	st := s.strategy()
	require.Equal(t, []any{"lifo", 7, 100}, []any{st.Strategy, st.Workers, *st.Capacity}, "the environment wins")
	shown = s.settings()
	require.Equal(t, "always by default", shown["SPILLWAY_SYNC"])
	require.Equal(t, "11 by "+s.file+":4", shown["SPILLWAY_MAX_VALUE_BYTES"])
	first, second := s.dial(), s.dial()
	for _, c := range []*client{first, second} {
		a, err := c.do(http.MethodGet, entity("k"), "")
		require.NoError(t, err)
		if c == first {
			require.Equal(t, http.StatusOK, a.status)
		} else { // net/http's connection is the other one
			require.Equal(t, http.StatusServiceUnavailable, a.status)
		}
	}

	require.Equal(t, http.StatusOK, s.request(http.MethodPut, s.adminURL("/strategy"), `{"workers":9,"capacity":50,"strategy":"fifo"}`).status)
	shown = s.settings()
	require.Equal(t, []string{"9 by PUT /strategy", "50 by PUT /strategy", "fifo by PUT /strategy"},
		[]string{shown["SPILLWAY_WORKERS"], shown["SPILLWAY_QUEUE_CAPACITY"], shown["SPILLWAY_STRATEGY"]})

	for content, words := range map[string]string{
		"strategy: lifo\nworkers: many\n": `:2: bad value \"many\" for SPILLWAY_WORKERS`,
		"strategy: lifo\nworkers: [\n":    ":2: it is not valid YAML",
		"strateg: lifo\n":                 `:1: there is no setting \"strateg\", did you mean strategy?`,
	} {
		s.reload(content, true)
		require.Contains(t, s.stderr.String(), s.file+words)
		require.Equal(t, shown, s.settings(), content)
		require.Equal(t, 0.0, s.metrics()["spillway_config_last_reload_successful"])
	}
	s.reload("strategy: lifo\n", false)
	require.Equal(t, 1.0, s.metrics()["spillway_config_last_reload_successful"])
	st = s.strategy()
	require.Equal(t, []any{"lifo", 100}, []any{st.Strategy, *st.Capacity})
	require.Contains(t, s.stderr.String(), `"msg":"what PUT /strategy had set is undone","settings":"queue-capacity,strategy,workers"`)
	s.stop()
}

// The rules and the upstreams of the proxy change live.
func TestReload_Proxy(t *testing.T) {
	t.Parallel()
	named := func(name string) string {
		url, _ := upstreamAt(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, name+r.Header.Get("X-Forwarded-For"))
		})
		return url
	}
	upstream, other := named(""), named("other ")
	s := launchConfigured(t, raced, "upstream: "+upstream+"\nproxy-routes: /a=first\n", nil, "proxy")
	get := func(path string) string {
		return s.request(http.MethodGet, s.dataURL(path), "", "X-Forwarded-For: 10.1.2.3").body
	}
	routed := func(route string) func() bool {
		return func() bool {
			return s.metrics().sum("spillway_route_duration_seconds_count", fmt.Sprintf("route=%q", route)) > 0
		}
	}
	require.Equal(t, "127.0.0.1", get("/a"))
	s.eventually("it is counted", routed("first"))
	s.reload("upstream: "+other+"\nproxy-routes: /a=second\nproxy-trust-headers: true\nworkers: 3\nproxy-timeout: 7s\n", false)
	require.Equal(t, "other 10.1.2.3, 127.0.0.1", get("/a"))
	s.eventually("it is counted", routed("second"))
	require.NotContains(t, s.request(http.MethodGet, s.adminURL("/metrics"), "").body, `route="first"`)
	require.Equal(t, other+" by "+s.file+":1", s.settings()["SPILLWAY_UPSTREAM"])
	require.Equal(t, 3, s.strategy().Workers)
	require.Equal(t, "7s by "+s.file+":5", s.settings()["SPILLWAY_PROXY_TIMEOUT"])
	s.reload("upstream: "+upstream+"\nproxy-routes: nonsense\n", true)
	require.Equal(t, "other 10.1.2.3, 127.0.0.1", get("/a"))
	s.stop()
}

// Without a file SIGHUP is ignored.
func TestReload_NoFile(t *testing.T) {
	t.Parallel()
	s := start(t, raced)
	s.signal(syscall.SIGHUP)
	require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity("k")), "v").status)
	s.stop()
}

func jsonFields(t testing.TB, text string) (fields map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &fields), text)
	return fields
}
