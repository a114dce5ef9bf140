//go:build !race

package concurrency_test

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

// What the law does in situations that an engineer may think of.
func TestLaw_Predict(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	always := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	every := func(n int, change func(*concurrency.Sample)) func(*concurrency.Sample) {
		i := 0
		return func(s *concurrency.Sample) {
			if i++; i%n == 0 {
				change(s)
			}
		}
	}
	type resource func(n int) func(running int) time.Duration
	// By a fifth, as real ones vary: hypotheses are hard to tell apart by times that repeat exactly.
	varied := func(n int) func(int) time.Duration {
		random := rand.New(rand.NewPCG(1, 1))
		return func(running int) time.Duration {
			return time.Duration((1 + 0.2*random.NormFloat64()) * float64(hands(n)(running)))
		}
	}
	drop := func(s *concurrency.Sample) { s.Dropped = true }
	for _, tt := range []struct {
		situation string
		o         concurrency.Options
		then      func(c *closed, hands resource) // after 10,000 requests to 16 hands
		low, high int
		exact     int // the most if times do not vary, or 0 if that is high too
		pause     bool
	}{
		{"nothing changes: about as many run as there are hands", concurrency.Options{}, func(c *closed, hands resource) { c.complete(5_000, hands(16), nil) }, 10, 26, 32, false},
		{"capacity halves: the limit follows within 5,000 requests", concurrency.Options{}, func(c *closed, hands resource) { c.complete(5_000, hands(8), nil) }, 5, 14, 0, false},
		{"capacity doubles: the limit follows within 5,000 requests", concurrency.Options{}, func(c *closed, hands resource) { c.complete(5_000, hands(32), nil) }, 20, 64, 0, false},
		{"all work takes twice as long: the limit stays", concurrency.Options{}, func(c *closed, hands resource) {
			service := hands(16)
			c.complete(10_000, func(n int) time.Duration { return 2 * service(n) }, nil)
		}, 11, 26, 0, false},
		{"one in twenty fails: the limit stays", concurrency.Options{}, func(c *closed, hands resource) { c.complete(5_000, hands(16), every(20, drop)) }, 12, 40, 0, false},
		{"one client gives up early, alone on an idle service: no pause", concurrency.Options{}, func(c *closed, _ resource) {
			c.runs = nil
			for range 100 {
				c.now += int64(time.Second)
				c.law.Completed(concurrency.Sample{Now: c.now, Began: c.now - int64(time.Second), Running: 1, Dropped: true})
			}
		}, 1, 50, 0, false},
		{"all time out: one runs, after pauses", concurrency.Options{}, func(c *closed, _ resource) { c.complete(2_000, always(100*ms), drop) }, 1, 1, 0, true},
		{"all time out, and a minimum is given: that many", concurrency.Options{Min: 6}, func(c *closed, _ resource) { c.complete(2_000, always(100*ms), drop) }, 6, 6, 0, true},
		{"an outage is over: as many as before", concurrency.Options{}, func(c *closed, hands resource) {
			c.complete(1_000, always(100*ms), drop)
			c.complete(10_000, hands(16), nil)
		}, 9, 44, 0, false},
		{"a maximum below the best: the maximum", concurrency.Options{Max: 8}, func(c *closed, hands resource) { c.complete(5_000, hands(16), nil) }, 5, 8, 0, false},
		{"a night with one request a second: the limit stays", concurrency.Options{}, func(c *closed, _ resource) {
			c.runs = nil
			for range 1_000 {
				c.now += int64(time.Second)
				c.law.Completed(concurrency.Sample{Now: c.now, Began: c.now - int64(ms), Running: 1})
			}
		}, 11, 26, 32, false},
		{"the clock is set back an hour: the limit stays", concurrency.Options{}, func(c *closed, hands resource) {
			c.now -= int64(time.Hour)
			for i := range c.runs {
				c.runs[i] = c.now
			}
			c.complete(5_000, hands(16), nil)
		}, 11, 26, 32, false},
	} {
		for times, hands := range map[string]resource{"exact": hands, "varied": varied} {
			t.Run(tt.situation+", times are "+times, func(t *testing.T) {
				t.Parallel()
				c := newClosed(t, tt.o)
				c.complete(10_000, hands(16), nil)
				tt.then(c, hands)
				n, high := c.law.Limit(), tt.high
				if times == "exact" {
					high = cmp.Or(tt.exact, high)
				}
				require.True(t, n >= tt.low && n <= high, "%d, not %d to %d: %s", n, tt.low, high, c.law.Why())
				require.Equal(t, tt.pause, c.law.Pause() > 0, c.law.Why())
			})
		}
	}
}
