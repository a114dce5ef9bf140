//go:build integration

package integration

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/server/contracttest"
	"github.com/spillway-go/spillway/strategies"
)

// The data plane on a cluster of one node, from the first start to what becomes
// of it when the node hangs, dies and comes back.
func TestCassandra_OneNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, "authenticator: PasswordAuthenticator", "authorizer: CassandraAuthorizer")
	c.nodes[0].awaitLog("Created default superuser role")
	login := []string{"SPILLWAY_CASSANDRA_USERNAME=cassandra", "SPILLWAY_CASSANDRA_PASSWORD=cassandra", "SPILLWAY_CASSANDRA_REPLICATION_FACTOR=1"}

	t.Run("a wrong password", func(t *testing.T) {
		var r result
		for range 5 { // a node on a busy machine may be too late to say so
			r = run(t, raced, []string{
				"SPILLWAY_STORE=cassandra", "SPILLWAY_CASSANDRA_HOSTS=" + c.hosts(),
				"SPILLWAY_CASSANDRA_USERNAME=cassandra", "SPILLWAY_CASSANDRA_PASSWORD=guessed",
			})
			if strings.Contains(r.stderr, "password") {
				break
			}
		}
		require.Equal(t, 1, r.code, r.stderr)
		r.requireOneLine(t)
		require.Contains(t, r.stderr, c.hosts())
		require.Contains(t, r.stderr, "password")
		require.NotContains(t, r.stderr, "guessed")
	})

	t.Run("the table of the data plane", func(t *testing.T) {
		s := c.on(t, raced, append(login, "SPILLWAY_WORKERS=4", "SPILLWAY_CASSANDRA_KEYSPACE=contract",
			fmt.Sprint("SPILLWAY_MAX_KEY_BYTES=", contracttest.MaxKeyBytes), fmt.Sprint("SPILLWAY_MAX_VALUE_BYTES=", contracttest.MaxValueBytes),
			fmt.Sprint("SPILLWAY_MAX_BATCH_BYTES=", contracttest.MaxBatchBytes))...)
		for _, strategy := range strategies.Names() {
			require.Equal(t, http.StatusOK, s.request(http.MethodPut, s.adminURL("/strategy"), `{"strategy":"`+strategy+`"}`).status)
			contracttest.Run(t, s.data, true)
		}
		s.stop()
	})

	s := c.on(t, raced, login...)
	binary := "/v0/entity?id=%00%FF%0A%27"
	type step struct {
		what, method, path, body string
		headers                  []string
		status                   int
		answer                   string
	}
	check := func(step step, a answer) {
		t.Helper()
		require.Equal(t, step.status, a.status, "%s: %s", step.what, a.body)
		if a.status < 500 && a.status != http.StatusPreconditionFailed {
			require.Equal(t, step.answer, a.body, step.what)
		}
	}
	for _, step := range []step{
		{what: "a key that is not there", method: http.MethodGet, path: entity("k"), status: 404},
		{what: "a new key", method: http.MethodPut, path: entity("k"), body: "one", status: 201},
		{what: "its value", method: http.MethodGet, path: entity("k"), status: 200, answer: "one"},
		{what: "the same by HEAD", method: http.MethodHead, path: entity("k"), status: 200},
		{what: "another value", method: http.MethodPut, path: entity("k"), body: "two", status: 201},
		{what: "replaces it", method: http.MethodGet, path: entity("k"), status: 200, answer: "two"},
		{what: "an empty value", method: http.MethodPut, path: entity("k"), status: 201},
		{what: "is a value", method: http.MethodGet, path: entity("k"), status: 200},
		{what: "deleting it", method: http.MethodDelete, path: entity("k"), status: 202},
		{what: "leaves nothing", method: http.MethodGet, path: entity("k"), status: 404},
		{what: "nor by HEAD", method: http.MethodHead, path: entity("k"), status: 404},
		{what: "deleting nothing", method: http.MethodDelete, path: entity("k"), status: 202},
		{what: "a key put at once after", method: http.MethodPut, path: entity("k"), body: "again", status: 201},
		{what: "is there", method: http.MethodGet, path: entity("k"), status: 200, answer: "again"},
		{what: "any bytes are a key", method: http.MethodPut, path: binary, body: "\x00\xff\n", status: 201},
		{what: "and a value", method: http.MethodGet, path: binary, status: 200, answer: "\x00\xff\n"},
		{what: "a value of the largest size", method: http.MethodPut, path: entity("big"), body: strings.Repeat("spillway", 1<<17), status: 201},
		{what: "comes back whole", method: http.MethodGet, path: entity("big"), status: 200, answer: strings.Repeat("spillway", 1<<17)},
		{what: "one of one replica", method: http.MethodGet, path: entity("k"), headers: []string{"Spillway-Consistency: one"}, status: 200, answer: "again"},
		{what: "a quorum of one", method: http.MethodPut, path: entity("q"), body: "q", headers: []string{"Spillway-Consistency: quorum"}, status: 201},
		{what: "all of one", method: http.MethodDelete, path: entity("q"), headers: []string{"Spillway-Consistency: all"}, status: 202},
		{what: "for a second without a condition", method: http.MethodPut, path: entity("x"), body: "x", headers: []string{"Spillway-Ttl: 1"}, status: 201},
		{what: "for years", method: http.MethodPut, path: entity("y"), body: "y", headers: []string{"Spillway-Ttl: 100000000"}, status: 201},
		{what: "for longer than a cluster keeps it by default", method: http.MethodPut, path: entity("z"), body: "z", headers: []string{"Spillway-Ttl: 630720000"}, status: 501},
		{what: "a batch", method: http.MethodPost, path: "/v0/entities", body: `{"op":"delete","key":"YQ=="}`, headers: []string{"Content-Type: application/x-ndjson"}, status: 501},
	} {
		check(step, s.insist(step.method, step.path, step.body, step.headers...))
	}
	expires := func(path string) {
		t.Helper()
		s.eventually(path+" expires", func() bool { return s.insist(http.MethodGet, path, "").status == http.StatusNotFound })
	}
	expires(entity("x"))
	// What has a condition is not sent again, as nobody knows whether the first has had an
	// effect: all begins anew, with another key.
	attempt := 0
	s.eventually("each request with a condition is answered", func() bool {
		attempt++
		path := entity(fmt.Sprint("c", attempt))
		for _, step := range []step{
			{what: "a key that must be new", method: http.MethodPut, body: "one", headers: []string{"If-None-Match: *"}, status: 201},
			{what: "is there", method: http.MethodGet, status: 200, answer: "one"},
			{what: "is not new any more", method: http.MethodPut, body: "two", headers: []string{"If-None-Match: *"}, status: 412},
			{what: "another value if it is this one", method: http.MethodPut, body: "two", headers: []string{"If-Match: " + quotedTag("one")}, status: 201},
			{what: "if it still were", method: http.MethodPut, body: "three", headers: []string{"If-Match: " + quotedTag("one")}, status: 412},
			{what: "another one yet", method: http.MethodPut, headers: []string{"If-Match: *"}, status: 201},
			{what: "an empty one that is it", method: http.MethodPut, body: "four", headers: []string{"If-Match: " + quotedTag("")}, status: 201},
			{what: "what is known already", method: http.MethodGet, headers: []string{"If-None-Match: " + quotedTag("four")}, status: 304},
			{what: "deleting another one", method: http.MethodDelete, headers: []string{"If-Match: " + quotedTag("three")}, status: 412},
			{what: "deleting nothing that is there", method: http.MethodDelete, headers: []string{"If-None-Match: *"}, status: 412},
			{what: "deleting this one", method: http.MethodDelete, headers: []string{"If-Match: " + quotedTag("four")}, status: 202},
			{what: "leaves nothing to match", method: http.MethodPut, body: "five", headers: []string{"If-Match: *"}, status: 412},
			{what: "nor to be this one", method: http.MethodPut, body: "five", headers: []string{"If-Match: " + quotedTag("four")}, status: 412},
			{what: "deleting what is not there", method: http.MethodDelete, headers: []string{"If-None-Match: *"}, status: 202},
			{what: "for a second", method: http.MethodPut, body: "six", headers: []string{"If-None-Match: *", "Spillway-Ttl: 1"}, status: 201},
			{what: "what has expired is not there", method: http.MethodPut, body: "seven", headers: []string{"If-None-Match: *"}, status: 201},
		} {
			if step.body == "seven" {
				expires(path)
			}
			a := s.request(step.method, s.dataURL(path), step.body, step.headers...)
			if a.status == http.StatusServiceUnavailable {
				return false
			}
			check(step, a)
		}
		return true
	})
	require.NotEmpty(t, s.insist(http.MethodGet, entity("y"), "").header.Get("Spillway-Ttl"))
	require.Equal(t, "5", s.insist(http.MethodHead, entity("k"), "").header.Get("Content-Length"))
	s.request(http.MethodGet, s.dataURL(entity("k")), "", "Spillway-Consistency: most").
		requireStoreProblem(t, http.StatusBadRequest, "Spillway-Consistency")
	s.request(http.MethodPut, s.dataURL(entity("k")), strings.Repeat("x", 1<<20+1)).
		requireStoreProblem(t, http.StatusRequestEntityTooLarge)
	s.request(http.MethodGet, s.dataURL("/v0/entities?start=a"), "").
		requireStoreProblem(t, http.StatusNotImplemented, "range", entity("")[:len("/v0/entity")])
	s.request(http.MethodPost, s.adminURL("/backup"), `{"dir":"/nowhere"}`, "Content-Type: application/json").
		requireStoreProblem(t, http.StatusNotImplemented, "nodetool")

	s.eventually("the store is writable", func() bool { return s.metrics()["spillway_store_writable"] == 1 })
	m := s.metrics()
	require.Positive(t, m.sum("spillway_store_operation_duration_seconds_count", `store="cassandra"`, `operation="get"`))
	require.Positive(t, m.sum("spillway_store_operation_duration_seconds_count", `store="cassandra"`, `operation="commit"`))
	for series := range m {
		for _, embedded := range []string{"compaction", "level", "cache", "fsync", "disk", "memtable"} {
			require.False(t, strings.HasPrefix(series, "spillway_store_") && strings.Contains(series, embedded), series)
		}
	}

	t.Run("the console", func(t *testing.T) {
		p := openPage(t, s.adminURL("/"), 1280)
		p.until(text("store-state") + ` === 'reachable' && ` + text("store") + `.includes('no read of late')`)
		s.eventually("a read is shown", func() bool { // for some seconds
			s.insist(http.MethodGet, entity("k"), "")
			return eval[bool](p, `/read: median, p99[\d.]+ .?s, [\d.]+ .?swrite: median, p99.*operations under way\d+ of at most 128/.test(`+text("store")+`)`)
		})
		require.NotContains(t, eval[string](p, text("store")), "compact", "what is of the embedded store alone")
	})

	// A node that hangs: nobody knows what became of a write, and a read is not a
	// key that is not there.
	c.nodes[0].freeze()
	hung := func(method, path, body string) (a answer) {
		t.Helper()
		s.eventually("the request is begun in time", func() bool {
			a = s.request(method, s.dataURL(path), body, "Spillway-Timeout-Ms: 1000")
			return a.shed() == ""
		})
		return a
	}
	hung(http.MethodPut, entity("hung"), "v").
		requireStoreProblem(t, http.StatusServiceUnavailable, "outcome of the write is unknown", "in time")
	hung(http.MethodGet, entity("k"), "").
		requireStoreProblem(t, http.StatusServiceUnavailable, "read in time")
	c.nodes[0].thaw()
	require.Equal(t, "again", s.insist(http.MethodGet, entity("k"), "").body)

	// A node that is dead: the write has had no effect.
	c.nodes[0].kill()
	s.eventually("the service is not ready", func() bool { return s.ready() == http.StatusServiceUnavailable })
	require.Zero(t, s.metrics()["spillway_store_writable"])
	s.request(http.MethodPut, s.dataURL(entity("lost")), "v").
		requireStoreProblem(t, http.StatusServiceUnavailable, "no effect")
	s.request(http.MethodGet, s.dataURL(entity("k")), "").
		requireStoreProblem(t, http.StatusServiceUnavailable, "too few replicas")

	c.nodes[0].start()
	c.nodes[0].await()
	s.eventually("the service is ready again", func() bool { return s.ready() == http.StatusOK })
	require.Equal(t, "again", s.insist(http.MethodGet, entity("k"), "").body)
	require.Equal(t, http.StatusNotFound, s.insist(http.MethodGet, entity("lost"), "").status)
	s.stop()

	// What is there is used as it is, also by a user who may not make anything.
	c.execute(
		"CREATE ROLE service WITH PASSWORD = 'word' AND LOGIN = true",
		"GRANT SELECT ON TABLE spillway.entities TO service",
		"GRANT MODIFY ON TABLE spillway.entities TO service",
		"CREATE KEYSPACE another WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE another.entities (name text PRIMARY KEY)",
	)
	service := []string{"SPILLWAY_STORE=cassandra", "SPILLWAY_CASSANDRA_HOSTS=" + c.hosts(), "SPILLWAY_CASSANDRA_USERNAME=service", "SPILLWAY_CASSANDRA_PASSWORD=word"}
	s = start(t, raced, service...)
	require.Equal(t, "again", s.insist(http.MethodGet, entity("k"), "").body)
	require.Equal(t, http.StatusCreated, s.insist(http.MethodPut, entity("k"), "other").status)

	// More replicas than nodes are no error, as nodes may still come; but they are said.
	three := start(t, raced, append(service, login[0], login[1], "SPILLWAY_CASSANDRA_KEYSPACE=three")...)
	require.Contains(t, three.stderr.String(), "more replicas than the datacentre has nodes")
	three.eventually("the node answers that it is too few", func() bool { // rather than being late
		a := three.request(http.MethodPut, three.dataURL(entity("k")), "v")
		a.requireStoreProblem(t, http.StatusServiceUnavailable)
		return strings.Contains(a.body, "no effect")
	})
	three.stop()

	// What is missing, or is something else, stops the start.
	for keyspace, says := range map[string]string{"missing": "make the keyspace", "another": "another.entities"} {
		r := run(t, raced, append(service, "SPILLWAY_CASSANDRA_KEYSPACE="+keyspace))
		require.Equal(t, 1, r.code, r.stderr)
		r.requireOneLine(t)
		require.Contains(t, r.stderr, says)
	}

	// What the cluster will not have is a failure of the service, and clear too.
	c.execute("REVOKE MODIFY ON TABLE spillway.entities FROM service")
	s.eventually("the right to write has gone", func() bool {
		return s.request(http.MethodPut, s.dataURL(entity("k")), "v").status == http.StatusInternalServerError
	})
	s.insist(http.MethodDelete, entity("k"), "").requireStoreProblem(t, http.StatusInternalServerError, "no MODIFY permission")
	require.Equal(t, http.StatusOK, s.insist(http.MethodGet, entity("k"), "").status)
	s.stop()

	// A keyspace that somebody drops is the reason that is given.
	s = c.on(t, raced, append(login, "SPILLWAY_CASSANDRA_KEYSPACE=dropped")...)
	require.Equal(t, http.StatusCreated, s.insist(http.MethodPut, entity("k"), "v").status)
	before := len(s.stderr.String())
	c.execute("DROP KEYSPACE dropped")
	s.eventually("the service is not ready", func() bool { return s.ready() == http.StatusServiceUnavailable })
	s.eventually("the reason is said", func() bool { return strings.Contains(s.stderr.String(), "the keyspace dropped is not there any more") })
	require.NotContains(t, s.stderr.String()[before:], "no node of the cluster answers")
}

// A cluster that is not there stops the start with one line.
func TestCassandra_Unreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.79:0") // nobody else takes a port of this address
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	r := run(t, raced, []string{"SPILLWAY_STORE=cassandra", "SPILLWAY_CASSANDRA_HOSTS=" + address})
	require.Equal(t, 1, r.code, r.stderr)
	r.requireOneLine(t)
	require.Contains(t, r.stderr, address)
	require.Contains(t, r.stderr, syscall.ECONNREFUSED.Error())
}
