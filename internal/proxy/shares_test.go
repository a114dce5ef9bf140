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

// tenants are in closed loops, and their requests take very different times.
type tenants struct {
	works              []func() time.Duration
	loops              int // of each
	hands, concurrency int // what the upstream can do at once, and the places, 0 for learned
	had                time.Duration
}

func constant(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// twoTenants have four places.
var twoTenants = tenants{[]func() time.Duration{constant(200 * time.Millisecond), constant(10 * time.Millisecond)}, 16, 4, 4, 16 * time.Second}

// share has the tenants go on until they have had so much time, and requires that they share the time of the places. By
// count Jain's index of fairness would be 0.55 with two of them, of which the first would have 95% of the time, and 0.66
// with ten.
func (c tenants) share(t testing.TB) (jain float64, shares []float64) {
	t.Helper()
	had := make([]atomic.Int64, len(c.works))
	hands := make(chan struct{}, c.hands)
	upstream := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		hands <- struct{}{}
		defer func() { <-hands }()
		began := time.Now()
		if who, err := strconv.Atoi(r.Header.Get("X-Tenant")); err == nil {
			time.Sleep(c.works[who]())
			had[who].Add(int64(time.Since(began)))
		}
	})
	var routes rules.Routes
	require.NoError(t, routes.UnmarshalText([]byte("/7=10x,/8=100x,/9=any,/*=1x")))
	f := open(t, upstream, func(o *Options) {
		o.Strategy, o.Capacity, o.Concurrency, o.Objective, o.Routes = "fair", 0, c.concurrency, 30*time.Second, routes
		o.Client = "header:X-Tenant"
	})
	stop := make(chan struct{})
	var loops sync.WaitGroup
	for i := range c.loops * len(c.works) {
		who := strconv.Itoa(i % len(c.works))
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
	shares = make([]float64, len(had))
	sum := func() (sum float64) {
		for i := range had {
			shares[i] = float64(had[i].Load())
			sum += shares[i]
		}
		return sum
	}
	require.Eventually(t, func() bool { return sum() > float64(c.had) }, 5*time.Minute, 10*time.Millisecond)
	all, squares := sum(), 0.
	close(stop)
	loops.Wait()
	for i := range shares {
		shares[i] /= all
		squares += shares[i] * shares[i]
	}
	jain = 1 / squares / float64(len(shares))
	require.Greater(t, jain, 0.75, shares)
	return jain, shares
}

// Two tenants share the time of four places. The log (-v) has each one's share.
func TestFair_TimeOverHTTP(t *testing.T) {
	t.Parallel()
	jain, shares := twoTenants.share(t)
	t.Logf("Jain %.3f, shares %.3f", jain, shares)
}

// So do more tenants, over places that are fixed and learned. It fails where they do not, and takes up to a minute each:
//
//	go test -run '^$' -bench Fair_TimeOverHTTP -benchtime 1x ./internal/proxy
func BenchmarkFair_TimeOverHTTP(b *testing.B) {
	const ms = time.Millisecond
	var ten []func() time.Duration
	for range 7 {
		ten = append(ten, constant(10*ms))
	}
	ten = append(ten, constant(100*ms), constant(1000*ms), func() time.Duration {
		return time.Duration(float64(ms) * math.Pow(1000, rand.Float64()))
	})
	twoLearned := twoTenants
	twoLearned.concurrency, twoLearned.had = 0, 160*time.Second
	for _, c := range []tenants{twoTenants, twoLearned, {ten, 8, 8, 8, 80 * time.Second}, {ten, 8, 8, 0, 80 * time.Second}} {
		b.Run(fmt.Sprintf("tenants=%d/places=%d", len(c.works), c.concurrency), func(b *testing.B) {
			for b.Loop() {
				jain, shares := c.share(b)
				b.ReportMetric(jain, "jain")
				b.Logf("shares %.3f", shares)
			}
		})
	}
}
