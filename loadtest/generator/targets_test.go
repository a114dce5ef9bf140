package generator

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

func TestRun_SendsTargets(t *testing.T) { onEachEngine(t, testSendsTargets) }

func testSendsTargets(t *testing.T, engine workload.Engine) {
	t.Parallel()
	var mu sync.Mutex
	wrong := map[string]bool{}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		ok := false
		switch r.Method + " " + r.RequestURI {
		case "GET /a%2Fb?q=x%20y&z": // as it was written
			ok = r.Header.Get("X-A") == "all" && r.Header.Get("X-B") == "" && r.ContentLength == 0
			_, _ = io.WriteString(w, "hello")
		case "POST /things":
			ok = r.Header.Get("X-A") == "own" && r.Header.Get("X-B") == "b" && string(body) == "{}" && r.ContentLength == 2 && len(r.Header["X-A"]) == 1
			w.WriteHeader(http.StatusFound)
		case "HEAD /there":
			ok = true
			w.Header().Set("Content-Length", "5")
		case "POST /empty":
			ok = r.ContentLength == 0 && r.Header.Get("Content-Length") == "0"
			w.WriteHeader(http.StatusTeapot)
		}
		if r.Host != "the.host" || r.UserAgent() != "" || r.Header.Get("Spillway-Client") != "c" {
			ok = false
		}
		if !ok {
			mu.Lock()
			wrong[r.Method+" "+r.RequestURI] = true
			mu.Unlock()
		}
	})
	o := workload.Options{
		Engine: engine, URL: url, Headers: []string{"X-A: all", "Host: the.host"}, Clients: "c=1", Rate: 1000, Connections: 4, SLO: time.Minute,
		Warmup: 50 * time.Millisecond, Duration: 500 * time.Millisecond,
		Targets: []workload.Target{
			{Method: "GET", URL: "/a%2Fb?q=x%20y&z", Weight: 3},
			{Method: "POST", URL: url + "/things", Headers: []string{"x-a: own", "X-B: b"}, Body: []byte("{}")},
			{Method: "HEAD", URL: "/there"},
			{Method: "POST", URL: "/empty"},
			{Method: "HEAD", URL: "/there"}, // twice as often
		},
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, wrong)
	requireConserved(t, r)
	require.Equal(t, engine, r.Engine)
	require.Equal(t, url, r.URL)
	require.Positive(t, r.Protocols["HTTP/1.1"])
	require.Len(t, r.Targets, 4, "figures are by name")
	var all int64
	for i, want := range []struct {
		name, status string
		good         bool
	}{
		{"GET /a%2Fb?q=x%20y&z", "200", true},
		{"POST " + url + "/things", "302", true},
		{"HEAD /there", "200", true},
		{"POST /empty", "418", false},
	} {
		got := r.Targets[i]
		all += got.Requests
		require.Equal(t, want.name, got.Target)
		require.Equal(t, map[string]int64{want.status: got.Requests}, got.Status)
		require.Equal(t, got.Requests, got.Latency.Count)
		require.Equal(t, want.good, got.Good > 0)
		require.Equal(t, got.Good, got.ServedLatency.Count)
		require.Equal(t, got.Share, r.Shares[want.name])
	}
	require.Equal(t, r.Requests, all)
	require.Equal(t, r.Served(), all-r.Targets[3].Requests)
	require.Greater(t, r.Targets[0].Requests, r.Targets[1].Requests)

	o.Good = "418"
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, r.Status["418"], r.Served())
	require.Equal(t, r.Targets[3].Requests, r.Targets[3].Good)
	require.Zero(t, r.Targets[0].Good)
}

// What targets time out is counted to each of them.
func TestRun_CountsTimeoutsByTarget(t *testing.T) { onEachEngine(t, testCountsTimeoutsByTarget) }

func testCountsTimeoutsByTarget(t *testing.T, engine workload.Engine) {
	t.Parallel()
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
	})
	const timeout = 50 * time.Millisecond
	r, err := Run(t.Context(), workload.Options{
		Engine: engine, URL: url, Rate: 200, Duration: 500 * time.Millisecond, Connections: 64, Timeout: timeout,
		Targets: []workload.Target{{Method: "GET", URL: "/"}, {Method: "GET", URL: "/slow"}},
	})
	require.NoError(t, err)
	requireConserved(t, r)
	slow := r.Targets[1]
	require.Equal(t, slow.Requests, slow.Errors)
	require.InDelta(t, timeout.Seconds()*1000, slow.Latency.P50, 1)
	require.Equal(t, slow.Requests, slow.Latency.Count)
}

// An upgrade is an answer, though the connection may then go on for ever.
func TestRun_TakesAnUpgradeForAnAnswer(t *testing.T) { onEachEngine(t, testTakesAnUpgradeForAnAnswer) }

func testTakesAnUpgradeForAnAnswer(t *testing.T, engine workload.Engine) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
			_, _ = io.Copy(io.Discard, c) // until the client has gone
			_ = c.Close()
		}
	})
	r, err := Run(t.Context(), workload.Options{
		Engine: engine, URL: url, Count: 20, Connections: 2, Good: "101", Headers: []string{"Upgrade: echo"},
		Targets: []workload.Target{{Method: "GET", URL: "/"}},
	})
	require.NoError(t, err)
	requireConserved(t, r)
	require.Equal(t, map[string]int64{"101": 20}, r.Status)
	require.EqualValues(t, 20, r.Served())
}

func TestRun_OverTLSAndHTTP2(t *testing.T) {
	t.Parallel()
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}
	for name, tt := range map[string]struct {
		tls, http2 bool // what the server has
		http       workload.HTTP
		insecure   bool
		proto      string
	}{
		"TLS":               {tls: true, proto: "HTTP/1.1"},
		"TLS and HTTP/2":    {tls: true, http2: true, proto: "HTTP/2.0"},
		"HTTP/1.1 asked":    {tls: true, http2: true, http: workload.HTTP1, insecure: true, proto: "HTTP/1.1"},
		"HTTP/2 asked":      {tls: true, http2: true, http: workload.HTTP2, insecure: true, proto: "HTTP/2.0"},
		"h2c":               {http2: true, http: workload.HTTP2, proto: "HTTP/2.0"},
		"HTTP/1.1 in clear": {http2: true, http: workload.HTTP1, proto: "HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(handler))
			server.EnableHTTP2 = tt.http2
			o := workload.Options{
				Rate: 300, Duration: 300 * time.Millisecond, Connections: 4, HTTP: tt.http, Insecure: tt.insecure, SLO: time.Minute,
				Targets: []workload.Target{{Method: "POST", URL: "/", Body: make([]byte, 100_000)}, {Method: "GET", URL: "/"}},
			}
			if tt.tls {
				server.StartTLS()
				o.CAFile = filepath.Join(t.TempDir(), "ca.pem")
				authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
				require.NoError(t, os.WriteFile(o.CAFile, authority, 0o600))
				if tt.insecure {
					o.CAFile = ""
				}
			} else {
				server.Config.Protocols = new(http.Protocols)
				server.Config.Protocols.SetHTTP1(true)
				server.Config.Protocols.SetUnencryptedHTTP2(tt.http2)
				server.Start()
				o.Engine = workload.Portable
			}
			t.Cleanup(server.Close)
			o.URL = server.URL
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			requireConserved(t, r)
			require.Empty(t, r.Errors)
			require.Equal(t, map[string]int64{"200": r.Requests}, r.Status)
			require.Equal(t, workload.Portable, r.Engine)
			require.Len(t, r.Protocols, 1)
			require.GreaterOrEqual(t, r.Protocols[tt.proto], r.Requests)
			require.EqualValues(t, r.Requests, r.Targets[0].Good+r.Targets[1].Good)
		})
	}
}

// A request that is given up over HTTP/2 is counted at its time-out, as over HTTP/1.1.
func TestRun_GivesUpOverHTTP2(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	const timeout = 50 * time.Millisecond
	r, err := Run(t.Context(), workload.Options{
		URL: server.URL, Insecure: true, Rate: 200, Duration: 300 * time.Millisecond, Connections: 2, Timeout: timeout, Mix: workload.Mix{Get: 1},
	})
	require.NoError(t, err)
	requireConserved(t, r)
	require.Equal(t, r.Requests, r.Errors[result.ErrorTimeout]+r.Errors[result.ErrorUnsent])
	require.Positive(t, r.Errors[result.ErrorTimeout])
	require.InDelta(t, timeout.Seconds()*1000, r.Latency.P50, 0.1)
}

func TestRun_SaysWhatCannotBeCarried(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	server.TLS.MinVersion = tls.VersionTLS12
	t.Cleanup(server.Close)
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	missing := filepath.Join(t.TempDir(), "ca.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	target := func(url string) []workload.Target { return []workload.Target{{Method: "GET", URL: url}} }
	for name, tt := range map[string]struct {
		o    workload.Options
		says string
	}{
		"an unknown authority": {workload.Options{URL: server.URL}, "certificate signed by unknown authority (--ca-file names who may vouch for it, --insecure takes any)"},
		"no TLS":               {workload.Options{URL: "https" + plain[len("http"):]}, "cannot connect: "},
		"no file":              {workload.Options{URL: server.URL, CAFile: missing}, "ca-file: open " + missing},
		"no certificate":       {workload.Options{URL: server.URL, CAFile: empty}, "ca-file: " + empty + " has no certificate"},
		"epoll over TLS":       {workload.Options{URL: server.URL, Engine: workload.Epoll}, "engine: epoll cannot send this: it "},
		"epoll and HTTP/2":     {workload.Options{URL: plain, Engine: workload.Epoll, HTTP: workload.HTTP2}, "engine: epoll cannot send this: it "},
		"no scheme":            {workload.Options{Targets: target("127.0.0.1:80/")}, "target: \"GET 127.0.0.1:80/\": the URL is neither"},
		"no URL to be under":   {workload.Options{Targets: target("/x")}, "url: \"\" is not of the form"},
		"another scheme":       {workload.Options{Targets: target("ftp://a/")}, "the URL is neither"},
		"a port":               {workload.Options{Targets: target("http://127.0.0.1:99999/")}, "the port is not 1 to 65535"},
		"several servers": {workload.Options{Targets: append(target("http://127.0.0.1:1/"), target("http://127.0.0.1:2/")...)},
			"target: \"GET http://127.0.0.1:2/\": it is of another server than http://127.0.0.1:1, and a load is sent to one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Run(t.Context(), tt.o)
			require.ErrorContains(t, err, tt.says)
		})
	}
}
