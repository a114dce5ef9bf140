//go:build !race

// Under the race detector it takes too long.

package admissionhttp

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// storm is a service, in virtual time. What it takes waits in line for a worker, until
// the deadline that it was told.
type storm struct {
	notices bool          // when a client has gone, and drops what waited for it
	line    chan struct{} // of the queue's capacity
	workers chan struct{}
	arrived atomic.Int64
}

const (
	workers  = 8
	work     = 20 * time.Millisecond
	patience = time.Second
)

func (s *storm) RoundTrip(req *http.Request) (*http.Response, error) {
	s.arrived.Add(1)
	select {
	case s.line <- struct{}{}:
	default:
		return respond(http.StatusServiceUnavailable, "Spillway-Shed: full", "Retry-After: 1"), nil
	}
	answered := make(chan *http.Response, 1)
	go func() { answered <- s.serve(req) }()
	select {
	case resp := <-answered:
		return resp, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// serve has the request wait, and works on it, whether somebody waits for it or not.
func (s *storm) serve(req *http.Request) *http.Response {
	var gone <-chan struct{}
	if s.notices || req.Header.Get("Spillway-Timeout-Ms") != "" {
		gone = req.Context().Done() // which is when the deadline passes
	}
	select {
	case s.workers <- struct{}{}:
		<-s.line
	case <-gone:
		<-s.line
		return respond(http.StatusGatewayTimeout, "Spillway-Shed: expired")
	}
	time.Sleep(time.Duration(rand.ExpFloat64() * float64(work)))
	<-s.workers
	return respond(http.StatusOK)
}

// user is somebody who loses patience, and tries again, four times.
func user(c http.RoundTripper) (answered bool) {
	for attempt := range 4 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
		if err != nil {
			panic(err)
		}
		resp, err := c.RoundTrip(req)
		cancel()
		if err == nil && resp.StatusCode == http.StatusOK {
			return true
		}
		time.Sleep(10 * time.Millisecond << attempt)
	}
	return false
}

// goodput returns which share of its capacity a service does in time, for three times
// as many users as it has room for, and how many requests a user makes.
func goodput(t *testing.T, notices bool, seconds int, client func(http.RoundTripper) http.RoundTripper) (good, requests float64) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		s := &storm{notices: notices, line: make(chan struct{}, 2*time.Second*workers/work), workers: make(chan struct{}, workers)}
		c := client(s)
		const most = workers / (float64(work) / float64(time.Second)) // a second
		const warm = 10
		var answered atomic.Int64
		users := 0
		begun := time.Now()
		for at := time.Duration(0); at < time.Duration(seconds)*time.Second; at += time.Duration(rand.ExpFloat64() * float64(time.Second) / (3 * most)) {
			time.Sleep(time.Until(begun.Add(at)))
			users++
			go func() {
				if user(c) && at >= warm*time.Second {
					answered.Add(1)
				}
			}()
		}
		time.Sleep(10 * patience)
		good = float64(answered.Load()) / float64(seconds-warm) / most
		requests = float64(s.arrived.Load()) / float64(users)
	})
	return good, requests
}

// Under three times the load, with users who wait a second and then try again, a queue
// of two seconds serves next to nobody in time. With clients that hold themselves back
// it does: half of what it can at least, as they send it twice what it answers. A
// service that notices when its clients go, as Spillway does but under TLS, suffers less
// from others.
func TestRoundTripper_GoodputInARetryStorm(t *testing.T) {
	t.Parallel()
	for _, notices := range []bool{false, true} {
		// Wise clients hold themselves back in waves of their window: over twenty seconds
		// that is 0.6 give or take 0.07.
		wise, few := goodput(t, notices, 100, func(s http.RoundTripper) http.RoundTripper {
			return &RoundTripper{Base: s, TimeoutHeader: "Spillway-Timeout-Ms"}
		})
		naive, many := goodput(t, notices, 30, func(s http.RoundTripper) http.RoundTripper { return s })
		t.Logf("goodput %.2f of the capacity with %.1f requests a user; at will %.2f with %.1f; hang-ups are noticed: %v", wise, few, naive, many, notices)
		require.Less(t, few, many/2)
		if notices {
			require.Greater(t, wise, 1.5*naive)
		} else {
			require.Greater(t, wise, 2*naive)
		}
	}
}
