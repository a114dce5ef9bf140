package generator

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// serveAttempts serves with what answers the nth attempt of a request, n from 1.
// Each request has a key of its own.
func serveAttempts(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) string {
	var mu sync.Mutex
	attempts := map[string]int{}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("id")
		mu.Lock()
		attempts[id]++
		n := attempts[id]
		mu.Unlock()
		answer(n, w, r)
	})
}

// once makes o a load in which no two requests have the same key.
func once(o *workload.Options, url string) {
	o.URL, o.Connections, o.Mix, o.Distribution, o.Keys = url, 8, workload.Mix{Get: 1}, workload.Sequential, workload.MaxKeys
}

func refuse(w http.ResponseWriter) {
	w.Header().Set("Spillway-Shed", "full")
	w.WriteHeader(http.StatusServiceUnavailable)
}

func TestRun_TriesAgain(t *testing.T) { onEachEngine(t, testTriesAgain) }

func testTriesAgain(t *testing.T, engine workload.Engine) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer  func(n int, w http.ResponseWriter, r *http.Request)
		retries workload.Retries
		status  string
		each    int64 // retries a request, without a budget
	}{
		// Who is served in the end counts as served, once.
		"served at last": {
			func(n int, w http.ResponseWriter, _ *http.Request) {
				if n < 3 {
					refuse(w)
				}
			},
			workload.Retries{Attempts: 4, Backoff: time.Millisecond}, "200", 2,
		},
		// An expired one is a refusal too, and without a back-off it comes at once.
		"expired": {
			func(n int, w http.ResponseWriter, _ *http.Request) {
				if n < 2 {
					w.WriteHeader(http.StatusGatewayTimeout)
				}
			},
			workload.Retries{Attempts: 2}, "200", 1,
		},
		// Whose attempts are all refused is refused, once.
		"refused": {
			func(_ int, w http.ResponseWriter, _ *http.Request) { refuse(w) },
			workload.Retries{Attempts: 3, Backoff: time.Millisecond}, "503", 2,
		},
		// A tenth of a retry for each request is one for every tenth.
		"a budget": {
			func(_ int, w http.ResponseWriter, _ *http.Request) { refuse(w) },
			workload.Retries{Attempts: 3, Backoff: time.Millisecond, Budget: 0.1}, "503", 0,
		},
		// The next attempt needs another connection, if the server closes this one.
		"closed": {
			func(n int, w http.ResponseWriter, _ *http.Request) {
				if n < 2 {
					w.Header().Set("Connection", "close")
					refuse(w)
				}
			},
			workload.Retries{Attempts: 2, Backoff: time.Millisecond}, "200", 1,
		},
		// What fails for another reason is not tried again.
		"failed": {
			func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			workload.Retries{Attempts: 3}, "500", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := uint64(300)
			if testing.Short() && tt.retries.Budget == 0 {
				count = 100
			}
			for _, o := range []workload.Options{
				{Engine: engine, Count: count},
				{Engine: engine, Count: count, Loops: 2},
				{Engine: engine, Rate: 1000, Warmup: 100 * time.Millisecond, Duration: 300 * time.Millisecond, Loops: 2},
			} {
				once(&o, serveAttempts(t, tt.answer))
				o.Retries = tt.retries
				r, err := Run(t.Context(), o)
				require.NoError(t, err)
				require.Empty(t, r.Partial)
				requireConserved(t, r)
				require.Equal(t, map[string]int64{tt.status: r.Requests}, r.Status)
				if tt.retries.Budget == 0 {
					require.EqualValues(t, tt.each*r.Requests, *r.Retries)
				} else { // a part of one may be left over, in each loop
					require.InDelta(t, tt.retries.Budget*float64(r.Requests), *r.Retries, 3)
				}
			}
		})
	}
}

// A server that closes the connection of a client who rests is asked over another,
// unless the client's rest was over just then.
func TestRun_TriesAgainOnAnotherConnection(t *testing.T) {
	onEachEngine(t, testTriesAgainOnAnotherConnection)
}

func testTriesAgainOnAnotherConnection(t *testing.T, engine workload.Engine) {
	t.Parallel()
	o := workload.Options{Engine: engine, Count: 300, Retries: workload.Retries{Attempts: 2, Backoff: 20 * time.Millisecond}}
	once(&o, serveAttempts(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n > 1 {
			return
		}
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
		}
	}))
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	requireConserved(t, r)
	require.EqualValues(t, 300, *r.Retries)
	require.Equal(t, r.Requests, r.Status["200"]+r.Errors[result.ErrorReset])
	require.Positive(t, r.Status["200"])
}

// The timeout is that of each attempt, and the latency is of all of them.
func TestRun_TriesAgainAfterATimeout(t *testing.T) { onEachEngine(t, testTriesAgainAfterATimeout) }

func testTriesAgainAfterATimeout(t *testing.T, engine workload.Engine) {
	t.Parallel()
	var stopped atomic.Int64
	hang := func(r *http.Request) {
		<-r.Context().Done()
		stopped.Add(1)
	}
	const timeout = 100 * time.Millisecond
	o := workload.Options{Engine: engine, Rate: 50, Duration: 500 * time.Millisecond, Timeout: timeout, TimeoutHeader: true, Retries: workload.Retries{Attempts: 2}}
	var twice, whole atomic.Int64 // requests that came twice, attempts with the whole timeout
	once(&o, serveAttempts(t, func(n int, _ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Spillway-Timeout-Ms") == "100" {
			whole.Add(1)
		}
		if n == 2 {
			twice.Add(1)
		}
		hang(r)
	}))
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	requireConserved(t, r)
	// Requests may still come to be served, which count themselves as whole first.
	require.LessOrEqual(t, twice.Load(), whole.Load(), "a retry has a patience of its own")
	require.Equal(t, r.Requests, r.Errors[result.ErrorTimeout]+r.Errors[result.ErrorUnsent])
	require.Equal(t, r.Errors[result.ErrorTimeout], *r.Retries)
	require.GreaterOrEqual(t, r.Latency.Max, 2*timeout.Seconds()*1000)

	// The second attempt is answered, unless the machine is too slow for that.
	o.Retries.Attempts = 50
	once(&o, serveAttempts(t, func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 1 {
			hang(r)
		}
	}))
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	requireConserved(t, r)
	require.Equal(t, r.Requests, r.Status["200"]+r.Errors[result.ErrorUnsent])
	require.Positive(t, r.Status["200"])
	require.GreaterOrEqual(t, *r.Retries, r.Status["200"])
	require.GreaterOrEqual(t, r.ServedLatency.P50, timeout.Seconds()*1000)
	require.Zero(t, r.GoodputRPS, "nobody is served within the SLO, who has waited so long first")
	require.Eventually(t, func() bool { return stopped.Load() > 0 }, time.Minute, time.Millisecond)
}

// Requests that are tried again are the same each time, and all others are those
// that are sent without retries.
func TestRun_RetriesDoNotChangeTheRequests(t *testing.T) {
	onEachEngine(t, testRetriesDoNotChangeTheRequests)
}

func testRetriesDoNotChangeTheRequests(t *testing.T, engine workload.Engine) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	var refuses bool
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		what := fmt.Sprint(r.Method, r.URL, r.Header["Spillway-Priority"], r.Header["Spillway-Client"], string(body))
		seen[what]++
		if refuses && seen[what]%2 == 1 {
			refuse(w)
		}
	})
	sent := func(retries workload.Retries) map[string]int {
		mu.Lock()
		seen, refuses = map[string]int{}, retries != workload.Retries{}
		mu.Unlock()
		r, err := Run(t.Context(), workload.Options{
			Engine: engine,
			URL:    url, Count: 500, Connections: 8, Mix: workload.Mix{Put: 1, Get: 1, Delete: 1, Scan: 1}, Distribution: workload.Sequential, Keys: workload.MaxKeys,
			ValueSize: workload.Sizes{Min: 1, Max: 50}, Priority: workload.Priorities{0: 1, 5: 1}, Clients: "a=1,b*3=2", Retries: retries,
		})
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"200": 500}, r.Status)
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
	first, again := sent(workload.Retries{}), sent(workload.Retries{Attempts: 2, Backoff: time.Millisecond})
	require.Len(t, first, 500)
	for what, n := range first {
		require.Equal(t, 2*n, again[what], what)
	}
	require.Len(t, again, len(first))
}

// When a run is cut short, those who rest have no answer.
func TestRun_CountsWhoRestsWhenInterrupted(t *testing.T) {
	onEachEngine(t, testCountsWhoRestsWhenInterrupted)
}

func testCountsWhoRestsWhenInterrupted(t *testing.T, engine workload.Engine) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var attempts atomic.Int64
	o := workload.Options{Engine: engine, Rate: 500, Duration: time.Minute, Retries: workload.Retries{Attempts: 2, Backoff: time.Hour}}
	once(&o, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w)
		if attempts.Add(1) == 5 {
			cancel()
		}
	}))
	r, err := Run(ctx, o)
	require.NoError(t, err)
	require.Contains(t, r.Partial, "interrupted")
	requireConserved(t, r)
	require.Equal(t, map[result.ErrorKind]int64{result.ErrorUnfinished: r.Requests}, r.Errors)
	require.GreaterOrEqual(t, r.Requests, int64(5))
}

// Whose connection cannot be opened again has found no server.
func TestRun_CountsWhoRestsWhenTheServerGoes(t *testing.T) {
	onEachEngine(t, testCountsWhoRestsWhenTheServerGoes)
}

func testCountsWhoRestsWhenTheServerGoes(t *testing.T, engine workload.Engine) {
	t.Parallel()
	gone := make(chan struct{})
	var attempts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w)
		if attempts.Add(1) == 8 {
			close(gone)
		}
	}))
	defer server.Close()
	go func() {
		<-gone
		_ = server.Listener.Close()
		server.CloseClientConnections()
	}()
	o := workload.Options{Engine: engine, Rate: 500, Duration: time.Minute, Retries: workload.Retries{Attempts: 2, Backoff: time.Hour}}
	once(&o, server.URL)
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, r.Partial, "connection refused")
	requireConserved(t, r)
	require.Zero(t, *r.Retries)
	require.Positive(t, r.Errors[result.ErrorConnect])
}

func TestRetries_WaitDoublesAndIsDrawn(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, tt := range []struct {
		backoff  time.Duration
		attempts int
		most     time.Duration
	}{
		{10 * time.Millisecond, 1, 10 * time.Millisecond},
		{10 * time.Millisecond, 2, 20 * time.Millisecond},
		{10 * time.Millisecond, 5, 160 * time.Millisecond},
		{0, 7, 0},
		// It ends at an hour, and does not overflow.
		{10 * time.Millisecond, 99, time.Hour},
		{time.Hour, 99, time.Hour},
	} {
		r := workload.Retries{Attempts: 100, Backoff: tt.backoff}
		var waits []time.Duration
		for range 1000 {
			waits = append(waits, r.Wait(tt.attempts, random))
		}
		slices.Sort(waits)
		require.GreaterOrEqual(t, waits[0], time.Duration(0))
		require.LessOrEqual(t, waits[999], tt.most)
		require.InDelta(t, float64(tt.most)/2, float64(waits[500]), 0.1*float64(tt.most))
	}
}
