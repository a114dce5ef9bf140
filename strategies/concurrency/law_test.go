//go:build !race

package concurrency_test

import (
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

func TestNew_TellsWhichBoundsAreWrong(t *testing.T) {
	t.Parallel()
	for _, o := range []concurrency.Options{{Min: 2, Max: 1}, {Min: -1}, {Max: -1}, {Initial: -1}, {Min: 2, Initial: 1}, {Max: 2, Initial: 3}} {
		_, err := concurrency.New(o)
		require.Error(t, err, "%+v", o)
	}
	for _, o := range []concurrency.Options{{}, {Min: 1, Max: 1}, {Min: 20_000}, {Max: 3}, {Initial: 100}} {
		l, err := concurrency.New(o)
		require.NoError(t, err, "%+v", o)
		require.GreaterOrEqual(t, l.Limit(), max(1, o.Min))
		if o.Max > 0 {
			require.LessOrEqual(t, l.Limit(), o.Max)
		}
		if o.Initial > 0 {
			require.Equal(t, o.Initial, l.Limit())
		}
		require.NotEmpty(t, l.Why())
	}
}

// closed drives a law as if so many clients each sent a request as soon as they had an
// answer: what runs takes what service says, for the number that runs.
type closed struct {
	law  *concurrency.Law
	now  int64
	runs []int64 // when each of those that run began
}

func (c *closed) complete(n int, service func(running int) time.Duration, change func(*concurrency.Sample)) {
	for range n {
		for len(c.runs) < c.law.Limit() {
			c.runs = append(c.runs, c.now)
		}
		began := c.runs[0]
		c.runs = c.runs[1:]
		if end := began + int64(service(len(c.runs)+1)); end > c.now {
			c.now = end
		}
		s := concurrency.Sample{Now: c.now, Began: began, Running: len(c.runs) + 1, Waiting: true}
		if change != nil {
			change(&s)
		}
		c.law.Completed(s)
	}
}

func newClosed(t *testing.T, o concurrency.Options) *closed {
	t.Helper()
	law, err := concurrency.New(o)
	require.NoError(t, err)
	return &closed{law: law}
}

// learned returns the mean limit that is learned where so many at once do most.
func (c *closed) learned(best float64) float64 {
	crosstalk := func(running int) time.Duration {
		n := float64(running)
		return time.Duration((1 + n*(n-1)/best/best) * float64(time.Millisecond))
	}
	c.complete(20_000, crosstalk, nil)
	const last = 10_000
	sum := 0
	c.complete(last, crosstalk, func(*concurrency.Sample) { sum += c.law.Limit() })
	return float64(sum) / last
}

// hands is a resource that does so many at once, each in a millisecond.
func hands(n int) func(int) time.Duration {
	return func(running int) time.Duration {
		return time.Duration(max(1, float64(running)/float64(n)) * float64(time.Millisecond))
	}
}

func TestLaw_BadInput(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(i int, s *concurrency.Sample){
		"service takes no time":               func(_ int, s *concurrency.Sample) { s.Began = s.Now },
		"the clock stands":                    func(_ int, s *concurrency.Sample) { s.Now, s.Began = 7, 7 },
		"it ended before it began":            func(_ int, s *concurrency.Sample) { s.Began = s.Now + 1e9 },
		"the clock jumps forward":             func(i int, s *concurrency.Sample) { s.Now += int64(i/500) * 3600e9 },
		"the clock jumps back":                func(i int, s *concurrency.Sample) { s.Now -= int64(i/500) * 3600e9 },
		"the clock goes to and fro":           func(i int, s *concurrency.Sample) { s.Now += int64(i%7) * 1e12 },
		"times at the ends of what there are": func(i int, s *concurrency.Sample) { s.Now, s.Began = []int64{math.MaxInt64, 0}[i%2], 0 },
		"between the ends of what there are": func(i int, s *concurrency.Sample) {
			s.Now = []int64{math.MaxInt64, math.MinInt64}[i%2]
		},
		"began at the ends of what there are": func(i int, s *concurrency.Sample) {
			s.Began = []int64{math.MinInt64, math.MaxInt64}[i%2]
		},
		"everything is dropped": func(_ int, s *concurrency.Sample) { s.Dropped = true },
		"nothing ever waits":    func(_ int, s *concurrency.Sample) { s.Waiting = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, i := newClosed(t, concurrency.Options{Min: 2, Max: 50}), 0
			c.complete(5_000, hands(10), func(s *concurrency.Sample) {
				i++
				change(i, s)
				if n := c.law.Limit(); n < 2 || n > 50 {
					t.Fatalf("%d is beyond the bounds", n)
				}
			})
			// Whatever it was told, it learns when it is told what is.
			for i := range c.runs {
				c.runs[i] = c.now
			}
			n := c.learned(10)
			require.True(t, n >= 6 && n <= 16, "%v: %s", n, c.law.Why())
		})
	}
}

// Service times of 0 among others, as a coarse clock tells them, do no harm.
func TestLaw_SomeTakeNoTime(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.05, 0.5, 0.7, 0.95} {
		for seed := range uint64(5) {
			r := rand.New(rand.NewPCG(seed, 1))
			c := newClosed(t, concurrency.Options{Max: 200})
			c.complete(20_000, hands(10), func(s *concurrency.Sample) {
				if r.Float64() < share {
					s.Began = s.Now
				}
			})
			n := c.learned(10)
			require.True(t, n >= 6 && n <= 16, "%v, seed %d: %v: %s", share, seed, n, c.law.Why())
		}
	}
}

// It does not matter when the first request comes, but for where the slots of the clock begin, nor how long
// nothing ran.
func TestLaw_BeginsWithTheFirstRequest(t *testing.T) {
	t.Parallel()
	at := func(now int64) (limits []int) {
		c := newClosed(t, concurrency.Options{})
		c.now = now
		c.complete(3_000, hands(10), func(*concurrency.Sample) { limits = append(limits, c.law.Limit()) })
		return limits
	}
	require.Equal(t, at(0), at(1<<50)) // a multiple of all slots
}

// While little waits the limit rises, and an overload that comes then does not begin anew at 4.
func TestLaw_OverloadAfterACalmTime(t *testing.T) {
	t.Parallel()
	c, i := newClosed(t, concurrency.Options{Max: 400}), 0
	constant := func(int) time.Duration { return time.Millisecond }
	c.complete(100_000, constant, func(s *concurrency.Sample) {
		i++
		s.Running, s.Waiting = (s.Running+1)/2, i%20 == 0
	})
	calm := c.law.Limit()
	require.Greater(t, calm, 100, c.law.Why())
	least := calm
	c.complete(5_000, hands(calm), func(*concurrency.Sample) { least = min(least, c.law.Limit()) })
	require.Greater(t, least, 8, "from %d: %s", calm, c.law.Why())
}

// Where the limit may not rise, the law learns again once much waits after a calm time.
func TestLaw_OverloadAfterACalmTimeAtTheMaximum(t *testing.T) {
	t.Parallel()
	c, i := newClosed(t, concurrency.Options{Max: 8}), 0
	constant := func(int) time.Duration { return time.Millisecond }
	c.complete(5_000, hands(8), nil)
	c.complete(5_000, constant, func(s *concurrency.Sample) {
		i++
		s.Running, s.Waiting = (s.Running+1)/2, i%20 == 0
	})
	require.Contains(t, c.law.Why(), "little waits")
	c.complete(5_000, hands(8), nil)
	require.Contains(t, c.law.Why(), "8 at once do most")
}

// A calm time in which all that runs is dropped, late, ends as any other: the limit rises again,
// from no less than its least, though requests take twice as long as in the calm time before.
func TestLaw_CalmAfterAnOverload(t *testing.T) {
	t.Parallel()
	c, i := newClosed(t, concurrency.Options{Min: 4, Max: 400}), 0
	little := func(s *concurrency.Sample) {
		i++
		s.Running, s.Waiting = (s.Running+1)/2, i%20 == 0
	}
	constant := func(d time.Duration) func(int) time.Duration {
		return func(int) time.Duration { return d }
	}
	c.complete(1_000, constant(time.Millisecond), little)
	c.complete(20_000, hands(10), nil)
	c.complete(1_000, constant(30*time.Millisecond), func(s *concurrency.Sample) { s.Running, s.Waiting, s.Dropped = 0, false, true })
	require.Equal(t, 4, c.law.Limit())
	c.complete(20_000, constant(2*time.Millisecond), little)
	require.Greater(t, c.law.Limit(), 100, c.law.Why())
}

// What Why says is within the bounds.
func TestLaw_WhyKeepsToTheBounds(t *testing.T) {
	t.Parallel()
	for _, o := range []concurrency.Options{{Max: 12}, {Min: 10, Max: 10}, {Max: 100}, {Min: 50}} {
		c := newClosed(t, o)
		require.Equal(t, "nothing is known yet", c.law.Why())
		most := o.Max
		if most == 0 {
			most = concurrency.DefaultMax
		}
		numbers := regexp.MustCompile(`\d+`)
		for _, drop := range []bool{false, true, false} {
			c.complete(5_000, hands(60), func(s *concurrency.Sample) {
				s.Dropped = drop
				if c.law.Pause() > 0 {
					return // it tells how long, and of how many that timed out
				}
				for _, number := range numbers.FindAllString(c.law.Why(), -1) {
					if n, err := strconv.Atoi(number); err != nil || n < max(1, o.Min) || n > most {
						t.Fatalf("%+v: %s", o, c.law.Why())
					}
				}
			})
		}
	}
}

// Requests that come alone, one after the other, say nothing of how many can run: the start begins with the load.
func TestLaw_LoneRequestsFirst(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
		c := newClosed(t, concurrency.Options{})
		for range 50 {
			c.now += int64(gap + 10*time.Millisecond)
			c.law.Completed(concurrency.Sample{Now: c.now, Began: c.now - int64(10*time.Millisecond), Running: 1})
		}
		c.complete(4+12+36+108, func(int) time.Duration { return 10 * time.Millisecond }, nil)
		require.Greater(t, c.law.Limit(), 300, "%v: %s", gap, c.law.Why())
	}
}

// Before a service with few workers, in whose backlog the others wait, the start passes their number by little: it
// stops growing before it is sure that requests take longer.
func TestLaw_AStartBeforeFewWorkers(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		workers int
		work    time.Duration
		jitter  []time.Duration
		most    int
	}{
		{4, 20 * time.Millisecond, []time.Duration{0, time.Millisecond, 5 * time.Millisecond}, 30},
		{8, 50 * time.Millisecond, []time.Duration{0, time.Millisecond, 10 * time.Millisecond}, 44}, // 74 if a generation grows after a long one
	} {
		for _, jitter := range at.jitter {
			c := newClosed(t, concurrency.Options{})
			random := rand.New(rand.NewPCG(1, 2))
			free := make([]int64, at.workers) // when each has done what it was given so far
			var runs []int64                  // when each of those that run began
			most := 0
			for range 200 {
				for ; len(runs) < c.law.Limit(); runs = append(runs, c.now) {
				}
				worker := slices.Index(free, slices.Min(free))
				free[worker] = max(free[worker], runs[0]) + int64(at.work) + int64(random.Float64()*float64(jitter))
				c.now = max(c.now, free[worker])
				c.law.Completed(concurrency.Sample{Now: c.now, Began: runs[0], Running: len(runs), Waiting: true})
				runs = runs[1:]
				most = max(most, c.law.Limit())
			}
			require.GreaterOrEqual(t, most, at.workers, "%d workers, %v: %s", at.workers, jitter, c.law.Why())
			require.LessOrEqual(t, most, at.most, "%d workers, %v: %s", at.workers, jitter, c.law.Why())
		}
	}
}

// A start that ends just after a generation began comes to what it would a moment later.
func TestLaw_AStartThatEndsSoonAfterAGeneration(t *testing.T) {
	t.Parallel()
	for _, running := range []int{-1, 0, 324} {
		for _, late := range []time.Duration{0, 1, 100, time.Microsecond, 100 * time.Microsecond, time.Millisecond} {
			c := newClosed(t, concurrency.Options{})
			c.complete(4+12+36+108, func(int) time.Duration { return 10 * time.Millisecond }, nil)
			end := c.now + int64(late)
			for range 5 {
				c.law.Completed(concurrency.Sample{Now: end, Began: end - int64(60*time.Millisecond), Running: running, Waiting: true})
			}
			require.NotContains(t, c.law.Why(), "for now")
			require.Greater(t, c.law.Limit(), 10, "%v, %d running: %s", late, running, c.law.Why())
			require.Less(t, c.law.Limit(), 200, "%v, %d running: %s", late, running, c.law.Why())
		}
	}
}

// After a clock that jumped the law goes on learning.
func TestLaw_LearnsAfterTheClockJumped(t *testing.T) {
	t.Parallel()
	for _, by := range []int64{-3600e9, 3600e9} {
		c := newClosed(t, concurrency.Options{})
		c.complete(5_000, hands(10), nil)
		c.now += by
		for i := range c.runs {
			c.runs[i] = c.now
		}
		c.complete(20_000, hands(100), nil)
		require.GreaterOrEqual(t, c.law.Limit(), 75, "by %v: %s", time.Duration(by), c.law.Why())
	}
}

// A clock that is set back while the limit is cut does not have it be so for an hour.
func TestLaw_TheClockJumpsWhileTheLimitIsCut(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Max: 100})
	c.complete(2_000, hands(20), nil)
	for i := 0; i < 2_000 && !strings.Contains(c.law.Why(), "most were dropped"); i++ {
		c.complete(1, hands(20), func(s *concurrency.Sample) { s.Began, s.Dropped = s.Began-30e6, true })
	}
	require.Contains(t, c.law.Why(), "most were dropped")
	c.now -= 3600e9
	for i := range c.runs {
		c.runs[i] = c.now
	}
	c.complete(5_000, hands(20), nil)
	require.Greater(t, c.law.Limit(), 10, c.law.Why())
}

// Completions that never come: places are lost for good, and the law lends more.
func TestLaw_CompletionsThatNeverCome(t *testing.T) {
	t.Parallel()
	c, lost := newClosed(t, concurrency.Options{}), 8
	c.complete(30_000, func(running int) time.Duration { return hands(16)(max(1, running-lost)) }, nil)
	require.GreaterOrEqual(t, c.law.Limit(), 16+lost-6, c.law.Why())
}

// An outage in which all is dropped leaves the least; when it is over, more run again.
func TestLaw_RecoversFromAnOutage(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{})
	c.complete(10_000, hands(20), nil)
	require.GreaterOrEqual(t, c.law.Limit(), 15, c.law.Why())
	c.complete(10_000, hands(20), func(s *concurrency.Sample) { s.Dropped = true })
	require.Equal(t, 1, c.law.Limit(), c.law.Why())
	c.complete(10_000, hands(20), nil)
	require.GreaterOrEqual(t, c.law.Limit(), 15, c.law.Why())
}

// What timed out while nothing was answered says nothing of the limit: soon after, as many run as
// before. Were it taken for orphans of too many, half as many would for minutes.
func TestLaw_AsManyAsBeforeAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
		for _, outage := range []time.Duration{4 * time.Second, 15 * time.Second, time.Minute} {
			c := newClosed(t, concurrency.Options{})
			hands := func(running int) time.Duration {
				return time.Duration(max(1, float64(running)/8) * float64(50*time.Millisecond))
			}
			c.complete(5_000, hands, nil)
			before := c.law.Limit()
			require.GreaterOrEqual(t, before, 6)
			for over := c.now + int64(outage); c.now < over; {
				c.complete(1, func(int) time.Duration { return timeout }, func(s *concurrency.Sample) { s.Dropped = true })
			}
			for over := c.now + int64(20*time.Second); c.now < over; {
				c.complete(1, hands, nil)
			}
			require.GreaterOrEqual(t, c.law.Limit(), 6, "%v, with a time-out of %v: %s", outage, timeout, c.law.Why())
		}
	}
}

// What was once dropped whatever ran does not hide for ever that the limit is too high.
func TestLaw_ForgetsWhatWasDroppedAnyway(t *testing.T) {
	t.Parallel()
	const runs, most = 48, 1000
	ends := 0
	for seed := range uint64(runs) {
		c := newClosed(t, concurrency.Options{})
		random := rand.New(rand.NewPCG(seed, 1))
		drop := func(share float64, above int) func(*concurrency.Sample) {
			return func(s *concurrency.Sample) { s.Dropped = s.Running > above && random.Float64() < share }
		}
		c.complete(20_000, hands(20), drop(0.7, 0))
		require.GreaterOrEqual(t, c.law.Limit(), 10, c.law.Why())
		c.complete(20_000, hands(20), nil)
		for i := 0; i < most && c.law.Limit() > 8; i++ {
			c.complete(1, hands(20), drop(0.8, 5))
			ends++
		}
	}
	require.Less(t, ends, 160*runs, "780 if it does") // 153
}

// Where the bound is below what would be best, it stays near the bound: others halve
// when they reach it.
func TestLaw_StaysAtItsMaximum(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Max: 12})
	c.complete(5_000, hands(100), nil)
	low := 12
	c.complete(20_000, hands(100), func(*concurrency.Sample) { low = min(low, c.law.Limit()) })
	require.GreaterOrEqual(t, low, 8, c.law.Why())
}

// Not even at the end of a block, of which each run here sees some.
func TestLaw_AllocatesNothing(t *testing.T) {
	law, err := concurrency.New(concurrency.Options{})
	require.NoError(t, err)
	now := int64(0)
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for range 1_000 {
			now += 1e5
			law.Completed(concurrency.Sample{Now: now, Began: now - 1e6, Running: 10, Waiting: true})
		}
	}))
}

// One request at a time after an hour of idleness is a calm time, whatever waited before.
func TestLaw_CalmAfterIdleness(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Max: 50})
	c.complete(1_000, hands(10), nil)
	c.now += 3600e9
	before := c.law.Why()
	for range 1_000 {
		c.now += 1e6
		c.law.Completed(concurrency.Sample{Now: c.now, Began: c.now - 1e6, Running: 1})
		if why := c.law.Why(); why != before {
			require.Contains(t, why, "little waits")
			return
		}
	}
	require.Fail(t, "it has not noticed", before)
}

func BenchmarkLaw_Completed(b *testing.B) {
	law, err := concurrency.New(concurrency.Options{})
	require.NoError(b, err)
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 1e5
		law.Completed(concurrency.Sample{Now: now, Began: now - 1e6, Running: 10, Waiting: true})
	}
}
