//go:build integration

package integration

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	kv "github.com/spillway-go/spillway/client"
)

// BenchmarkClient_RetryStorm tells which share of its capacity the service does in time
// under three times the load, for users who lose patience after a second and try again,
// four times in all: with package client, and with a client that does as its users do.
// The queue, first-in first-out, is two seconds long.
func BenchmarkClient_RetryStorm(b *testing.B) {
	const capacity = 8 * 50 // of 20 ms each, a second
	for name, open := range map[string]func(url string, t http.RoundTripper) func(context.Context) bool{
		"client=spillway": func(url string, t http.RoundTripper) func(context.Context) bool {
			c, err := kv.New(url, kv.Options{Transport: t})
			require.NoError(b, err)
			return func(ctx context.Context) bool {
				_, err := c.Get(ctx, "none")
				return errors.Is(err, kv.ErrNotFound)
			}
		},
		"client=at-will": func(url string, t http.RoundTripper) func(context.Context) bool {
			return func(ctx context.Context) bool {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+entity("none"), nil)
				if err != nil {
					return false
				}
				resp, err := t.RoundTrip(req)
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				_, err = io.Copy(io.Discard, resp.Body)
				return err == nil && resp.StatusCode == http.StatusNotFound
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := start(b, plain, "SPILLWAY_STRATEGY=fifo", "SPILLWAY_WORKERS=8", "SPILLWAY_QUEUE_CAPACITY=800", "SPILLWAY_STORE_DELAY=exp:20ms")
			transport := &http.Transport{MaxIdleConnsPerHost: 4096}
			defer transport.CloseIdleConnections()
			get := open(s.dataURL(""), transport)
			const warm, measured = 5 * time.Second, 15 * time.Second
			var answered atomic.Int64
			var users sync.WaitGroup
			for b.Loop() {
				begun := time.Now()
				for at := time.Duration(0); at < warm+measured; at += time.Duration(rand.ExpFloat64() * float64(time.Second) / (3 * capacity)) {
					time.Sleep(time.Until(begun.Add(at)))
					users.Go(func() {
						for attempt := range 4 {
							ctx, cancel := context.WithTimeout(b.Context(), time.Second)
							ok := get(ctx)
							cancel()
							if ok && at >= warm {
								answered.Add(1)
							}
							if ok {
								return
							}
							time.Sleep(10 * time.Millisecond << attempt)
						}
					})
				}
				users.Wait()
			}
			b.ReportMetric(float64(answered.Load())/float64(b.N)/measured.Seconds()/capacity, "goodput/capacity")
		})
	}
}
