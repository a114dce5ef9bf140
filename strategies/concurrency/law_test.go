package concurrency_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

func TestNew_TellsWhichBoundsAreWrong(t *testing.T) {
	t.Parallel()
	for _, o := range []concurrency.Options{{Min: 2, Max: 1}, {Min: -1}, {Max: -1}} {
		_, err := concurrency.New(0, o)
		require.Error(t, err, "%+v", o)
	}
	for _, o := range []concurrency.Options{{}, {Min: 1, Max: 1}, {Min: 20_000}, {Max: 3}} {
		l, err := concurrency.New(0, o)
		require.NoError(t, err, "%+v", o)
		require.GreaterOrEqual(t, l.Limit(), max(1, o.Min))
		if o.Max > 0 {
			require.LessOrEqual(t, l.Limit(), o.Max)
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
	law, err := concurrency.New(0, o)
	require.NoError(t, err)
	return &closed{law: law}
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
		"everything is dropped":               func(_ int, s *concurrency.Sample) { s.Dropped = true },
		"nothing ever waits":                  func(_ int, s *concurrency.Sample) { s.Waiting = false },
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
			require.NotEmpty(t, c.law.Why())
		})
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

// Completions that never come: places are lost for good, and the law lends more.
func TestLaw_CompletionsThatNeverCome(t *testing.T) {
	t.Parallel()
	law, err := concurrency.New(0, concurrency.Options{})
	require.NoError(t, err)
	before := law.Limit()
	require.Equal(t, before, law.Limit(), "without completions nothing is learnt")
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
	c.complete(10_000, hands(20), nil)
	require.GreaterOrEqual(t, c.law.Limit(), 15, c.law.Why())
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

func TestLaw_MayBeToldByManyAtOnce(t *testing.T) {
	t.Parallel()
	law, err := concurrency.New(0, concurrency.Options{Max: 100})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range int64(2_000) {
				now := i*1e6 + r.Int64N(1e6)
				law.Completed(concurrency.Sample{Now: now, Began: now - r.Int64N(1e7), Running: 4, Waiting: true})
				_, _ = law.Limit(), law.Why()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, law.Limit(), 100)
}

func TestLaw_AllocatesNothing(t *testing.T) {
	law, err := concurrency.New(0, concurrency.Options{Max: 1})
	require.NoError(t, err)
	now := int64(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		now += 10
		law.Completed(concurrency.Sample{Now: now, Began: now - 10, Running: 1, Waiting: true})
	}))
}

func BenchmarkLaw_Completed(b *testing.B) {
	law, err := concurrency.New(0, concurrency.Options{})
	require.NoError(b, err)
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 1e5
		law.Completed(concurrency.Sample{Now: now, Began: now - 1e6, Running: 10, Waiting: true})
	}
}
