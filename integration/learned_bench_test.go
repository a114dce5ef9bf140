//go:build integration

package integration

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
)

// handed is a handler that works on so many requests at once as it has hands, for
// exponentially distributed times. The others wait in it, first come first served.
type handed struct {
	hands *admission.Controller
	mean  time.Duration
}

func (h *handed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.hands.Do(r.Context(), admission.Request{}, func(context.Context) error {
		time.Sleep(time.Duration(rand.ExpFloat64() * float64(h.mean)))
		return nil
	}) == nil {
		_, _ = io.WriteString(w, "done\n")
	}
}

// openLoop sends GETs at that rate for that time, whatever becomes of them, and returns
// how many were good within the objective, and how many of these were due after a while.
func openLoop(client *http.Client, url string, rate float64, whole, while, slo time.Duration) (all, after int64) {
	var good, late atomic.Int64
	var sent sync.WaitGroup
	began := time.Now()
	for due := time.Duration(0); due < whole; due += time.Duration(rand.ExpFloat64() / rate * float64(time.Second)) {
		time.Sleep(due - time.Since(began))
		sent.Go(func() {
			ctx, cancel := context.WithDeadline(context.Background(), began.Add(due+10*slo))
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			answer, err := client.Do(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK || time.Since(began)-due > slo {
				return
			}
			if good.Add(1); due >= while {
				late.Add(1)
			}
		})
	}
	sent.Wait()
	return good.Load(), late.Load()
}

// A handler that can do 8 requests at once, then 32, then 4, of 40 ms each, for 20 s each,
// gets 1.5 times what it can do: how much of that is good, within 400 ms, from the begin of
// each step and from 5 s on. The concurrency is learned, the right one at every moment, the
// right one of the first step, or there is none.
//
// A round is -benchtime=1x; rounds are interleaved by running it several times.
func BenchmarkLearned_Steps(b *testing.B) {
	const (
		mean, slo    = 40 * time.Millisecond, 400 * time.Millisecond
		step, settle = 20 * time.Second, 5 * time.Second
	)
	for _, row := range []struct {
		name    string
		given   int
		follows bool
	}{{"learned", 0, false}, {"right", 8, true}, {"fixed=8", 8, false}, {"none", 1 << 20, false}} {
		b.Run("concurrency="+row.name, func(b *testing.B) {
			for range b.N {
				hands, err := admission.New(admission.Options{Strategy: "unbounded", Concurrency: 8})
				require.NoError(b, err)
				ctl, err := admission.New(admission.Options{Concurrency: row.given})
				require.NoError(b, err)
				server := httptest.NewServer(admissionhttp.Handler(ctl, &handed{hands, mean}))
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096}}
				for _, k := range []int{8, 32, 4} {
					require.NoError(b, hands.SetConcurrency(k))
					if row.follows {
						require.NoError(b, ctl.SetConcurrency(k))
					}
					capacity := float64(k) / mean.Seconds()
					all, after := openLoop(client, server.URL, 1.5*capacity, step, settle, slo)
					b.ReportMetric(float64(all)/(capacity*step.Seconds()), fmt.Sprintf("good/%d", k))
					b.ReportMetric(float64(after)/(capacity*(step-settle).Seconds()), fmt.Sprintf("settled/%d", k))
					if s := ctl.Stats(); s.Learned != nil {
						b.Logf("%d hands: %d (%s)", k, s.Concurrency, s.Learned.Why)
					}
				}
				client.CloseIdleConnections()
				server.Close()
			}
		})
	}
}
