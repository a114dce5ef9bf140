package proxy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/proxy/rules"
)

// Tenants in closed loops, whose requests take very different times, share the time of the places, fixed and learned.
// The log (-v) has each one's share. By count Jain's index of fairness would be 0.55 with the two tenants, of which the
// first would have 95% of the time, and 0.66 with the ten.
func TestFair_TimeOverHTTP(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	constant := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	two := []func() time.Duration{constant(200 * ms), constant(10 * ms)}
	var ten []func() time.Duration
	for range 7 {
		ten = append(ten, constant(10*ms))
	}
	ten = append(ten, constant(100*ms), constant(1000*ms), func() time.Duration {
		return time.Duration(float64(ms) * math.Pow(1000, rand.Float64()))
	})
	for _, tc := range []struct {
		works                     []func() time.Duration
		loops, hands, concurrency int
		had                       time.Duration // until when it goes on
	}{
		{two, 16, 4, 4, 16 * time.Second},
		{two, 16, 4, 0, 160 * time.Second},
		{ten, 8, 8, 8, 80 * time.Second},
		{ten, 8, 8, 0, 80 * time.Second},
	} {
		t.Run(fmt.Sprintf("%d tenants, %d places", len(tc.works), tc.concurrency), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && tc.had > time.Minute {
				t.Skip("takes up to a minute: not with -short")
			}
			had := make([]atomic.Int64, len(tc.works))
			hands := make(chan struct{}, tc.hands) // what the upstream can do at once
			upstream := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				hands <- struct{}{}
				defer func() { <-hands }()
				began := time.Now()
				if who, err := strconv.Atoi(r.Header.Get("X-Tenant")); err == nil {
					time.Sleep(tc.works[who]())
					had[who].Add(int64(time.Since(began)))
				}
			})
			var routes rules.Routes
			require.NoError(t, routes.UnmarshalText([]byte("/7=10x,/8=100x,/9=any,/*=1x")))
			f := open(t, upstream, func(o *Options) {
				o.Strategy, o.Capacity, o.Concurrency, o.Objective, o.Routes = "fair", 0, tc.concurrency, 30*time.Second, routes
				o.Client = "header:X-Tenant"
			})
			stop := make(chan struct{})
			var loops sync.WaitGroup
			for i := range tc.loops * len(tc.works) {
				who := strconv.Itoa(i % len(tc.works))
				loops.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						r, err := http.NewRequest(http.MethodGet, f.url+"/"+who, nil)
						if err != nil {
							return
						}
						r.Header.Set("X-Tenant", who)
						if a, err := f.client.Do(r); err == nil {
							_ = a.Body.Close()
						}
					}
				})
			}
			shares := make([]float64, len(had))
			sum := func() (sum float64) {
				for i := range had {
					shares[i] = float64(had[i].Load())
					sum += shares[i]
				}
				return sum
			}
			require.Eventually(t, func() bool { return sum() > float64(tc.had) }, 5*time.Minute, 10*ms)
			all, squares := sum(), 0.
			close(stop)
			loops.Wait()
			for i := range shares {
				shares[i] /= all
				squares += shares[i] * shares[i]
			}
			jain := 1 / squares / float64(len(shares))
			t.Logf("Jain %.3f, shares %.3f", jain, shares)
			require.Greater(t, jain, 0.75)
		})
	}
}
