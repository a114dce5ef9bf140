package peers

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// open starts a peer over an empty store, and returns its planes' URLs.
func open(t *testing.T, o Options) (data, admin string) {
	t.Helper()
	o.Listen, o.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	o.Dir, o.CacheBytes = t.TempDir(), 8<<20
	p, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return "http://" + p.Addr().String(), "http://" + p.AdminAddr().String()
}

// ask sends one request over a connection of its own.
func ask(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Close = true
	resp, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(content)
}

// TestPeer_AnswersAsTheService asks every peer with a store what the service is
// asked in a comparison, and what only the service's users would ask.
func TestPeer_AnswersAsTheService(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Name: "plain"},
		{Name: "plain", Sync: true},
		// With a delay a request needs a place among the workers, and gives it
		// back: there is one.
		{Name: "plain", Delay: "exp:100us", Workers: 1},
		{Name: "nethttp"},
		{Name: "nethttp", Delay: "exp:100us", Workers: 1},
		{Name: "limiter"},
		{Name: "limiter", Sync: true, Delay: "exp:100us", Workers: 1},
	} {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			data, _ := open(t, o)
			for _, step := range []struct {
				method, target, body string
				status               int
				answer               string // of 200
			}{
				// What was never put is not there.
				{"GET", "/v0/entity?id=a", "", 404, ""},
				{"PUT", "/v0/entity?id=a", "one", 201, ""},
				{"GET", "/v0/entity?id=a", "", 200, "one"},
				// A put replaces, and other keys stay.
				{"PUT", "/v0/entity?id=b", "", 201, ""},
				{"PUT", "/v0/entity?id=a", "two", 201, ""},
				{"GET", "/v0/entity?id=a", "", 200, "two"},
				{"GET", "/v0/entity?id=b", "", 200, ""},
				// Keys are decoded as form values.
				{"PUT", "/v0/entity?id=x%20%C3%A4+y", "escaped", 201, ""},
				{"GET", "/v0/entity?id=x+%c3%a4%20y", "", 200, "escaped"},
				// To delete what is not there is no mistake.
				{"DELETE", "/v0/entity?id=a", "", 202, ""},
				{"DELETE", "/v0/entity?id=a", "", 202, ""},
				{"GET", "/v0/entity?id=a", "", 404, ""},

				{"GET", "/v0/entity", "", 400, ""},
				{"PUT", "/v0/entity?id=", "lost", 400, ""},
				{"GET", "/elsewhere?id=a", "", 400, ""},
			} {
				status, answer := ask(t, step.method, data+step.target, step.body)
				require.Equal(t, step.status, status, "%s %s", step.method, step.target)
				if step.status == http.StatusOK {
					require.Equal(t, step.answer, answer, step.target)
				} else if step.status != http.StatusBadRequest {
					require.Empty(t, answer, "%s %s", step.method, step.target)
				}
			}
		})
	}
}

// TestPeer_BareAnswersAtOnce: as many bytes as the others, and no store.
func TestPeer_BareAnswersAtOnce(t *testing.T) {
	t.Parallel()
	data, _ := open(t, Options{Name: "bare"})
	for method, want := range map[string]int{"GET": 200, "PUT": 201, "DELETE": 202, "PATCH": 405} {
		status, answer := ask(t, method, data+"/v0/entity?id=a", "value")
		require.Equal(t, want, status, method)
		require.Len(t, answer, map[string]int{"GET": 100}[method], method)
	}
}

// TestPeer_KeepsWhatItWasGiven: a peer that is stopped has written everything,
// unsynced or not.
func TestPeer_KeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	o := Options{Name: "plain", Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Dir: t.TempDir(), CacheBytes: 8 << 20}
	for i, want := range []int{404, 200} {
		p, err := Open(o)
		require.NoError(t, err)
		url := "http://" + p.Addr().String() + "/v0/entity?id=kept"
		status, _ := ask(t, "GET", url, "")
		require.Equal(t, want, status, "opened %d times", i+1)
		status, _ = ask(t, "PUT", url, "value")
		require.Equal(t, 201, status)
		require.NoError(t, p.Close())
	}
}

// TestPeer_ClosedAtOnce: nothing is left of a peer that is closed before it has
// begun to serve, which is for TestMain to see.
func TestPeer_ClosedAtOnce(t *testing.T) {
	t.Parallel()
	for _, name := range Names {
		for range 20 {
			p, err := Open(Options{Name: name, Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Dir: t.TempDir(), CacheBytes: 1 << 20})
			require.NoError(t, err)
			require.NoError(t, p.Close())
		}
	}
}

// TestPeer_AdminPlane: what the load lab reads of it.
func TestPeer_AdminPlane(t *testing.T) {
	t.Parallel()
	for _, name := range Names {
		_, admin := open(t, Options{Name: name})
		status, answer := ask(t, "GET", admin+"/strategy", "")
		require.Equal(t, 200, status)
		require.JSONEq(t, `{"strategy":"`+name+`","workers":0,"capacity":0}`, answer)
		status, _ = ask(t, "GET", admin+"/readyz", "")
		require.Equal(t, 200, status)
		status, answer = ask(t, "GET", admin+"/metrics", "")
		require.Equal(t, 200, status)
		require.Regexp(t, `^process_cpu_seconds_total [0-9.e-]+\ngo_memstats_mallocs_total [1-9]\d*\ngo_memstats_alloc_bytes_total [1-9]\d*\nprocess_resident_memory_bytes [1-9]\d*\n$`, answer)
	}
}

func TestOpen_RefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	good := Options{Name: "plain", Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", CacheBytes: 8 << 20}
	for want, change := range map[string]func(*Options){
		`no peer "nginx"`: func(o *Options) { o.Name = "nginx" },
		"listen tcp":      func(o *Options) { o.Listen = "127.0.0.1:none" },
		"not a delay":     func(o *Options) { o.Delay = "slow" },
		"tcp":             func(o *Options) { o.AdminListen = "127.0.0.1:none" },
	} {
		o := good
		o.Dir = t.TempDir()
		change(&o)
		_, err := Open(o)
		require.ErrorContains(t, err, want)
	}
}
