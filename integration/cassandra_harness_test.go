//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"
)

// cassandraVersion is what the tests run against.
const cassandraVersion = "5.0.6"

// cassandraJars returns the folder with Cassandra and all that it needs, into which
// make deps has put them.
func cassandraJars() (string, error) {
	said, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("java is missing: make deps: %w", err)
	}
	if !bytes.Contains(said, []byte(`version "17`)) && !bytes.Contains(said, []byte(`version "11`)) {
		return "", fmt.Errorf("Cassandra wants Java 17, and java is %s: apt-get install openjdk-17-jdk-headless", bytes.TrimSpace(said))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	jars := filepath.Join(cache, "spillway", "cassandra-"+cassandraVersion)
	if _, err := os.Stat(jars); err != nil {
		return "", fmt.Errorf("Cassandra is missing: make deps: %w", err)
	}
	return jars, nil
}

// opened are the parts of the JDK that Cassandra wants to get at, by how.
var opened = map[string]string{
	"--add-exports": "java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.base/java.lang.ref java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql jdk.unsupported/sun.misc jdk.compiler/com.sun.tools.javac.file",
	"--add-opens":   "java.base/java.lang.module java.base/jdk.internal.loader java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.math java.base/jdk.internal.module java.base/jdk.internal.util.jar jdk.management/com.sun.management.internal java.base/sun.nio.ch java.base/java.io java.base/java.lang java.base/java.lang.reflect java.base/java.util java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/java.nio java.rmi/sun.rmi.transport.tcp",
}

// cluster is a Cassandra cluster on 127.0.0.1, 127.0.0.2 and so on.
type cluster struct {
	t     testing.TB
	jars  string
	nodes []*node
	port  string // of every node, for clients
	gossip,
	extra string // port between nodes, and lines of each cassandra.yaml
	java []string // how the processes are run
}

// node is a Cassandra process, or several one after the other on the same folder.
type node struct {
	cluster *cluster
	number  int
	address string
	public  string // the address that clients are told
	folder  string
	log     *output
	cmd     *exec.Cmd
	exited  chan struct{}
}

// oneCluster makes tests with clusters wait for each other: each node takes a
// gigabyte.
var oneCluster = make(chan struct{}, 1)

// startCluster starts so many nodes, which are stopped with the test, and waits
// until they are a cluster.
func startCluster(t testing.TB, n int, extra ...string) *cluster {
	t.Helper()
	c := newCluster(t, n, extra...)
	c.start()
	c.await()
	return c
}

// newCluster makes a cluster of so many nodes, which have not been started, and
// are stopped with the test.
func newCluster(t testing.TB, n int, extra ...string) *cluster {
	t.Helper()
	jars, err := cassandraJars()
	require.NoError(t, err)
	oneCluster <- struct{}{}
	t.Cleanup(func() { <-oneCluster })
	c := &cluster{t: t, jars: jars, extra: strings.Join(extra, "\n"), java: []string{"-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1"}}
	c.port = portOnAll(t, n)
	for c.gossip == "" || c.gossip == c.port {
		c.gossip = portOnAll(t, n)
	}
	for i := range n {
		address := fmt.Sprintf("127.0.0.%d", i+1)
		c.nodes = append(c.nodes, &node{cluster: c, number: i, address: address, public: address, folder: t.TempDir()})
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
			if t.Failed() && n.log != nil {
				t.Logf("node %s said:\n%s", n.address, tail(n.log.String(), 4<<10))
			}
		}
	})
	return c
}

// start starts all nodes and waits until they take clients. They need not know
// each other then.
func (c *cluster) start() {
	c.t.Helper()
	// The first is the one that the others ask for the rest.
	c.nodes[0].start()
	c.nodes[0].await()
	for _, n := range c.nodes[1:] {
		n.start()
	}
	for _, n := range c.nodes[1:] {
		n.await()
	}
}

// await waits until each node knows all others and their part of the ring, finds
// them alive, and has the schema that they have.
func (c *cluster) await() {
	c.t.Helper()
	if len(c.nodes) == 1 {
		return
	}
	for _, n := range c.nodes {
		var session *gocql.Session
		var err error
		n.eventually("it knows the others", func() bool {
			if session == nil {
				if session, err = n.connect(); err != nil {
					session = nil
					return false
				}
			}
			return n.knows(session, len(c.nodes)-1)
		})
		session.Close()
	}
}

// connect opens a session with that node alone, as the administrator of a cluster
// with passwords.
func (n *node) connect() (*gocql.Session, error) {
	config := n.cluster.session(net.JoinHostPort(n.public, n.cluster.port))
	config.HostFilter = gocql.WhiteListHostFilter(n.public)
	return config.CreateSession()
}

// knows reports whether the node knows so many others, has the schema that they
// have, and reads what all replicas must answer: of Cassandra's own keyspaces, some
// tables have two, and some three.
func (n *node) knows(session *gocql.Session, others int) bool {
	var own string
	if session.Query("SELECT schema_version FROM system.local").Scan(&own) != nil {
		return false
	}
	agreed := 0
	peers := session.Query("SELECT schema_version FROM system.peers_v2").Iter()
	for version := ""; peers.Scan(&version); version = "" {
		if version == own {
			agreed++
		}
	}
	if peers.Close() != nil || agreed != others {
		return false
	}
	replicated := "SELECT * FROM system_traces.sessions WHERE session_id = 00000000-0000-1000-8000-000000000000"
	if others > 1 {
		replicated = "SELECT * FROM system_distributed.view_build_status WHERE keyspace_name = 'none' AND view_name = 'none'"
	}
	return session.Query(replicated).Consistency(gocql.All).Exec() == nil
}

// session returns what sessions of the tests themselves have in common.
func (c *cluster) session(hosts string) *gocql.ClusterConfig {
	config := gocql.NewCluster(strings.Split(hosts, ",")...)
	config.Authenticator = gocql.PasswordAuthenticator{Username: "cassandra", Password: "cassandra"}
	config.Timeout, config.ConnectTimeout = patience, patience
	config.NumConns = 1 // a second one may still be made when the session is closed
	return config
}

// hosts returns the addresses of all nodes as the service wants them.
func (c *cluster) hosts() string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.public+":"+c.port)
	}
	return strings.Join(hosts, ",")
}

// portOnAll returns a port that is free on the first n loopback addresses, and on
// those of the proxies before them. It is none of those that are given to whoever asks
// for any: another test could get it before a node takes it, or while the node is down.
func portOnAll(t testing.TB, n int) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		free := true
		for i := range 2 * n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.%d.%d:%s", i/n, i%n+1, port))
			free = free && err == nil
			if err == nil {
				_ = l.Close()
			}
		}
		if free {
			return port
		}
	}
	require.FailNow(t, "no port is free on all loopback addresses")
	return ""
}

// start starts the process, on what an earlier one has left.
func (n *node) start() {
	t, c := n.cluster.t, n.cluster
	t.Helper()
	// Evenly spread tokens, so that nodes need not agree on any as they come.
	token := fmt.Sprintf("%d", -1<<63+n.number*(1<<62))
	yaml := strings.Join([]string{
		"cluster_name: spillway",
		"partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
		"num_tokens: 1", "initial_token: " + token, "auto_bootstrap: false",
		"seed_provider: [{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: '127.0.0.1:" + c.gossip + "'}]}]",
		"listen_address: " + n.address, "rpc_address: " + n.address, "broadcast_rpc_address: " + n.public,
		"storage_port: " + c.gossip, "native_transport_port: " + c.port,
		"endpoint_snitch: SimpleSnitch",
		"commitlog_sync: periodic", "commitlog_sync_period: 10s",
		"data_file_directories: [" + filepath.Join(n.folder, "data") + "]",
		"commitlog_directory: " + filepath.Join(n.folder, "commitlog"),
		"saved_caches_directory: " + filepath.Join(n.folder, "caches"),
		"hints_directory: " + filepath.Join(n.folder, "hints"),
		c.extra, "",
	}, "\n")
	config := filepath.Join(n.folder, "cassandra.yaml")
	require.NoError(t, os.WriteFile(config, []byte(yaml), 0o600))
	logging := filepath.Join(n.folder, "logback.xml")
	require.NoError(t, os.WriteFile(logging, []byte(`<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%-5level %d{HH:mm:ss.SSS} %logger{0} %msg%n</pattern></encoder></appender><root level="INFO"><appender-ref ref="OUT"/></root></configuration>`), 0o600))

	agents, err := filepath.Glob(filepath.Join(c.jars, "jamm-*.jar"))
	require.NoError(t, err)
	require.Len(t, agents, 1, "in %s", c.jars)
	args := []string{"-javaagent:" + agents[0], "-Djdk.attach.allowAttachSelf=true"}
	for how, parts := range opened {
		for part := range strings.FieldsSeq(parts) {
			args = append(args, how+"="+part+"=ALL-UNNAMED")
		}
	}
	args = append(args, c.java...)
	args = append(args,
		"-XX:+UseSerialGC",
		"-Djava.io.tmpdir="+n.folder,
		"-Dcassandra.config=file://"+config, "-Dlogback.configurationFile="+logging,
		"-Dcassandra.storagedir="+n.folder, "-Dcassandra-foreground=yes",
		// Times meant for large clusters.
		"-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra.skip_wait_for_gossip_to_settle=0",
		// Half the time that a node has, as it starts, to hear of the others, or else it
		// gives up. None waits for so long, since none is given data.
		fmt.Sprint("-Dcassandra.ring_delay_ms=", patience.Milliseconds()),
		"-cp", filepath.Join(c.jars, "*"), "org.apache.cassandra.service.CassandraDaemon")
	n.cmd = exec.Command("java", args...)
	n.cmd.Dir = n.folder
	n.log = new(output)
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	n.exited = make(chan struct{})
	require.NoError(t, startProcess(n.cmd, syscall.SIGKILL, n.exited))
}

// await waits until the node takes clients.
func (n *node) await() {
	t := n.cluster.t
	t.Helper()
	address := net.JoinHostPort(n.address, n.cluster.port)
	n.eventually("it takes clients", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// awaitLog waits until the node has said that.
func (n *node) awaitLog(words string) {
	n.cluster.t.Helper()
	n.eventually("it says "+words, func() bool { return strings.Contains(n.log.String(), words) })
}

func (n *node) eventually(what string, condition func() bool) {
	t := n.cluster.t
	t.Helper()
	deadline := time.NewTimer(4 * patience) // a Java process on a machine that does much else
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-n.exited:
			if condition() { // it came to hold just before
				return
			}
			t.Fatalf("the Cassandra node has ended (%v) before %s:\n%s", n.cmd.ProcessState, what, tail(n.log.String(), 8<<10))
		case <-deadline.C:
			t.Fatalf("waited for the Cassandra node until %s:\n%s", what, tail(n.log.String(), 8<<10))
		case <-tick.C:
		}
	}
}

// kill ends the process with SIGKILL, if there is one.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // an error says that it has ended already
	<-n.exited
}

// freeze stops the process in the way of a machine that hangs: connections stay
// open, and nothing answers.
func (n *node) freeze() {
	n.cluster.t.Helper()
	require.NoError(n.cluster.t, n.cmd.Process.Signal(syscall.SIGSTOP))
	n.eventually("it has stopped", func() bool { return stopped(n.cmd.Process.Pid) })
}

func (n *node) thaw() {
	n.cluster.t.Helper()
	require.NoError(n.cluster.t, n.cmd.Process.Signal(syscall.SIGCONT))
}

// on starts the service on the cluster.
func (c *cluster) on(t testing.TB, b build, env ...string) *service {
	t.Helper()
	return start(t, b, append([]string{"SPILLWAY_STORE=cassandra", "SPILLWAY_CASSANDRA_HOSTS=" + c.hosts()}, env...)...)
}

// execute runs CQL statements as the administrator of a cluster with passwords.
func (c *cluster) execute(statements ...string) {
	c.t.Helper()
	session, err := c.session(c.hosts()).CreateSession()
	require.NoError(c.t, err)
	defer session.Close()
	for _, statement := range statements {
		require.NoError(c.t, session.Query(statement).Exec(), statement)
	}
}

// insist sends a request until it is answered other than by 503: nodes on a busy
// machine may be late. What it sends may be sent more than once.
func (s *service) insist(method, path, body string, headers ...string) (a answer) {
	s.t.Helper()
	s.eventually(method+" "+path+" is not answered 503", func() bool {
		a = s.request(method, s.dataURL(path), body, headers...)
		return a.status != http.StatusServiceUnavailable
	})
	return a
}

// requireStoreProblem asserts that an answer explains itself with those words, and
// does not come from the queueing layer.
func (a answer) requireStoreProblem(t testing.TB, status int, words ...string) {
	t.Helper()
	detail := a.requireProblem(t, status)
	require.Empty(t, a.shed())
	for _, w := range words {
		require.Contains(t, detail, w)
	}
}
