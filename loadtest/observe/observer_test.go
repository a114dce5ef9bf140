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
	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fake plays the admin plane of a service.
type fake struct {
	*httptest.Server
	token    string
	scraped  chan struct{} // one for each reading
	profiles http.HandlerFunc

	mu            sync.Mutex
	mallocs, shed int
	cpu           float64
}

// What a reading costs the fake.
const readingMallocs, readingBytes = 2500, 100_000

func newFake(t *testing.T) *fake {
	f := &fake{
		token: "secret", scraped: make(chan struct{}, 1000), cpu: 3, mallocs: 1_000_000,
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
		// All else is allocated in steps of a reading, too.
		fmt.Fprintf(w, "process_cpu_seconds_total %g\ngo_memstats_mallocs_total %d\ngo_memstats_alloc_bytes_total %d\n",
			f.cpu, f.mallocs, f.mallocs*readingBytes/readingMallocs)
		fmt.Fprintf(w, "# TYPE spillway_queue_depth gauge\nspillway_queue_depth{strategy=\"fifo\"} 7\nspillway_queue_depth{strategy=\"lifo\"} 2\n")
		fmt.Fprintf(w, "# TYPE spillway_workers_busy gauge\nspillway_workers_busy{strategy=\"fifo\"} 3\n")
		fmt.Fprintf(w, "# TYPE spillway_shed_total counter\n")
		for _, strategy := range []string{"fifo", "lifo"} {
			fmt.Fprintf(w, "spillway_shed_total{reason=\"full\",strategy=%q} %d\n", strategy, f.shed)
			fmt.Fprintf(w, "spillway_shed_total{reason=\"expired\",strategy=%q} 11\n", strategy)
		}
		f.mallocs += readingMallocs
		select {
		case f.scraped <- struct{}{}:
		default: // nobody has awaited any for long
		}
	})
	mux.HandleFunc("GET /debug/pprof/", func(w http.ResponseWriter, r *http.Request) { f.profiles(w, r) })
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

// open returns an observer of f that has read it for the last time a moment
// ago, and samples often.
func (f *fake) open(t *testing.T) *Observer {
	t.Helper()
	o, err := Open(t.Context(), f.URL+"/", f.token, nil)
	require.NoError(t, err)
	require.Equal(t, []float64{readingMallocs, readingBytes}, []float64{o.mallocs, o.bytes})
	o.every = time.Millisecond
	f.forget()
	return o
}

func (f *fake) forget() {
	for len(f.scraped) > 0 {
		<-f.scraped
	}
}

// work has f allocate, shed from two queues and use CPU. The readings that are
// awaited next have seen it.
func (f *fake) work(mallocs, shed int, cpu float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	f.mallocs += mallocs
	f.shed += shed
	f.cpu += cpu
}

// await waits for so many readings.
func (f *fake) await(readings int) {
	for range readings {
		<-f.scraped
	}
}

func TestObserver(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	o := f.open(t)
	for _, withProfiles := range []bool{true, false} {
		require.NoError(t, o.Start(t.Context(), 10*time.Second+999*time.Millisecond, withProfiles))
		require.ErrorContains(t, o.Start(t.Context(), 0, false), "already")
		f.await(2)
		f.work(123_000, 5, 0.25)
		f.await(3)
		seen, err := o.Stop(t.Context())
		require.NoError(t, err)

		capacity := 256
		require.Equal(t, "fifo", seen.Strategy)
		require.Equal(t, 4, seen.Workers)
		require.Equal(t, &capacity, seen.Capacity)
		require.Equal(t, 250*time.Millisecond, seen.CPU)
		if !withProfiles {
			// Without the readings, but for one that Stop may have broken off.
			require.InDelta(t, 123_000, seen.Mallocs, readingMallocs)
			require.InDelta(t, 123_000*readingBytes/readingMallocs, seen.AllocatedBytes, readingBytes)
		}
		require.GreaterOrEqual(t, len(seen.Samples), 3)
		for i, s := range seen.Samples {
			require.InDelta(t, 9, s.QueueDepth, 0)
			require.InDelta(t, 3, s.WorkersBusy, 0)
			if i > 0 {
				require.Greater(t, s.At, seen.Samples[i-1].At)
			}
		}
		require.Equal(t, Sample{QueueDepth: 9, WorkersBusy: 3, Shed: map[string]float64{}}, seen.Samples[0])
		require.Equal(t, map[string]float64{"full": 10}, seen.Samples[len(seen.Samples)-1].Shed)
		want := map[profiles.Kind][]byte{}
		if withProfiles {
			want = map[profiles.Kind][]byte{
				profiles.CPU:    []byte("/debug/pprof/profile?seconds=10"),
				profiles.Allocs: []byte("/debug/pprof/allocs?seconds=10"),
				profiles.Mutex:  []byte("/debug/pprof/mutex?seconds=10"),
				profiles.Block:  []byte("/debug/pprof/block?seconds=10"),
			}
		}
		require.Equal(t, want, seen.Profiles)

		_, err = o.Stop(t.Context())
		require.ErrorContains(t, err, "no window")
		f.forget()
	}
}

// TestObserver_AllocationsBesideProfiles has a service that allocates as much
// between two readings as a reading does, and very much more for profiles.
func TestObserver_AllocationsBesideProfiles(t *testing.T) {
	t.Parallel()
	at := time.Now()
	reading := func(seconds float64, nth, mallocs int) *reading {
		return &reading{
			at: at.Add(time.Duration(seconds * float64(time.Second))), nth: nth,
			mallocs: float64(mallocs), bytes: float64(40 * mallocs),
		}
	}
	o := &Observer{mallocs: 2500, bytes: 40 * 2500}
	w := &window{first: reading(0, 0, 0), last: reading(5, 5, 70_000)}
	mallocs, bytes := o.allocated(w)
	require.InDelta(t, 70_000-5*2500, mallocs, 0, "no profiles are taken")
	require.InDelta(t, 40*mallocs, bytes, 0)

	w.calm[0] = reading(1, 1, 22_500)
	w.calm[1] = w.calm[0]
	mallocs, _ = o.allocated(w)
	require.InDelta(t, 70_000-5*2500, mallocs, 0, "the window is too short")

	w.calm[1] = reading(4, 4, 37_500)
	mallocs, bytes = o.allocated(w)
	require.InDelta(t, 5*2500, mallocs, 1e-6)
	require.InDelta(t, 40*mallocs, bytes, 1e-6)
}

func TestObserver_ServiceDies(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	died := make(chan struct{})
	f.profiles = func(http.ResponseWriter, *http.Request) {
		<-died
		panic(http.ErrAbortHandler) // closes the connection
	}
	o := f.open(t)
	require.NoError(t, o.Start(t.Context(), time.Second, true))
	f.work(0, 1, 0.5)
	f.await(4) // so that the work is in one of them that has been answered
	close(died)
	f.Close()

	seen, err := o.Stop(t.Context())
	require.ErrorContains(t, err, f.URL)
	require.NotContains(t, err.Error(), "\n")
	require.Equal(t, 500*time.Millisecond, seen.CPU, "what was seen until then")
	require.GreaterOrEqual(t, len(seen.Samples), 3)
	require.Empty(t, seen.Profiles)
}

func TestObserver_ServiceStartedAnew(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	o := f.open(t)
	require.NoError(t, o.Start(t.Context(), 0, false))
	f.await(2)
	f.work(-900_000, 0, -2.5)
	f.await(3)
	f.work(5_000_000, 0, 100)
	f.await(3)
	seen, err := o.Stop(t.Context())
	require.ErrorIs(t, err, errRestarted)
	require.Zero(t, seen.CPU)
	require.Zero(t, seen.Mallocs)
	require.NotEmpty(t, seen.Samples)
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
			require.NoError(t, o.Start(ctx, time.Hour, true))
			f.await(1)
			f.work(0, 0, 0.5)
			if test.cancel {
				cancel()
			}
			seen, err := o.Stop(t.Context())
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
	})
	require.NoError(t, err)
	t.Cleanup(plane.Close)
	events := m.Queue(strategies.Spec{Name: "unbounded"})

	o, err := Open(t.Context(), "http://"+plane.Addr().String(), "", nil)
	require.NoError(t, err)
	require.Positive(t, o.mallocs)
	require.NoError(t, o.Start(t.Context(), time.Second, true))
	events.Shed(strategies.ReasonExpired)
	seen, err := o.Stop(t.Context())
	require.NoError(t, err)
	require.Equal(t, "unbounded", seen.Strategy)
	require.Nil(t, seen.Capacity)
	require.NotEmpty(t, seen.Samples)
	for _, k := range profiles.Kinds {
		p, err := profiles.Parse(seen.Profiles[k])
		require.NoError(t, err, "%s", k)
		require.Equal(t, k, profiles.Attribute(p, k).Kind)
		require.Positive(t, p.DurationNanos, "%s", k)
	}
	return seen
}

func FuzzReading(f *testing.F) {
	f.Add([]byte("process_cpu_seconds_total 1\ngo_memstats_mallocs_total 2\ngo_memstats_alloc_bytes_total 3\n"))
	f.Add([]byte("# TYPE spillway_shed_total counter\nspillway_shed_total{reason=\"full\",strategy=\"fifo\"} 1\n"))
	f.Add([]byte("spillway_shed_total{} NaN\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseReading(text)
		if err == nil {
			require.NotNil(t, r.shed)
		}
	})
}
