package peers

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// open starts a peer, over an empty store unless it has one, and returns its URL, and what
// stops it.
func open(t *testing.T, o Options) (url string, stop func()) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.CacheBytes = 8 << 20
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, o) }()
	stop = sync.OnceFunc(func() {
		end()
		require.NoError(t, <-served)
	})
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
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
		{Name: "nethttp"},
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
	dir := t.TempDir()
	for i, want := range []int{404, 200} {
		url, stop := open(t, Options{Name: "plain", Dir: dir})
		status, _ := ask(t, "GET", url+"/v0/entity?id=kept", "")
		require.Equal(t, want, status, "opened %d times", i+1)
		status, _ = ask(t, "PUT", url+"/v0/entity?id=kept", "value")
		require.Equal(t, 201, status)
		stop()
	}
}

// TestPeer_ClosedAtOnce: nothing is left of a peer that is closed before it has
// begun to serve, which is for TestMain to see.
func TestPeer_ClosedAtOnce(t *testing.T) {
	t.Parallel()
	for _, name := range Names {
		for range 20 {
			_, stop := open(t, Options{Name: name})
			stop()
		}
	}
}
