package server

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/openapi"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/server/contracttest"
)

// The service answers as docs/openapi.yaml says, to every request of the table, and
// what the document describes is what the table asks for and gets.
func TestOpenAPI(t *testing.T) {
	d, err := openapi.Read()
	require.NoError(t, err)
	require.Equal(t, []string{pathEntities, pathEntity}, d.Paths(false))
	someStrategies(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		given, got := map[string]bool{}, map[string]bool{} // parameters, and statuses
		c := s.dial()
		for _, r := range contracttest.Rows() {
			if r.Raw != "" {
				continue
			}
			c.sendRaw(r.Text())
			req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(r.Text())))
			if err != nil {
				req = new(http.Request) // it is malformed for net/http as well
			}
			method := r.Method()
			a := c.read(method)
			if r.Closes {
				_ = c.conn.Close()
				c = s.dial()
			}
			if req.URL == nil || !slices.Contains(d.Paths(false), req.URL.Path) {
				continue
			}
			op := d.Operation(method, req.URL.Path)
			if op == nil {
				require.Equal(t, http.StatusMethodNotAllowed, a.status, r.Name)
				op = d.Operation(http.MethodGet, req.URL.Path)
				for _, name := range strings.Split(a.header.Get("Allow"), ", ") {
					require.NotNil(t, d.Operation(name, req.URL.Path), "%s is allowed", name)
				}
			}
			require.NoError(t, op.Check(method, a.status, a.header, a.body), r.Name)
			if a.status < 400 || a.status == 404 || a.status == 412 {
				checkRequest(t, op, req, method+" "+req.URL.Path, given)
			}
			got[method+" "+req.URL.Path+" "+http.StatusText(a.status)] = true
		}
		for _, path := range d.Paths(false) {
			for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "POST"} {
				op := d.Operation(method, path)
				if op == nil {
					continue
				}
				for _, status := range op.Statuses() {
					if slices.Contains([]int{401, 405, 501, 503, 504}, status) {
						continue // seen elsewhere: below, and with other stores
					}
					seen := got[method+" "+path+" "+http.StatusText(status)]
					if method == http.MethodHead { // which is a GET, whatever comes
						seen = seen || got["GET "+path+" "+http.StatusText(status)]
					}
					require.True(t, seen, "%s %s is answered %d", method, path, status)
				}
				for name := range op.Parameters("query") {
					require.True(t, given[method+" "+path+" "+name], "%s %s is asked with %s", method, path, name)
					require.Contains(t, parameterNames, name)
				}
			}
		}
	})
}

// checkRequest checks that a request which was served is as it is described.
func checkRequest(t *testing.T, op *openapi.Operation, req *http.Request, what string, given map[string]bool) {
	t.Helper()
	query, headers := op.Parameters("query"), op.Parameters("header")
	for name := range req.URL.Query() {
		given[what+" "+name] = true
		if !slices.Contains(parameterNames[:], name) {
			continue // which is ignored
		}
		require.Contains(t, query, name, "%s?%s", what, req.URL.RawQuery)
	}
	for name, required := range query {
		require.True(t, !required || given[what+" "+name], "%s without %s", what, name)
	}
	for name := range req.Header {
		if strings.HasPrefix(name, "Spillway-") || strings.HasPrefix(name, "If-") || name == "Priority" || name == "X-Request-Start" {
			require.True(t, slices.ContainsFunc(keys(headers), func(h string) bool { return strings.EqualFold(h, name) }), "%s with %s", what, name)
		}
	}
}

func keys(m map[string]bool) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	return names
}

// So are the answers of the queue, of the token and of a store that fails.
func TestOpenAPI_Refusals(t *testing.T) {
	t.Parallel()
	d, err := openapi.Read()
	require.NoError(t, err)
	check := func(method, target string, a answer, status int) {
		t.Helper()
		require.Equal(t, status, a.status)
		path, _, _ := strings.Cut(target, "?")
		op := d.Operation(method, path)
		require.Contains(t, op.Statuses(), status)
		require.NoError(t, op.Check(method, a.status, a.header, a.body))
	}
	b := serveBusy(t, "fifo", func(o *setup) { o.queue.Capacity = 1 })
	waits := b.dial()
	waits.send(get("/v0/entity?id=waits"))
	b.waiting(1)
	closed := serve(t, "fifo", func(o *setup) { o.Token = secure.NewToken("secret") })
	failing := serve(t, "fifo")
	failing.store.failAt("a", errUnwritable)
	short := "Spillway-Timeout-Ms: 1\n"
	full := b.dial()
	for _, r := range []struct{ method, target string }{
		{"GET", "/v0/entity?id=a"}, {"HEAD", "/v0/entity?id=a"}, {"PUT", "/v0/entity?id=a"}, {"DELETE", "/v0/entity?id=a"}, {"GET", "/v0/entities?start=a"},
	} {
		request := r.method + " " + r.target + host
		check(r.method, r.target, full.do(request+"\n"), 503)
		check(r.method, r.target, closed.dial().do(request+"\n"), 401)
		check(r.method, r.target, failing.dial().do(request+"\n"), 503)
	}
	b.free()
	require.Equal(t, 404, waits.read("GET").status)
	b = serveBusy(t, "fifo")
	for _, r := range []struct{ method, target string }{
		{"GET", "/v0/entity?id=a"}, {"HEAD", "/v0/entity?id=a"}, {"PUT", "/v0/entity?id=a"}, {"DELETE", "/v0/entity?id=a"}, {"GET", "/v0/entities?start=a"},
	} {
		check(r.method, r.target, b.dial().do(r.method+" "+r.target+host+short+"\n"), 504)
	}
	b.free()
}
