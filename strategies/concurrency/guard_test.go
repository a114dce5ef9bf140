//go:build !race

package concurrency_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

// one drives a law with one request at a time, at the least limit.
type one struct {
	law *concurrency.Law
	now time.Duration
}

func newOne(t *testing.T, o concurrency.Options) *one {
	t.Helper()
	law, err := concurrency.New(o)
	require.NoError(t, err)
	return &one{law: law}
}

// ends has n requests end that took so long, and returns the pause then.
func (o *one) ends(n int, took time.Duration, dropped bool) time.Duration {
	for range n {
		began := o.now
		o.now += took
		o.law.Completed(concurrency.Sample{Now: int64(o.now), Began: int64(began), Running: 1, Waiting: true, Dropped: dropped})
	}
	return time.Duration(o.law.Pause())
}

func TestGuard_PausesTwiceAsLongEachTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ late, longest time.Duration }{
		{10 * time.Millisecond, 160 * time.Millisecond},
		{3 * time.Second, 10 * time.Second},
		{time.Minute, 10 * time.Second},
	} {
		o := newOne(t, concurrency.Options{Max: 1})
		require.Zero(t, o.ends(100, tt.late/8, false))
		require.Zero(t, o.ends(7, tt.late, true))
		for want := tt.late; want < tt.longest; want *= 2 {
			require.Equal(t, want, o.ends(1, tt.late, true))
		}
		require.Equal(t, tt.longest, o.ends(1, tt.late, true))
		require.Equal(t, tt.longest, o.ends(100_000, tt.late, true))
		require.Contains(t, o.law.Why(), fmt.Sprintf("nothing for %.2g s", tt.longest.Seconds()))
		require.Equal(t, 1, o.law.Limit())
		require.Zero(t, o.ends(1, tt.late/8, false))
		require.NotContains(t, o.law.Why(), "nothing for")
	}
}

// Who is told of a change has the limit, or the pause, in force.
func TestGuard_TellsOfTheChange(t *testing.T) {
	t.Parallel()
	o := newOne(t, concurrency.Options{Max: 1})
	s := concurrency.Sample{Running: 1, Waiting: true}
	for i := range 20 {
		s.Began, s.Now, s.Dropped = s.Now, s.Now+int64(time.Second), i < 10
		limit, changed := o.law.Completed(s)
		require.Equal(t, 1, limit)
		require.Equal(t, i == 7 || i == 10, changed, i)
	}
}

// What runs already when a pause begins may all time out. That does not make it longer.
func TestGuard_WhatRanBefore(t *testing.T) {
	t.Parallel()
	o := newOne(t, concurrency.Options{Min: 16, Max: 16})
	o.ends(100, time.Second/10, false)
	began := o.now
	o.now += time.Second
	for i := range 16 {
		o.now++
		o.law.Completed(concurrency.Sample{Now: int64(o.now), Began: int64(began), Running: 16 - i, Waiting: true, Dropped: true})
	}
	require.InDelta(t, time.Second, o.law.Pause(), 16)
	require.Equal(t, 2*time.Second, o.ends(1, time.Second, true), "that was the one after the pause")
}

// What times out whatever runs is not helped by pauses. So they come ever later, until many are
// good.
func TestGuard_OpensLaterIfThatIsSoon(t *testing.T) {
	t.Parallel()
	o := newOne(t, concurrency.Options{Max: 1})
	opens := func(after int) {
		t.Helper()
		require.Zero(t, o.ends(after-1, time.Second, true))
		require.NotZero(t, o.ends(1, time.Second, true))
		require.Zero(t, o.ends(1, time.Millisecond, false))
	}
	for _, after := range []int{8, 16, 32, 64} {
		opens(after)
	}
	o.ends(32, time.Millisecond, false)
	opens(8)
	for range 20 {
		o.ends(10_000, time.Second, true)
		o.ends(1, time.Millisecond, false)
	}
	opens(4096)
}

func TestGuard_StaysClosed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		took time.Duration
		good int // after each seven that are dropped
	}{
		"refused at once":       {time.Millisecond / 10, 0},
		"one in eight was good": {time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOne(t, concurrency.Options{Max: 1})
			o.ends(10, time.Millisecond, false)
			for range 100 {
				require.Zero(t, o.ends(7, tt.took, true))
				require.Zero(t, o.ends(tt.good, time.Millisecond, false))
			}
		})
	}
}

// As long as more run than the least, the limit is cut first.
func TestGuard_OpensAtTheLeastLimit(t *testing.T) {
	t.Parallel()
	o := newOne(t, concurrency.Options{})
	o.ends(10, time.Millisecond, false)
	row := 0
	for o.law.Pause() == 0 {
		if o.law.Limit() == 1 {
			row++
		}
		o.ends(1, 2*time.Millisecond, true)
	}
	require.Equal(t, 8, row)
}

// One after the other may time out for causes of their own while there is room for more, or while
// others are good. Only a resource that is full and answers nobody is given a pause.
func TestGuard_OnlyIfFullAndNobodyIsAnswered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		running int
		waiting bool
		good    int // one in so many, 0 for none
		pauses  bool
	}{
		"one at a time, of four that may run": {1, false, 0, false},
		"all four, and nothing waits":         {4, false, 0, false},
		"work waits":                          {1, true, 0, true},
		"one in eight is good":                {4, true, 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			law, err := concurrency.New(concurrency.Options{Min: 4, Max: 4})
			require.NoError(t, err)
			now, paused := int64(0), false
			for i := range 1_000 {
				now += 1e9
				good := i < 100 || tt.good > 0 && i%tt.good == 0
				took := int64(1e9)
				if good {
					took = 1e6
				}
				law.Completed(concurrency.Sample{Now: now, Began: now - took, Running: tt.running, Waiting: tt.waiting, Dropped: !good})
				paused = paused || law.Pause() > 0
			}
			require.Equal(t, tt.pauses, paused)
		})
	}
}
