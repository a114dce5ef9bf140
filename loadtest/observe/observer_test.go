package observe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/admin"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fake plays the admin plane of a service.
type fake struct {
	*httptest.Server
	token    string
	profiles http.HandlerFunc

	mu      sync.Mutex
	cpu     float64
	started int
}

func newFake(t *testing.T) *fake {
	f := &fake{
		token: "secret", cpu: 3, started: 1_800_000_000,
		profiles: func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.String()) },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /strategy", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+f.token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"strategy":"fifo","workers":4,"capacity":256,"available":["fifo","lifo"]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(w, "process_cpu_seconds_total %g\nprocess_start_time_seconds %d\n", f.cpu, f.started)
	})
	mux.HandleFunc("GET /debug/pprof/", func(w http.ResponseWriter, r *http.Request) { f.profiles(w, r) })
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) open(t *testing.T) *Observer {
	t.Helper()
	o, err := Open(t.Context(), f.URL+"/", f.token, nil)
	require.NoError(t, err)
	return o
}

// work has f use CPU.
func (f *fake) work(cpu float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cpu += cpu
}

func TestObserver(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	o := f.open(t)
	for _, seconds := range []int{10, 0} {
		seen, err := o.Watch(t.Context(), seconds, func() { f.work(0.25) })
		require.NoError(t, err)

		require.Equal(t, "fifo", seen.Strategy)
		require.Equal(t, 4, seen.Workers)
		require.Equal(t, new(256), seen.Capacity)
		require.Equal(t, 250*time.Millisecond, seen.CPU)
		require.Positive(t, seen.Length)
		want := map[profiles.Kind][]byte{}
		if seconds > 0 {
			want = map[profiles.Kind][]byte{
				profiles.CPU:    []byte("/debug/pprof/profile?seconds=10"),
				profiles.Allocs: []byte("/debug/pprof/allocs?seconds=10"),
				profiles.Mutex:  []byte("/debug/pprof/mutex?seconds=10"),
				profiles.Block:  []byte("/debug/pprof/block?seconds=10"),
			}
		}
		require.Equal(t, want, seen.Profiles)
	}
}

func TestObserver_ServiceDies(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	died := make(chan struct{})
	f.profiles = func(http.ResponseWriter, *http.Request) {
		<-died
		panic(http.ErrAbortHandler) // closes the connection
	}
	seen, err := f.open(t).Watch(t.Context(), 1, func() {
		close(died)
		f.Close()
	})
	require.ErrorContains(t, err, f.URL)
	require.NotContains(t, err.Error(), "\n")
	require.Equal(t, "fifo", seen.Strategy)
	require.Zero(t, seen.Length, "there is no second reading")
	require.Empty(t, seen.Profiles)
}

// It is another process, even if that has used more CPU by then.
func TestObserver_ServiceStartedAnew(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	seen, err := f.open(t).Watch(t.Context(), 0, func() {
		f.work(100)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.started++
	})
	require.ErrorIs(t, err, errRestarted)
	require.Zero(t, seen.CPU)
	require.Zero(t, seen.Length)
}

func TestObserver_NoProfiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		why    string
		answer http.HandlerFunc
		cancel bool
		want   string
	}{
		{"one that never comes is not waited for", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false,
			"gives no profiles 1ms after the end of the window"},
		{"a window that is broken off has none, which is no error", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, true, ""},
		{"a refusal says why", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Could not enable CPU profiling: cpu profiling already in use", http.StatusInternalServerError)
		}, false, "500 Internal Server Error to GET /debug/pprof/"},
	} {
		t.Run(test.why, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.profiles = test.answer
			o := f.open(t)
			o.patience = time.Minute
			if strings.Contains(test.want, "1ms") {
				o.patience = time.Millisecond
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seen, err := o.Watch(ctx, 3600, func() {
				f.work(0.5)
				if test.cancel {
					cancel()
				}
			})
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
			require.Equal(t, 500*time.Millisecond, seen.CPU)
			require.Empty(t, seen.Profiles)
		})
	}
}

func TestOpen_BadPlane(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	gone := "http://" + testenv.Nobody(t)
	answers := func(status int, strategy, metrics string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			if r.URL.Path == "/metrics" {
				_, _ = io.WriteString(w, metrics)
				return
			}
			_, _ = io.WriteString(w, strategy)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	const fifo = `{"strategy":"fifo","workers":4,"capacity":null}`
	for _, test := range []struct {
		url, token string
		want       []string
	}{
		{"127.0.0.1:6060", "", []string{`"127.0.0.1:6060"`, "http://host:port"}},
		{"ftp://127.0.0.1:6060", "", []string{"http://host:port"}},
		{"", "", []string{"http://host:port"}},
		{gone, "secret", []string{gone, "connection refused"}},
		{f.URL, "", []string{f.URL, "bearer token"}},
		{f.URL, "wrong", []string{f.URL, "bearer token"}},
		{answers(404, `{"title":"Not Found","detail":"there is no /strategy"}`, ""), "", []string{"404 Not Found to GET /strategy: there is no /strategy"}},
		{answers(502, "<html>\nno", ""), "", []string{"502 Bad Gateway", "<html>"}},
		{answers(200, "<html>hello</html>", ""), "", []string{"not the admin plane of a Spillway", "hello"}},
		{answers(200, "{}", ""), "", []string{"not the admin plane of a Spillway"}},
		{answers(200, fifo, "go_info 1\n"), "", []string{"no process_cpu_seconds_total"}},
		{answers(200, fifo, "<html>hello</html>"), "", []string{"the metrics at http://"}},
	} {
		_, err := Open(t.Context(), test.url, test.token, nil)
		for _, want := range test.want {
			require.ErrorContains(t, err, want)
		}
		require.NotContains(t, err.Error(), "\n")
	}
}

// dispatcher is one of which only the status matters.
type dispatcher struct{}

func (dispatcher) Gauge() dispatch.Gauge {
	return dispatch.Gauge{Strategy: "unbounded", Workers: 2, Capacity: strategies.Unbounded}
}
func (dispatcher) Switch(string) error              { return nil }
func (dispatcher) SetObserve(bool) error            { return nil }
func (dispatcher) Objective() *strategies.Objective { return new(strategies.Objective) }
func (dispatcher) Pools() []dispatch.Gauge          { return nil }

func (dispatcher) gauge() dispatch.Gauge { return dispatch.Gauge{Strategy: "unbounded"} }

// TestObserver_Service observes the real admin plane, in this process: of a service
// over Pebble, and of one whose store is elsewhere.
func TestObserver_Service(t *testing.T) {
	t.Parallel()
	for store, stats := range map[string]func() metrics.StoreStats{
		"cassandra": nil,
		"pebble":    func() metrics.StoreStats { return metrics.StoreStats{} },
	} {
		t.Run(store, func(t *testing.T) { // not in parallel: a process has one CPU profile at a time
			m := metrics.New(metrics.Options{Store: store})
			m.Watch(metrics.Sources{
				Gauge: dispatcher{}.gauge, Connections: func() int { return 0 }, Writable: func() error { return nil }, Dropped: func() uint64 { return 0 }, Store: stats,
			})
			seen := observeService(t, m)
			require.Equal(t, store == "pebble", seen.Pebble)
		})
	}
}

func observeService(t *testing.T, m *metrics.Metrics) *Observation {
	t.Helper()
	plane, err := admin.Open(admin.Options{
		Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Dispatcher: dispatcher{}, MaxConnections: 8, Metrics: m.Handler(), Live: m.Live,
		Tuner: tuning.New(nil, tuning.Settings{Strategy: "unbounded"}, slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(plane.Close)

	o, err := Open(t.Context(), "http://"+plane.Addr().String(), "", nil)
	require.NoError(t, err)
	seen, err := o.Watch(t.Context(), 1, func() {})
	require.NoError(t, err)
	require.Equal(t, "unbounded", seen.Strategy)
	require.Nil(t, seen.Capacity)
	require.Positive(t, seen.Length)
	for _, k := range profiles.Kinds {
		p, err := profiles.Parse(seen.Profiles[k])
		require.NoError(t, err, "%s", k)
		require.Positive(t, p.DurationNanos, "%s", k)
	}
	return seen
}

func FuzzReading(f *testing.F) {
	f.Add([]byte("process_cpu_seconds_total 1\nprocess_start_time_seconds 2\n"))
	f.Add([]byte("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total{a=\"b\"} NaN\nprocess_start_time_seconds 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseReading(text)
		if err == nil {
			require.GreaterOrEqual(t, r.cpu, 0.)
			require.GreaterOrEqual(t, r.started, 0.)
		}
	})
}
