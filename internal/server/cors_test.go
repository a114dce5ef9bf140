package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/server/contracttest"
)

const page = "https://app.example"

// underX lets browsers come to the host that the tests' requests name.
func underX(o *setup) { o.AllowedHosts = []string{"x"} }

// requireReadable checks that a browser lets the page read the answer.
func requireReadable(t *testing.T, a answer, what string) {
	t.Helper()
	require.Equal(t, []string{page}, a.header.Values("Access-Control-Allow-Origin"), what)
	require.Equal(t, []string{"Origin"}, a.header.Values("Vary"), what)
	for _, name := range []string{"ETag", "Retry-After", "Spillway-Shed", "Spillway-Ttl"} {
		require.Contains(t, a.header.Get("Access-Control-Expose-Headers"), name, what)
	}
}

func requireNotReadable(t *testing.T, a answer, what string) {
	t.Helper()
	for name := range a.header {
		require.NotContains(t, name, "Access-Control", what)
	}
}

func preflightOf(origin, rest string) string {
	return "OPTIONS /v0/entity?id=a" + host + "Origin: " + origin + "\nAccess-Control-Request-Method: PUT\n" + rest + "\n"
}

// Every answer to a page that may call can be read by it, and none to another. The
// answers are the same otherwise.
func TestCORS_EveryAnswer(t *testing.T) {
	someStrategies(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy, underX, func(o *setup) { o.CORSOrigins = []string{"http://other.example", page} })
		plain := serve(t, strategy, underX)
		c, p := s.dial(), plain.dial()
		for _, r := range contracttest.Rows() {
			head, body, found := strings.Cut(r.Request, "\n\n")
			if r.Raw != "" || r.Closes || !found || !strings.Contains(r.Request, host) {
				continue
			}
			method := r.Method()
			a, want := c.do(head+"\nOrigin: "+page+"\n\n"+body), p.do(r.Request)
			requireReadable(t, a, r.Name)
			require.Equal(t, want.status, a.status, r.Name)
			require.Equal(t, want.body, a.body, r.Name)
			require.Equal(t, want.length, a.length, r.Name)

			// The state is the one after the request.
			if method == "GET" || method == "HEAD" {
				for _, origin := range []string{"https://evil.example", "null", "", page + ".evil.example", "http://app.example"} {
					requireNotReadable(t, c.do(head+"\nOrigin: "+origin+"\n\n"+body), r.Name)
				}
				a = c.do(r.Request)
				requireNotReadable(t, a, r.Name)
				require.Equal(t, "Origin", a.header.Get("Vary"), "who keeps it must not give it to the page")
				requireNotReadable(t, p.do(head+"\nOrigin: "+page+"\n\n"+body), r.Name)
			}
		}
		c.requireOpen()
	})
}

// A page may read why its request was shed, and when to come again.
func TestCORS_Shed(t *testing.T) {
	t.Parallel()
	b := serveBusy(t, "fifo", underX, func(o *setup) {
		o.queue.Capacity = 1
		o.CORSOrigins = []string{page}
	})
	waits := b.dial()
	waits.send("GET /v0/entity?id=a" + host + "\n")
	b.waiting(1)
	a := b.dial().do("GET /v0/entity?id=a" + host + "Origin: " + page + "\n\n")
	require.Equal(t, 503, a.status)
	require.Equal(t, "full", a.header.Get("Spillway-Shed"))
	requireReadable(t, a, "shed")
	a = b.dial().do("HEAD /v0/entity?id=a" + host + "Origin: " + page + "\n\n")
	require.Equal(t, 503, a.status)
	requireReadable(t, a, "shed")
	b.free()
	require.Equal(t, 404, waits.read("GET").status)
}

// A browser asks without the token, and sends it then.
func TestCORS_Preflight(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", underX, func(o *setup) {
		o.CORSOrigins, o.Token = []string{page}, secure.NewToken("secret")
	})
	c := s.dial()
	a := c.do(preflightOf(page, "Access-Control-Request-Headers: authorization,if-match\n"))
	require.Equal(t, 204, a.status)
	require.Empty(t, a.body)
	require.Empty(t, a.header.Get("Content-Length"))
	requireReadable(t, a, "preflight")
	for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE"} {
		require.Contains(t, a.header.Get("Access-Control-Allow-Methods"), method)
	}
	for _, name := range []string{"Authorization", "Content-Type", "If-Match", "If-None-Match", "Spillway-Ttl", "Spillway-Timeout-Ms"} {
		require.Contains(t, a.header.Get("Access-Control-Allow-Headers"), name)
	}
	s.requireEvents(event{"fifo", "OPTIONS", 204, false})

	a = c.do("GET /v0/entity?id=a" + host + "Origin: " + page + "\nAuthorization: Bearer secret\n\n")
	require.Equal(t, 404, a.status)
	a = c.do("GET /v0/entity?id=a" + host + "Origin: " + page + "\n\n")
	require.Equal(t, 401, a.status)
	requireReadable(t, a, "the page learns that its token is wrong")
	for _, request := range []string{
		preflightOf("https://evil.example", ""), preflightOf("null", ""), preflightOf("", ""),
		preflightOf(page, "Origin: "+page+"\n"), // two
		"OPTIONS /v0/entity?id=a" + host + "Access-Control-Request-Method: PUT\n\n",
	} {
		a = c.do(request)
		require.Equal(t, 401, a.status, request)
		requireNotReadable(t, a, request)
	}
	a = c.do("OPTIONS /v0/entity?id=a" + host + "Origin: " + page + "\nAuthorization: Bearer secret\n\n")
	require.Equal(t, 405, a.status, "it is none without the method that is asked for")

	// Without such origins nothing is said of them.
	c = serve(t, "fifo", underX).dial()
	a = c.do(preflightOf(page, ""))
	require.Equal(t, 405, a.status)
	require.Empty(t, a.header.Get("Vary"))
	requireNotReadable(t, a, "preflight")
}

// A page may read that it gave a header twice, wherever its origin stands among the lines.
func TestCORS_HeaderGivenTwice(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", underX, func(o *setup) { o.CORSOrigins = []string{page} })
	const origin, twice = "Origin: " + page + "\n", "Spillway-Priority: 1\nSpillway-Priority: 2\n"
	for _, lines := range []string{origin + twice, twice + origin, twice + "If-Match: *\nIf-Match: *\n" + origin} {
		a := s.dial().do("GET /v0/entity?id=a" + host + lines + "\n")
		require.Equal(t, 400, a.status, lines)
		require.Contains(t, a.body, "Spillway-Priority is given more than once", lines)
		requireReadable(t, a, lines)
	}
	for _, lines := range []string{twice, twice + "Origin: https://evil.example\n", origin + twice + origin} {
		a := s.dial().do("GET /v0/entity?id=a" + host + lines + "\n")
		require.Equal(t, 400, a.status, lines)
		require.Equal(t, []string{"Origin"}, a.header.Values("Vary"), lines)
		requireNotReadable(t, a, lines)
	}
}
