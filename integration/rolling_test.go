//go:build integration

package integration

import (
	"encoding/csv"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// Replicas behind the balancer of deploy/cluster are restarted one after the
// other, while clients write and read through it. No request fails, and what was
// acknowledged is there.
func TestRolling(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	c.execute(deployedSchema(t)...)
	r := startReplicas(t, c)
	defer r.clients.stop() // before the balancer and the replicas

	// As deployed, the balancer has turned away before a replica stops to listen,
	// unless the machine is very busy. Without the delay it never has: what
	// meets a closed connection, or a closed port, is repeated.
	for round := range min(longer(t, "SPILLWAY_TORTURE_CYCLES", 2), len(drainDelays)) {
		for i := range r.services {
			r.restart(i, round+1)
		}
		r.clients.log(t, fmt.Sprintf("after round %d", round+1), r.balancer)
	}

	acknowledged := r.clients.stop()
	require.NoError(t, r.clients.err)
	// Those of the store, which the clients know of, are the only ones.
	r.balancer.eventually("it has counted them", func() bool {
		return fmt.Sprint(r.clients.late.Load()) == r.balancer.states()["clients/FRONTEND"]["hrsp_5xx"]
	})
	reader := r.clients.connect(t)
	for key, value := range acknowledged {
		require.NoError(t, reader.expect(http.MethodGet, key, value))
	}
	t.Logf("%d keys are as they were left", len(acknowledged))

	// No replica is ready, and still one is asked, which says why it cannot.
	c.nodes[0].kill()
	r.balancer.eventually("both are down", func() bool {
		states := r.balancer.states()
		return states["replicas/one"]["status"] == "DOWN" && states["replicas/two"]["status"] == "DOWN"
	})
	reader = r.clients.connect(t) // that may have taken longer than a connection may be idle
	a, err := reader.do(http.MethodGet, entity("k"), "")
	require.NoError(t, err)
	a.requireStoreProblem(t, http.StatusServiceUnavailable, "too few replicas")
}

// drainDelays are those under which the replicas are stopped, a round each: that
// of deploy/cluster/compose.yaml, then none.
var drainDelays = []string{"5s", "0s", "0s", "0s"}

// deployedSchema returns the statements of deploy/kubernetes/schema.yaml, for a
// cluster of one node.
func deployedSchema(t *testing.T) (statements []string) {
	t.Helper()
	text, err := os.ReadFile("../deploy/kubernetes/schema.yaml")
	require.NoError(t, err)
	var job struct {
		Spec struct {
			Template struct {
				Spec struct{ Containers []struct{ Args []string } }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &job))
	cql := job.Spec.Template.Spec.Containers[0].Args[0]
	here := strings.Replace(cql, "'dc1': 3", "'datacenter1': 1", 1)
	require.NotEqual(t, cql, here)
	for statement := range strings.SplitSeq(here, ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}

// replicas are two services on one cluster, a balancer before them, and clients
// before that.
type replicas struct {
	t        *testing.T
	cluster  *cluster
	env      [2][]string // addresses, which stay the same
	services [2]*service
	balancer *balancer
	clients  *clients
}

func startReplicas(t *testing.T, c *cluster) *replicas {
	t.Helper()
	r := &replicas{t: t, cluster: c}
	ports := freeAddresses(t, 6)
	for i, names := range [2][2]string{{ports[0], ports[1]}, {ports[2], ports[3]}} {
		r.env[i] = []string{"SPILLWAY_LISTEN=" + names[0], "SPILLWAY_ADMIN_LISTEN=" + names[1]}
		r.start(i, 0)
	}
	r.balancer = startBalancer(t, ports[4], ports[5],
		"REPLICA_1="+ports[0], "ADMIN_PORT_1="+port(t, ports[1]), "REPLICA_2="+ports[2], "ADMIN_PORT_2="+port(t, ports[3]))
	r.balancer.awaitUp("one")
	r.balancer.awaitUp("two")
	r.clients = startClients(ports[4])
	return r
}

// start starts a replica that will be stopped in that round, if there is one.
func (r *replicas) start(i, round int) {
	r.t.Helper()
	env := r.env[i]
	if round < len(drainDelays) {
		env = append(slices.Clip(env), "SPILLWAY_DRAIN_DELAY="+drainDelays[round])
	}
	r.services[i] = r.cluster.on(r.t, raced, env...)
}

// restart stops a replica as an operator does and starts it again, which comes
// with the settings of the next round. The other one serves meanwhile, and then
// both do.
func (r *replicas) restart(i, next int) {
	r.t.Helper()
	r.services[i].stop()
	r.goOn("the other one serves")
	r.start(i, next)
	r.balancer.awaitUp([]string{"one", "two"}[i])
	r.services[i].eventually("the new one serves", func() bool {
		return r.clients.failed() || r.services[i].metrics().sum("spillway_requests_total") > 100
	})
	r.goOn("both serve")
}

// goOn waits until the clients have got some more answers.
func (r *replicas) goOn(what string) {
	r.t.Helper()
	before := r.clients.answered.Load()
	r.balancer.eventually(what, func() bool { return r.clients.failed() || r.clients.answered.Load() > before+100 })
	if r.clients.failed() {
		r.clients.stop()
		require.NoError(r.t, r.clients.err)
	}
}

// balancer is HAProxy with the configuration of deploy/cluster.
type balancer struct {
	t      *testing.T
	stats  string
	log    *output
	exited chan struct{}
	http   *http.Client
}

func startBalancer(t *testing.T, listen, stats string, env ...string) *balancer {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	require.NoError(t, err, "haproxy is missing: make deps")
	b := &balancer{t: t, stats: stats, log: new(output), exited: make(chan struct{}), http: &http.Client{Timeout: patience}}
	cmd := exec.Command(program, "-db", "-f", "../deploy/cluster/haproxy.cfg")
	cmd.Env = append(env, "LISTEN="+listen, "STATS="+stats)
	cmd.Stdout, cmd.Stderr = b.log, b.log
	require.NoError(t, startProcess(cmd, syscall.SIGKILL, b.exited))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-b.exited
		b.http.CloseIdleConnections()
		if t.Failed() {
			t.Logf("HAProxy said:\n%s", tail(b.log.String(), 4<<10))
		}
	})
	return b
}

// states returns what HAProxy says of each of its parts, such as replicas/one, by
// the names of its columns. It is empty if HAProxy does not answer.
func (b *balancer) states() map[string]map[string]string {
	states := make(map[string]map[string]string)
	resp, err := b.http.Get("http://" + b.stats + "/;csv")
	if err != nil {
		return states
	}
	defer func() { _ = resp.Body.Close() }()
	rows, err := csv.NewReader(resp.Body).ReadAll()
	if err != nil || len(rows) == 0 {
		return states
	}
	for _, row := range rows[1:] {
		state := make(map[string]string)
		for i, value := range row {
			state[strings.TrimPrefix(rows[0][i], "# ")] = value
		}
		states[state["pxname"]+"/"+state["svname"]] = state
	}
	return states
}

// awaitUp waits until a replica has passed its check.
func (b *balancer) awaitUp(name string) {
	b.t.Helper()
	b.eventually(name+" is up", func() bool {
		state := b.states()["replicas/"+name]
		return state["status"] == "UP" && state["check_status"] == "L7OK"
	})
}

func (b *balancer) eventually(what string, condition func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-b.exited:
			if condition() { // it came to hold just before
				return
			}
			b.t.Fatalf("HAProxy has ended before %s:\n%s", what, b.log)
		case <-deadline.C:
			b.t.Fatalf("waited %v for: %s\n%v", patience, what, b.states())
		case <-tick.C:
		}
	}
}

// clients are connections to the balancer, each of which sends its next request
// when it has got the answer to the last one. Half of them pause between, so that
// the balancer's connections to the replicas are idle now and then.
type clients struct {
	address        string
	answered, late atomic.Int64
	stopping       atomic.Bool
	broken         atomic.Bool
	done           chan struct{}

	// Once all have ended:
	err          error
	acknowledged [8]map[string]string // what each has left under its keys, "" for nothing
}

func startClients(address string) *clients {
	c := &clients{address: address, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = concurrently(len(c.acknowledged), func(i int) error {
			err := c.run(i)
			if err != nil {
				c.broken.Store(true)
			}
			return err
		})
	}()
	return c
}

func (c *clients) failed() bool { return c.broken.Load() }

// stop ends the clients and returns all that is to be there, by key.
func (c *clients) stop() map[string]string {
	c.stopping.Store(true)
	<-c.done
	all := make(map[string]string)
	for _, of := range c.acknowledged {
		for key, value := range of {
			all[key] = value
		}
	}
	return all
}

func (c *clients) log(t *testing.T, when string, b *balancer) {
	t.Helper()
	backend := b.states()["replicas/BACKEND"]
	t.Logf("%s: %d requests answered, %s sent again, %s of these to the other replica, %d late in the store",
		when, c.answered.Load(), backend["wretr"], backend["wredis"], c.late.Load())
}

func (c *clients) run(i int) error {
	const keys = 50
	left := make(map[string]string)
	c.acknowledged[i] = left
	conn := &balanced{clients: c}
	defer conn.close()
	for n := 0; !c.stopping.Load() && !c.broken.Load(); n++ {
		key := fmt.Sprintf("%d-%d", i, n%keys)
		value := fmt.Sprintf("%d-%s", n, strings.Repeat("v", n%1000))
		var err error
		if n%7 == 6 {
			value = ""
			err = conn.expect(http.MethodDelete, key, "")
		} else {
			err = conn.expect(http.MethodPut, key, value)
		}
		if err == nil {
			left[key] = value
			err = conn.expect(http.MethodGet, key, value)
		}
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		if i%2 == 1 {
			pause := time.NewTimer(time.Duration(n%20) * time.Millisecond)
			<-pause.C
		}
	}
	return nil
}

// balanced is a connection of a client to the balancer, or several one after the
// other: an answer may be the last one of its connection if it says so.
type balanced struct {
	clients *clients
	*client
}

// connect returns a connection that is closed with the test.
func (c *clients) connect(t *testing.T) *balanced {
	t.Helper()
	conn := &balanced{clients: c}
	require.NoError(t, conn.dial())
	t.Cleanup(conn.close)
	return conn
}

func (b *balanced) dial() (err error) {
	b.client, err = dial(b.clients.address)
	return err
}

func (b *balanced) close() {
	if b.client != nil {
		b.client.close()
	}
}

// expect sends a request and returns an error unless it succeeds. A value is what
// is written, or is to be read, "" for a key that is not there. What the store was
// late for, and the service says so, does not count and is repeated: that is the
// machine, and would be without a restart.
func (b *balanced) expect(method, key, value string) error {
	want := map[string]int{http.MethodPut: http.StatusCreated, http.MethodDelete: http.StatusAccepted, http.MethodGet: http.StatusOK}[method]
	var sent, read string
	switch {
	case method == http.MethodPut:
		sent = value
	case method == http.MethodGet && value == "":
		want = http.StatusNotFound
	case method == http.MethodGet:
		read = value
	}
	for {
		if b.client == nil {
			if err := b.dial(); err != nil {
				return err
			}
		}
		begin := time.Now()
		a, err := b.do(method, entity(key), sent)
		if err != nil {
			return fmt.Errorf("%s %s got no answer: %w", method, key, err)
		}
		if a.close {
			b.close()
			b.client = nil
		}
		b.clients.answered.Add(1)
		// The store has 2 s at least: nothing that is refused at once passes for that.
		if a.status == http.StatusServiceUnavailable && a.shed() == "" && strings.Contains(a.body, "in time") && time.Since(begin) > time.Second {
			b.clients.late.Add(1)
			continue
		}
		if a.status != want || method == http.MethodGet && a.body != read {
			return fmt.Errorf("%s %s was answered %d and %.200q, want %d and %.200q", method, key, a.status, a.body, want, read)
		}
		return nil
	}
}

// hosts counts the loopback addresses that freeAddresses has given.
var hosts atomic.Int64

// freeAddresses returns addresses on a loopback address of their own, where
// nobody else takes the ports while nobody listens.
func freeAddresses(t testing.TB, n int) (addresses []string) {
	t.Helper()
	// A process that is being made has what is open, and would go on to listen.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	host := fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>8%250, os.Getpid()%256, 1+hosts.Add(1)%250)
	for range n {
		l, err := net.Listen("tcp", host+":0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}
