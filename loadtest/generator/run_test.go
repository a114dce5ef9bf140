package generator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

func serve(t *testing.T, handler http.HandlerFunc) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return server.URL
}

// onEachEngine runs a test on every engine that is there: they keep the same promises.
func onEachEngine(t *testing.T, test func(*testing.T, workload.Engine)) {
	t.Parallel()
	engines := []workload.Engine{workload.Portable}
	if hasEpoll {
		engines = append(engines, workload.Epoll)
	}
	for _, engine := range engines {
		t.Run(engine.String(), func(t *testing.T) { test(t, engine) })
	}
}

// requireConserved checks that each request of the window is counted once.
func requireConserved(t *testing.T, r *result.Result) {
	t.Helper()
	var status, failed, operations int64
	for _, n := range r.Status {
		status += n
	}
	for _, n := range r.Errors {
		failed += n
	}
	for _, n := range r.Operations {
		operations += n
	}
	require.Equal(t, r.Requests, status+failed)
	require.Equal(t, r.Requests, operations)
	require.InDelta(t, float64(r.Requests), r.OfferedRPS*r.Seconds, 0.5)
	h, err := r.Histogram()
	require.NoError(t, err)
	require.Equal(t, r.Requests, h.TotalCount())
	var offered, good int64
	for _, second := range r.Timeline {
		offered += second.Offered
		good += second.Good
	}
	require.Equal(t, r.Requests, offered)
	require.InDelta(t, float64(good), r.GoodputRPS*r.Seconds, 0.5)
}

// above counts what a histogram holds of at least d.
func above(h *hdrhistogram.Histogram, d time.Duration) (n int64) {
	for _, bar := range h.Distribution() {
		if bar.From >= d.Microseconds() {
			n += bar.Count
		}
	}
	return n
}

func TestRun_CountsEveryRequestOnce(t *testing.T) { onEachEngine(t, testCountsEveryRequestOnce) }

func testCountsEveryRequestOnce(t *testing.T, engine workload.Engine) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.Method + r.URL.Path {
		case "PUT/v0/entity":
			w.WriteHeader(http.StatusCreated)
		case "GET/v0/entity":
			w.WriteHeader(http.StatusNotFound)
		case "DELETE/v0/entity":
			w.Header().Set("Spillway-Shed", "full")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "GET/v0/entities":
			for range 3 {
				_, _ = fmt.Fprint(w, strings.Repeat("x", 3000))
				w.(http.Flusher).Flush()
			}
		}
	})
	for _, o := range []workload.Options{
		{Engine: engine, Rate: 2000, Connections: 8, Loops: 1},
		{Engine: engine, Rate: 2000, Connections: 9, Loops: 2, Arrivals: workload.Constant},
		{Engine: engine, Rate: 0, Connections: 8, Loops: 2},
	} {
		o.URL, o.Mix = url, workload.Mix{Put: 40, Get: 30, Delete: 20, Scan: 10}
		o.Warmup, o.Duration = 200*time.Millisecond, time.Second
		r, err := Run(t.Context(), o)
		require.NoError(t, err)
		require.Empty(t, r.Partial)
		require.Empty(t, r.Errors)
		requireConserved(t, r)
		require.Equal(t, r.Status["201"], r.Operations["put"])
		require.Equal(t, r.Status["404"], r.Operations["get"])
		require.Equal(t, r.Status["503"], r.Operations["delete"])
		require.Equal(t, r.Status["200"], r.Operations["scan"])
		require.Equal(t, map[string]int64{"full": r.Operations["delete"]}, r.Shed)
		if o.Rate > 0 {
			require.InDelta(t, 2000, r.OfferedRPS, 200)
		}
	}
}

// Between an answer and the next request a connection of a closed loop rests.
func TestRun_Thinks(t *testing.T) { onEachEngine(t, testThinks) }

func testThinks(t *testing.T, engine workload.Engine) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	o := workload.Options{Engine: engine, URL: url, Connections: 8, Loops: 2, Think: 50 * time.Millisecond, Mix: workload.Mix{Get: 1}, Duration: time.Second}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	requireConserved(t, r)
	require.LessOrEqual(t, r.OfferedRPS, 160.0)
	require.Greater(t, r.OfferedRPS, 16.0, "each goes on after it has thought, however slow the machine is")
	// It is over when its window is, not when all have thought.
	o.Think = time.Hour
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	require.Zero(t, r.Requests)
}

// A server that stands still for 400 ms of 2 s hits a fifth of the clients that
// come at their own times. A generator that waits for its connections notices
// one request a connection, and says that all is well.
func TestRun_AStallShowsInTheTail(t *testing.T) { onEachEngine(t, testAStallShowsInTheTail) }

func testAStallShowsInTheTail(t *testing.T, engine workload.Engine) {
	t.Parallel()
	const stall = 400 * time.Millisecond
	var requests atomic.Int64
	var gate sync.RWMutex
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 500 {
			gate.Lock()
			time.Sleep(stall)
			gate.Unlock()
		}
		gate.RLock()
		defer gate.RUnlock()
		_, _ = io.Copy(io.Discard, r.Body)
	})
	r, err := Run(t.Context(), workload.Options{Engine: engine, URL: url, Rate: 1000, Arrivals: workload.Constant, Duration: 2 * time.Second, Connections: 4})
	require.NoError(t, err)
	requireConserved(t, r)
	h, err := r.Histogram()
	require.NoError(t, err)
	require.GreaterOrEqual(t, above(h, stall/2), int64(150), "of the 200 that came in the first half of the stall")
	require.Greater(t, r.Latency.P99, 0.9*stall.Seconds()*1000)
	require.Greater(t, r.Latency.P999, 0.9*stall.Seconds()*1000)
	require.Less(t, r.UncorrectedLatency.P99, r.Latency.P99, "four connections have seen one slow answer each")
	t.Logf("p99 %.1f ms, p99.9 %.1f ms; uncorrected p99 %.1f ms, p99.9 %.1f ms",
		r.Latency.P99, r.Latency.P999, r.UncorrectedLatency.P99, r.UncorrectedLatency.P999)
}

func TestRun_GivesUpAfterTheTimeout(t *testing.T) { onEachEngine(t, testGivesUpAfterTheTimeout) }

func testGivesUpAfterTheTimeout(t *testing.T, engine workload.Engine) {
	t.Parallel()
	stuck := make(chan struct{})
	var hungUp atomic.Int64
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			hungUp.Add(1)
		case <-stuck:
		}
	})
	t.Cleanup(func() { close(stuck) })
	const timeout = 50 * time.Millisecond
	r, err := Run(t.Context(), workload.Options{Engine: engine, URL: url, Rate: 500, Mix: workload.Mix{Get: 1}, Duration: time.Second, Connections: 4, Timeout: timeout})
	require.NoError(t, err)
	requireConserved(t, r)
	require.Equal(t, r.Requests, r.Errors[result.ErrorTimeout]+r.Errors[result.ErrorUnsent])
	require.Positive(t, r.Errors[result.ErrorTimeout])
	require.InDelta(t, timeout.Seconds()*1000, r.Latency.P50, 0.1)
	require.InDelta(t, timeout.Seconds()*1000, r.Latency.Max, 0.1)
	require.Zero(t, r.ServedLatency.Max)
	require.Eventually(t, func() bool { return hungUp.Load() > 0 }, time.Minute, time.Millisecond, "who gives up hangs up")
}

func TestRun_TellsErrorsApart(t *testing.T) { onEachEngine(t, testTellsErrorsApart) }

func testTellsErrorsApart(t *testing.T, engine workload.Engine) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		kind    result.ErrorKind
	}{
		"closed in the midst of an answer": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
				_ = c.Close()
			}
		}, result.ErrorReset},
		"another protocol": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n\r\n")
				_ = c.Close()
			}
		}, result.ErrorProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), workload.Options{Engine: engine, URL: serve(t, test.handler), Rate: 200, Mix: workload.Mix{Get: 1}, Duration: 500 * time.Millisecond, Connections: 4})
			require.NoError(t, err)
			requireConserved(t, r)
			require.Equal(t, map[result.ErrorKind]int64{test.kind: r.Requests}, r.Errors)
		})
	}
}

func TestRun_OpensAgainWhatTheServerCloses(t *testing.T) {
	onEachEngine(t, testOpensAgainWhatTheServerCloses)
}

func testOpensAgainWhatTheServerCloses(t *testing.T, engine workload.Engine) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	r, err := Run(t.Context(), workload.Options{Engine: engine, URL: url, Rate: 300, Mix: workload.Mix{Get: 1}, Duration: 500 * time.Millisecond, Connections: 4})
	require.NoError(t, err)
	requireConserved(t, r)
	require.Equal(t, map[string]int64{"200": r.Requests}, r.Status)
}

func TestRun_CarriesLargeValuesBothWays(t *testing.T) {
	onEachEngine(t, testCarriesLargeValuesBothWays)
}

func testCarriesLargeValuesBothWays(t *testing.T, engine workload.Engine) {
	t.Parallel()
	var received atomic.Int64
	value := make([]byte, 1<<20)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPut {
			received.Add(n)
			w.WriteHeader(http.StatusCreated)
			return
		}
		_, _ = w.Write(value)
	})
	r, err := Run(t.Context(), workload.Options{Engine: engine, URL: url, Count: 40, Connections: 4, ValueSize: workload.Sizes{Min: 1 << 20, Max: 1 << 20}})
	require.NoError(t, err)
	requireConserved(t, r)
	require.EqualValues(t, 40, r.Requests)
	require.Equal(t, r.Status["201"]<<20, received.Load())
	require.Equal(t, r.Status["200"], r.Operations["get"])
}

func TestRun_SendsTheSameRequestsForTheSameSeed(t *testing.T) {
	onEachEngine(t, testSendsTheSameRequestsForTheSameSeed)
}

func testSendsTheSameRequestsForTheSameSeed(t *testing.T, engine workload.Engine) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(r.Method, r.URL, r.Header["Spillway-Priority"], string(body)))
	})
	sent := func(seed uint64, loops int) []string {
		mu.Lock()
		seen = nil
		mu.Unlock()
		_, err := Run(t.Context(), workload.Options{
			Engine: engine,
			URL:    url, Count: 500, Connections: 8, Loops: loops, Seed: seed, Mix: workload.Mix{Put: 1, Get: 1, Delete: 1, Scan: 1},
			Distribution: workload.Zipf, ValueSize: workload.Sizes{Min: 1, Max: 50}, Priority: workload.Priorities{0: 1, 5: 1},
		})
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(seen)
		return seen
	}
	first := sent(1, 1)
	require.Len(t, first, 500)
	require.Equal(t, first, sent(1, 3))
	require.NotEqual(t, first, sent(2, 1))
}

func TestRun_TellsTheServerWhatIsLeftOfTheTimeout(t *testing.T) {
	onEachEngine(t, testTellsTheServerWhatIsLeftOfTheTimeout)
}

func testTellsTheServerWhatIsLeftOfTheTimeout(t *testing.T, engine workload.Engine) {
	t.Parallel()
	var wrong atomic.Int64
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var left int
		if _, err := fmt.Sscan(r.Header.Get("Spillway-Timeout-Ms"), &left); err != nil || left < 1 || left > 2000 || r.Header.Get("X-A") != "b" {
			wrong.Add(1)
		}
	})
	r, err := Run(t.Context(), workload.Options{
		Engine: engine,
		URL:    url, Count: 100, Connections: 2, Timeout: 2 * time.Second, TimeoutHeader: true, Headers: []string{"X-A: b"}, Mix: workload.Mix{Get: 1},
	})
	require.NoError(t, err)
	require.EqualValues(t, 100, r.Requests)
	require.Zero(t, wrong.Load())
}

func TestRun_KeepsWhatItHasWhenTheServerGoes(t *testing.T) {
	onEachEngine(t, testKeepsWhatItHasWhenTheServerGoes)
}

func testKeepsWhatItHasWhenTheServerGoes(t *testing.T, engine workload.Engine) {
	t.Parallel()
	var requests atomic.Int64
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == 200 {
			close(gone)
		}
	}))
	defer server.Close()
	go func() {
		<-gone
		_ = server.Listener.Close()
		server.CloseClientConnections()
	}()
	r, err := Run(t.Context(), workload.Options{Engine: engine, URL: server.URL, Rate: 500, Mix: workload.Mix{Get: 1}, Duration: time.Minute, Connections: 4})
	require.NoError(t, err)
	require.Contains(t, r.Partial, "connection refused")
	requireConserved(t, r)
	require.GreaterOrEqual(t, r.Status["200"], int64(190))
	require.Positive(t, r.Errors[result.ErrorConnect])
	require.Less(t, r.Seconds, 30.0)
}

func TestRun_KeepsWhatItHasWhenInterrupted(t *testing.T) {
	onEachEngine(t, testKeepsWhatItHasWhenInterrupted)
}

func testKeepsWhatItHasWhenInterrupted(t *testing.T, engine workload.Engine) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int64
	url := serve(t, func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == 200 {
			cancel()
		}
	})
	r, err := Run(ctx, workload.Options{Engine: engine, URL: url, Rate: 500, Mix: workload.Mix{Get: 1}, Duration: time.Minute, Connections: 4})
	require.NoError(t, err)
	require.Contains(t, r.Partial, "interrupted")
	requireConserved(t, r)
	require.GreaterOrEqual(t, r.Requests, int64(190))
}

func TestRun_SaysWhatIsWrong(t *testing.T) { onEachEngine(t, testSaysWhatIsWrong) }

func testSaysWhatIsWrong(t *testing.T, engine workload.Engine) {
	t.Parallel()
	closed := "http://" + testenv.Nobody(t)
	for _, test := range []struct {
		o    workload.Options
		says string
	}{
		{workload.Options{Engine: engine, URL: closed}, closed + ": cannot connect: connection refused"},
		{workload.Options{Engine: engine, URL: "ftp://127.0.0.1:1"}, `url: "ftp://127.0.0.1:1" is not of the form http://host:port or https://host:port`},
		{workload.Options{Engine: engine, URL: closed, Rate: 10, Think: time.Second}, "think: 1s is not 0 to 1h, in a closed loop"},
		{workload.Options{Engine: engine, URL: closed, Rate: 10, Count: 5}, "count: 5 is for a closed loop, and the rate is 10"},
		{workload.Options{Engine: engine, URL: closed, Rate: -1}, "rate: -1 is not 0 to 10000000 a second"},
		{workload.Options{Engine: engine, URL: closed, Connections: 1 << 20}, "connections: 1048576 is not 1 to 20000"},
		{workload.Options{Engine: engine, URL: closed, Timeout: time.Microsecond}, "timeout: 1µs is not 1ms to 1h"},
		{workload.Options{Engine: engine, URL: closed, Headers: []string{"Content-length: 1"}}, `header: "Content-length" is the generator's own to send`},
		{workload.Options{Engine: engine, URL: closed, Headers: []string{"no colon"}}, `header: "no colon" is not of the form Name: value`},
	} {
		_, err := Run(t.Context(), test.o)
		require.EqualError(t, err, test.says)
	}
}

func TestRun_ReportsProgress(t *testing.T) { onEachEngine(t, testReportsProgress) }

func testReportsProgress(t *testing.T, engine workload.Engine) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	var calls []workload.Progress
	_, err := Run(t.Context(), workload.Options{
		Engine: engine,
		URL:    url, Rate: 500, Duration: 1600 * time.Millisecond, Mix: workload.Mix{Get: 1}, Connections: 2,
		Progress: func(p workload.Progress) { calls = append(calls, p) },
	})
	require.NoError(t, err)
	require.NotEmpty(t, calls)
	last := calls[len(calls)-1]
	require.Positive(t, last.Requests)
	require.Positive(t, last.Done)
	// A machine that stops for a while may let an interval pass with no answer.
	require.True(t, slices.ContainsFunc(calls, func(p workload.Progress) bool { return p.Rate > 0 }))
}

// What becomes of a request is told by who sent it, how important it is and what
// it asks for.
func TestRun_TellsSharesApart(t *testing.T) { onEachEngine(t, testTellsSharesApart) }

func testTellsSharesApart(t *testing.T, engine workload.Engine) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Spillway-Client") == "greedy":
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Query().Has("start"):
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	clients, priorities := workload.Clients("greedy=50,other*3=50"), workload.Priorities{0: 1, 3: 3}
	r, err := Run(t.Context(), workload.Options{
		Engine: engine,
		URL:    url, Connections: 4, Loops: 2, Count: 400, Mix: workload.Mix{Get: 3, Scan: 1}, Clients: clients, Priority: priorities, SLO: time.Hour,
	})
	require.NoError(t, err)
	requireConserved(t, r)
	greedy, other := r.Shares["client greedy"], r.Shares["client other"]
	require.Equal(t, r.Status["503"], greedy.Requests)
	require.Zero(t, greedy.Served)
	require.Equal(t, r.Status["200"], other.Good)
	require.Equal(t, r.Requests, greedy.Requests+other.Requests)
	require.Equal(t, r.Operations["get"], r.Shares["get"].Requests)
	require.Equal(t, r.Shares["get"].Served, other.Served)
	require.Equal(t, result.Share{Requests: r.Operations["scan"]}, r.Shares["scan"])
	require.Greater(t, r.Shares["priority 3"].Requests, r.Shares["priority 0"].Requests)
	require.Equal(t, r.Requests, r.Shares["priority 3"].Requests+r.Shares["priority 0"].Requests)
	require.Len(t, r.Shares, 6)

	r, err = Run(t.Context(), workload.Options{Engine: engine, URL: url, Connections: 1, Count: 10, Mix: workload.Mix{Get: 1}})
	require.NoError(t, err)
	require.Empty(t, r.Shares, "all are alike")
}

// Who waits for a connection is counted, and what it waited for is part of the latency, but not
// of that from sending.
func TestRun_CountsWaitsForConnections(t *testing.T) { onEachEngine(t, testCountsWaitsForConnections) }

func testCountsWaitsForConnections(t *testing.T, engine workload.Engine) {
	t.Parallel()
	release := make(chan struct{})
	var once sync.Once
	url := serve(t, func(_ http.ResponseWriter, _ *http.Request) {
		once.Do(func() { <-release }) // the first keeps the only connection
	})
	time.AfterFunc(300*time.Millisecond, func() { close(release) })
	o := workload.Options{Engine: engine, URL: url, Rate: 200, Duration: 300 * time.Millisecond, Connections: 1, Mix: workload.Mix{Get: 1}}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	requireConserved(t, r)
	require.Equal(t, r.Requests, r.ConnectionWait.Count)
	require.GreaterOrEqual(t, r.Waited, r.Requests/2)
	require.Greater(t, r.ConnectionWait.P50, r.UncorrectedLatency.P50)
	require.True(t, r.Busy())
	require.Contains(t, r.BusyText(), "All 1 connections were busy: ")
	require.Contains(t, r.BusyText(), "raise --connections")

	o.Rate, o.Duration = 0, 50*time.Millisecond // a closed loop waits for nothing
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	require.False(t, r.Busy())
	require.Zero(t, r.ConnectionWait.Count)
}
