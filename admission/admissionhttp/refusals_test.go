package admissionhttp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A thousand clients ask a service that is healthy, then refuses a share of them, then is
// healthy again. While it is healthy nobody is throttled, if it had refused half. If it had
// refused nearly all, that ends once the last refusal is ten seconds old, which is the
// throttle's memory: clients that know of no other answers cannot know that all is well.
func TestRoundTripper_ThousandClients(t *testing.T) {
	t.Parallel()
	const (
		clients = 1000
		bad     = 10 * time.Second // when it begins to refuse
		well    = 30 * time.Second // and when it stops
		end     = 50 * time.Second
		memory  = 10 * time.Second
	)
	for _, tt := range []struct {
		share       float64 // that is refused
		transports  int     // that the clients share
		least, most float64 // of the requests are throttled meanwhile
	}{
		// Who sends twice what is accepted need not hold anything back.
		{0.5, 1, 0, 0.001},
		{0.5, 50, 0, 0.001},
		{0.95, 1, 0.6, 0.95},
		{0.95, 50, 0.5, 0.95},
	} {
		t.Run(fmt.Sprintf("refused=%v/transports=%d", tt.share, tt.transports), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var lastRefusal atomic.Int64 // when
				service := roundTripperFunc(func(*http.Request) (*http.Response, error) {
					at := time.Since(begun)
					time.Sleep(rand.N(300 * time.Millisecond))
					if at >= bad && at < well && rand.Float64() < tt.share {
						lastRefusal.Store(int64(time.Since(begun)))
						return respond(503, "Spillway-Shed: late", "Retry-After: 1"), nil
					}
					return respond(200), nil
				})
				transports := make([]*RoundTripper, tt.transports)
				for i := range transports {
					transports[i] = &RoundTripper{Base: service}
				}
				var asked, throttled [end / time.Second]atomic.Int64 // in each second
				var forgotten atomic.Int64                           // throttled once the memory is over
				var all sync.WaitGroup
				for i := range clients {
					all.Go(func() {
						for time.Since(begun) < end {
							at := time.Since(begun)
							err := ask(t.Context(), transports[i%len(transports)])
							asked[at/time.Second].Add(1)
							if errors.Is(err, ErrThrottled) {
								throttled[at/time.Second].Add(1)
								if at >= time.Duration(lastRefusal.Load())+memory {
									forgotten.Add(1)
								}
							}
							time.Sleep(rand.N(4 * time.Second))
						}
					})
				}
				all.Wait()
				sum := func(of []atomic.Int64, from, to time.Duration) (n float64) {
					for i := range of[from/time.Second : to/time.Second] {
						n += float64(of[int(from/time.Second)+i].Load())
					}
					return n
				}
				for at := range throttled {
					t.Logf("%2d s: %4d asked, %4d throttled", at, asked[at].Load(), throttled[at].Load())
				}
				require.Zero(t, sum(throttled[:], 0, bad), "throttled while it was healthy")
				require.Zero(t, forgotten.Load(), "throttled while it was healthy again")
				again := well + memory + time.Second
				if tt.share == 0.5 {
					again = well
				}
				require.Zero(t, sum(throttled[:], again, end), "throttled while it was healthy again")
				share := sum(throttled[:], bad+5*time.Second, well) / sum(asked[:], bad+5*time.Second, well)
				t.Logf("%.3f of the requests were throttled meanwhile", share)
				require.GreaterOrEqual(t, share, tt.least)
				require.LessOrEqual(t, share, tt.most)
			})
		})
	}
}
