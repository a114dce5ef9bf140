//go:build !race

package concurrency_test

import (
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
	// By a fifth, as real ones vary: hypotheses are hard to tell apart by times that repeat exactly.
	varied := func(n int) func(int) time.Duration {
		random := rand.New(rand.NewPCG(1, 1))
		return func(running int) time.Duration {
			return time.Duration((1 + 0.2*random.NormFloat64()) * float64(hands(n)(running)))
		}
	}
	twice := func(service func(int) time.Duration) func(int) time.Duration {
		return func(n int) time.Duration { return 2 * service(n) }
	}
	drop := func(s *concurrency.Sample) { s.Dropped = true }
	for _, tt := range []struct {
		situation string
		o         concurrency.Options
		then      func(c *closed) // after 10,000 requests to 16 hands
		low, high int
		pause     bool
	}{
		{"nothing changes: about as many run as there are hands", concurrency.Options{}, func(c *closed) { c.complete(5_000, varied(16), nil) }, 10, 26, false},
		{"service times do not vary at all: few more than hands", concurrency.Options{}, func(c *closed) {
			*c = *newClosed(t, concurrency.Options{})
			c.complete(15_000, hands(16), nil)
		}, 10, 32, false},
		{"capacity halves: the limit follows within 5,000 requests", concurrency.Options{}, func(c *closed) { c.complete(5_000, varied(8), nil) }, 5, 14, false},
		{"capacity doubles: the limit follows within 5,000 requests", concurrency.Options{}, func(c *closed) { c.complete(5_000, varied(32), nil) }, 20, 64, false},
		{"all work takes twice as long: the limit stays", concurrency.Options{}, func(c *closed) {
			c.complete(10_000, twice(varied(16)), nil)
		}, 11, 26, false},
		{"one in twenty fails: the limit stays", concurrency.Options{}, func(c *closed) { c.complete(5_000, varied(16), every(20, drop)) }, 12, 40, false},
		{"one client gives up early, alone on an idle service: no pause", concurrency.Options{}, func(c *closed) {
			c.runs = nil
			for range 100 {
				c.now += int64(time.Second)
				c.law.Completed(concurrency.Sample{Now: c.now, Began: c.now - int64(time.Second), Running: 1, Dropped: true})
			}
		}, 1, 50, false},
		{"all time out: one runs, after pauses", concurrency.Options{}, func(c *closed) { c.complete(2_000, always(100*ms), drop) }, 1, 1, true},
		{"all time out, and a minimum is given: that many", concurrency.Options{Min: 6}, func(c *closed) { c.complete(2_000, always(100*ms), drop) }, 6, 6, true},
		{"an outage is over: as many as before", concurrency.Options{}, func(c *closed) {
			c.complete(1_000, always(100*ms), drop)
			c.complete(10_000, varied(16), nil)
		}, 9, 44, false},
		{"a maximum below the best: the maximum", concurrency.Options{Max: 8}, func(c *closed) { c.complete(5_000, varied(16), nil) }, 5, 8, false},
		{"a night with one request a second: the limit stays", concurrency.Options{}, func(c *closed) {
			c.runs = nil
			for range 1_000 {
				c.now += int64(time.Second)
				c.law.Completed(concurrency.Sample{Now: c.now, Began: c.now - int64(ms), Running: 1})
			}
		}, 11, 26, false},
		{"the clock is set back an hour: the limit stays", concurrency.Options{}, func(c *closed) {
			c.now -= int64(time.Hour)
			for i := range c.runs {
				c.runs[i] = c.now
			}
			c.complete(5_000, varied(16), nil)
		}, 11, 26, false},
	} {
		t.Run(tt.situation, func(t *testing.T) {
			t.Parallel()
			c := newClosed(t, tt.o)
			c.complete(10_000, varied(16), nil)
			tt.then(c)
			n := c.law.Limit()
			require.True(t, n >= tt.low && n <= tt.high, "%d, not %d to %d: %s", n, tt.low, tt.high, c.law.Why())
			require.Equal(t, tt.pause, c.law.Pause() > 0, c.law.Why())
		})
	}
}
