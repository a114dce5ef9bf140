//go:build integration

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The image, built by the repository's own Dockerfile and run by a real engine.
func TestDocker(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	e.importGo(t)
	e.do(t, "make", "docker", "VERSION=v1.2.3-test", "COMMIT=abc1234")
	// One after the other, beside the other tests: this is the longest, and to wait
	// in line with them would leave it as the last.
	for name, test := range map[string]func(*testing.T, *engine){
		"image": dockerImage, "life": dockerLife, "drain": dockerDrain, "limits": dockerLimits, "slow readers": dockerSlowReaders, "half a CPU": dockerHalfCPU, "compose": dockerCompose, "cluster": dockerCluster,
	} {
		t.Run(name, func(t *testing.T) { test(t, e) })
	}
}

func dockerImage(t *testing.T, e *engine) {
	size, err := strconv.Atoi(e.inspect(t, "spillway", "{{.Size}}"))
	require.NoError(t, err)
	require.LessOrEqual(t, size, 40_000_000, "bytes of the image")
	t.Logf("the image has %.1f MB", float64(size)/1e6)

	version := e.do(t, "docker", "run", "--rm", "spillway", "--version")
	require.Contains(t, version, "v1.2.3-test")
	require.Contains(t, version, "abc1234")
	require.Equal(t, "v1.2.3-test abc1234", e.inspect(t, "spillway",
		`{{index .Config.Labels "org.opencontainers.image.version"}} {{index .Config.Labels "org.opencontainers.image.revision"}}`))
}

// A container is started as the README says, and with a root file system that
// nothing can be written to. What was written outlives it.
func dockerLife(t *testing.T, e *engine) {
	c := e.start(t, "-e", "SPILLWAY_STRATEGY=lifo", "-v", "life:/data", "--read-only", "--cpuset-cpus", firstCPU(t))
	var strategy struct {
		Strategy string
		Workers  int
	}
	require.NoError(t, json.Unmarshal([]byte(c.request(http.MethodGet, c.adminURL("/strategy"), "").body), &strategy))
	require.Equal(t, "lifo", strategy.Strategy)
	require.Equal(t, 2, strategy.Workers, "two for its one CPU")

	require.Equal(t, "65532\t65532\t65532\t65532", c.status(t, "Uid"), "not root")

	require.Equal(t, http.StatusCreated, c.request(http.MethodPut, c.dataURL(entity("k")), "v").status)
	c.awaitHealthy()

	e.do(t, "docker", "restart", c.id)
	c.find()
	require.Equal(t, "v", c.request(http.MethodGet, c.dataURL(entity("k")), "").body)
	c.stop()
	e.do(t, "docker", "rm", c.id)

	second := e.start(t, "-v", "life:/data")
	require.Equal(t, "v", second.request(http.MethodGet, second.dataURL(entity("k")), "").body)
	second.stop()
}

// docker stop lets the service answer what it has taken.
func dockerDrain(t *testing.T, e *engine) {
	const requests = 8
	c := e.start(t, "-e", "SPILLWAY_WORKERS=4", "-e", "SPILLWAY_STORE_DELAY=1s", "-e", "SPILLWAY_SLO=none")
	clients := make([]*client, requests)
	for i := range clients {
		var err error
		clients[i], err = c.connect()
		require.NoError(t, err)
		t.Cleanup(clients[i].close)
		clients[i].mustSend(t, http.MethodPut, entity(fmt.Sprint("k", i)), "v")
	}
	c.eventually("all are submitted", func() bool { return c.metrics().sum("spillway_tasks_submitted_total") == requests })
	c.stop()
	for _, client := range clients {
		require.Equal(t, http.StatusCreated, client.mustReceive(t).status)
	}
}

// The service keeps to the container's memory while it is written to as fast as
// it goes, since it takes its limits from there.
func dockerLimits(t *testing.T, e *engine) {
	const limit, values, clients = 128 << 20, 5000, 32
	c := e.start(t, "-e", "SPILLWAY_SLO=none", "--memory", strconv.Itoa(limit), "--memory-swap", strconv.Itoa(limit), "--cpus", "2")
	m := c.metrics()
	// A tenth is left for what the collector does not see, and an eighth is the cache of values.
	require.InDelta(t, 0.9*limit-limit/8, m.sum("go_gc_gomemlimit_bytes"), 0.05*limit)
	require.InDelta(t, math.Min(2, float64(runtime.NumCPU())), m.sum("go_sched_gomaxprocs_threads"), 0)

	value := strings.Repeat("v", 64<<10)
	require.NoError(t, concurrently(clients, func(i int) error {
		conn, err := c.connect()
		if err != nil {
			return err
		}
		defer conn.close()
		for n := range values / clients {
			a, err := conn.do(http.MethodPut, entity(fmt.Sprint(i, "-", n)), value)
			if err != nil {
				return err
			}
			if a.status != http.StatusCreated {
				return fmt.Errorf("status %d: %s", a.status, a.body)
			}
		}
		return nil
	}))
	// The largest values, from more clients at once than there is room for. Some are
	// turned away, and then their connections end.
	large := strings.Repeat("v", 1<<20)
	require.NoError(t, concurrently(4*clients, func(i int) error {
		for n := range 4 {
			conn, err := c.connect()
			if err != nil {
				return err
			}
			began := time.Now()
			a, err := conn.do(http.MethodPut, entity(fmt.Sprint("large", i, "-", n)), large)
			conn.close()
			if err != nil && time.Since(began) > time.Second {
				continue // it was turned away, and sent for longer than the service listens to that
			}
			if err != nil {
				return err
			}
			if a.status != http.StatusCreated && a.status != http.StatusServiceUnavailable {
				return fmt.Errorf("status %d: %s", a.status, a.body)
			}
		}
		return nil
	}))
	require.Equal(t, "running false 0", e.inspect(t, c.id, "{{.State.Status}} {{.State.OOMKilled}} {{.RestartCount}}"))
	// What is mapped from files, the program itself, can be charged to others.
	resident, err := strconv.Atoi(strings.TrimSuffix(c.status(t, "RssAnon"), " kB"))
	require.NoError(t, err)
	require.Less(t, resident<<10, limit)
	t.Logf("%d MiB written in a container of %d MiB, which holds %d MiB now", values*len(value)>>20, limit>>20, resident>>10)
	c.stop()
}

// compose.yaml, with what can be had here: not Grafana, whose image cannot be
// pulled, and Prometheus as the distribution packages it.
func dockerCompose(t *testing.T, e *engine) {
	services := e.do(t, "docker-compose", "--profile", "load", "config", "--services")
	require.ElementsMatch(t, []string{"spillway", "prometheus", "alertmanager", "grafana", "loadtest"}, strings.Fields(services))
	image := regexp.MustCompile(`prom/prometheus:\S+`).FindString(e.do(t, "docker-compose", "config"))
	program, err := exec.LookPath("prometheus")
	require.NoError(t, err)
	e.importImage(t, image, []string{
		`ENTRYPOINT ["/bin/prometheus"]`,
		`CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]`,
	}, map[string]string{"/bin/prometheus": program}, func(string) bool { return false })

	e = &engine{network: e.network, env: append(slices.Clip(e.env), "SPILLWAY_PORT=0", "SPILLWAY_ADMIN_PORT=0", "PROMETHEUS_PORT=0", "SPILLWAY_STRATEGY=mpmc", "RATE=200", "DURATION=2s")}
	compose := func(arguments ...string) string {
		return e.do(t, append([]string{"docker-compose", "--project-name", "test", "--profile", "load"}, arguments...)...)
	}
	t.Cleanup(func() { compose("down", "--volumes", "--timeout", "60") })
	compose("up", "--detach", "--no-build", "spillway", "prometheus")
	require.Contains(t, compose("run", "--rm", "loadtest"), "goodput")

	prometheus := "http://" + compose("port", "prometheus", "9090")
	s := e.service(t)
	for what, query := range map[string]string{
		"the load arrived":        `sum(spillway_tasks_run_total{strategy="mpmc"}) > 300`,
		"the target is up":        `up{job="spillway"} == 1`,
		"the rules are evaluated": `instance:spillway_requests:rate5m`,
	} {
		s.eventually(what, func() bool {
			a, err := s.try(http.MethodGet, prometheus+"/api/v1/query?query="+url.QueryEscape(query), "")
			return err == nil && strings.Contains(a.body, `"value"`)
		})
	}
}

// deploy/cluster/compose.yaml, with what can be had here: HAProxy as the
// distribution packages it, and the embedded store in the place of Cassandra. The
// balancer finds the replicas, also when their containers are made anew, and no
// request fails meanwhile.
func dockerCluster(t *testing.T, e *engine) {
	e = &engine{network: e.network, env: append(slices.Clip(e.env), "SPILLWAY_PORT=0", "HAPROXY_STATS_PORT=0", "SPILLWAY_STORE=pebble")}
	compose := func(arguments ...string) string {
		return e.do(t, append([]string{"docker-compose", "--file", "deploy/cluster/compose.yaml", "--project-name", "cluster"}, arguments...)...)
	}
	require.ElementsMatch(t, []string{"cassandra-1", "cassandra-2", "cassandra-3", "spillway-1", "spillway-2", "haproxy", "prometheus", "grafana"},
		strings.Fields(compose("config", "--services")))
	program, err := exec.LookPath("haproxy")
	require.NoError(t, err)
	e.importImage(t, regexp.MustCompile(`haproxy:\S+`).FindString(compose("config")),
		[]string{`ENTRYPOINT ["/bin/haproxy", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]`},
		map[string]string{"/bin/haproxy": program}, func(string) bool { return false })

	t.Cleanup(func() {
		if t.Failed() {
			t.Log(compose("logs", "--tail", "50"))
		}
		compose("down", "--volumes", "--timeout", "60")
	})
	up := func(replica string, arguments ...string) {
		compose(append([]string{"up", "--detach", "--no-build", "--no-deps"}, append(arguments, replica)...)...)
		e.eventually(t, replica+" is healthy", func() bool {
			return e.inspect(t, compose("ps", "--quiet", replica), "{{.State.Health.Status}}") == "healthy"
		})
	}
	up("spillway-1")
	up("spillway-2")
	compose("up", "--detach", "--no-deps", "haproxy")
	c := &container{service: e.service(t), e: e}
	c.data, c.admin = compose("port", "haproxy", "8080"), compose("port", "haproxy", "8404")
	awaitBoth := func() {
		e.eventually(t, "the balancer has both", func() bool {
			a, err := c.try(http.MethodGet, c.adminURL("/;csv"), "")
			return err == nil && strings.Count(a.body, ",UP,") == 2+1 && strings.Count(a.body, ",L7OK,") == 2 // the backend is UP as well
		})
	}
	awaitBoth()
	require.Contains(t, c.request(http.MethodGet, c.adminURL("/metrics"), "").body, "haproxy_server_status")

	var stopping atomic.Bool
	var answered atomic.Int64
	done := make(chan error, 1)
	go func() {
		done <- concurrently(4, func(i int) error {
			conn, err := c.connect()
			if err != nil {
				return err
			}
			defer conn.close()
			for !stopping.Load() {
				a, err := conn.do(http.MethodPut, entity(fmt.Sprint(i)), "v")
				if err != nil {
					return err
				}
				if a.status != http.StatusCreated {
					return fmt.Errorf("status %d: %s", a.status, a.body)
				}
				answered.Add(1)
			}
			return nil
		})
	}()
	for _, replica := range []string{"spillway-1", "spillway-2"} {
		before := answered.Load()
		up(replica, "--force-recreate")
		awaitBoth()
		require.Greater(t, answered.Load(), before)
	}
	stopping.Store(true)
	require.NoError(t, <-done)
	t.Logf("%d requests answered while both replicas were made anew", answered.Load())
}

// container is a running container of the service. Of service it has what does
// not take its process.
type container struct {
	*service
	e  *engine
	id string
}

// start starts a container of the image spillway, with more arguments to docker
// run, and waits until it is ready.
func (e *engine) start(t *testing.T, arguments ...string) *container {
	t.Helper()
	run := append([]string{"docker", "run", "--detach", "-p", "127.0.0.1:0:8080", "-p", "127.0.0.1:0:6060"}, arguments...)
	c := &container{e.service(t), e, e.do(t, append(run, "spillway")...)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(e.try("docker", "logs", c.id))
		}
		e.do(t, "docker", "rm", "--force", "--volumes", c.id)
	})
	c.find()
	return c
}

// service returns what is needed to talk to a service that is not a process of
// this one.
func (e *engine) service(t *testing.T) *service {
	s := &service{t: t, stderr: new(output), scheme: "http", http: &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: e.dial}}}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

// connect is what dial is for a service that is a process of this one.
func (c *container) connect() (*client, error) {
	conn, err := c.e.dial(c.t.Context(), "tcp", c.data)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, r: bufio.NewReader(conn)}, nil
}

// find learns the ports, which a restart changes, and waits for the service.
func (c *container) find() {
	c.t.Helper()
	c.data = c.e.do(c.t, "docker", "port", c.id, "8080")
	c.admin = c.e.do(c.t, "docker", "port", c.id, "6060")
	c.eventually("the service is ready", func() bool { return c.ready() == http.StatusOK })
}

func (c *container) awaitHealthy() {
	c.t.Helper()
	c.eventually("the container is healthy", func() bool {
		return c.e.inspect(c.t, c.id, "{{.State.Health.Status}}") == "healthy"
	})
}

// stop stops the container, which has to end by itself and with success.
func (c *container) stop() {
	c.t.Helper()
	c.e.do(c.t, "docker", "stop", "-t", strconv.Itoa(int(patience.Seconds())), c.id)
	require.Equal(c.t, "exited 0", c.e.inspect(c.t, c.id, "{{.State.Status}} {{.State.ExitCode}}"))
}

// status returns a line of the status of the service's process.
func (c *container) status(t *testing.T, name string) string {
	t.Helper()
	return statusLine(t, "/proc/"+c.e.inspect(t, c.id, "{{.State.Pid}}")+"/status", name)
}

// firstCPU returns one that this process may use.
func firstCPU(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`^\d+`).FindString(statusLine(t, "/proc/self/status", "Cpus_allowed_list"))
}

func statusLine(t testing.TB, file, name string) string {
	t.Helper()
	status, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	require.Fail(t, "no "+name, "%s", status)
	return ""
}
