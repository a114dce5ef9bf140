package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

// In a pause of the law nothing begins but one, once nothing has ended for so long.
func TestPause_Places(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 3)
		defer d.Close()
		tasks := acquire(d, 20)
		l.pauses(2, time.Second)
		d.Release(tasks[0])
		d.Release(tasks[1])
		d.Release(tasks[2]) // which is why the first pause begins anew
		time.Sleep(time.Second)
		for i := range 4 {
			require.Len(t, granted(), i)
			require.Equal(t, 2, d.Status().Learned.Limit, "people are told how many it is without a pause")
			time.Sleep(time.Second + time.Millisecond)
			require.Len(t, granted(), i+1)
			time.Sleep(50 * time.Millisecond)
			require.Len(t, granted(), i+1)
			if i < 3 {
				d.Release(tasks[3+i])
			}
		}
		l.pauses(4, 0)
		d.Release(tasks[6])
		require.Len(t, granted(), 4+4)
		for _, task := range tasks[7:] {
			d.Release(task)
		}
		require.Zero(t, d.Gauge().Busy)
	})
}

// The same with workers.
func TestPause_Workers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{}, 1)
		defer s.close()
		for i := range 5 {
			s.submit(fmt.Sprint("slow", i))
		}
		l.pauses(1, time.Second)
		s.end("slow0")
		for i := 1; i < 4; i++ {
			time.Sleep(999 * time.Millisecond)
			s.requireBegun(i)
			time.Sleep(2 * time.Millisecond)
			s.requireBegun(i + 1)
			if i == 3 {
				l.pauses(1, 0)
			}
			s.end(fmt.Sprint("slow", i))
		}
		s.requireBegun(5)
		s.end("slow4")
		require.Len(t, s.endedNow(), 5)
	})
}

// A pause ends although nothing waits. What comes meanwhile waits, what comes later does not.
func TestPause_NothingWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 2)
		defer d.Close()
		l.pauses(1, time.Second)
		d.Release(acquire(d, 1)[0])
		time.Sleep(time.Hour)
		task := request("later", 1)
		require.True(t, d.TryAcquire(task))
		require.False(t, d.TryAcquire(request("beside", 1)))
		d.Release(task)
		time.Sleep(time.Second / 2)
		require.False(t, d.Acquire(task))
		require.Empty(t, granted())
		time.Sleep(time.Second)
		require.Equal(t, []string{"later"}, granted())
		d.Release(task)
		time.Sleep(time.Hour)
		require.False(t, d.pools[0].stuck.watched.Load(), "no timer runs for ever")
	})
}

// The one that begins after a pause may hang, as may what ran before.
func TestPause_Hangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 2)
		defer d.Close()
		tasks := acquire(d, 60)
		l.pauses(2, time.Second)
		d.Release(tasks[0])
		time.Sleep(1001 * time.Millisecond)
		require.Len(t, granted(), 1, "although one still runs that began before")
		time.Sleep(200 * time.Millisecond)
		require.Len(t, granted(), 2)
		time.Sleep(time.Hour)
		require.Len(t, granted(), 49, "the bound of the number")
		for _, task := range tasks[1:] {
			d.Release(task)
		}
		require.Zero(t, d.Gauge().Busy)
	})
}

// Who gives the number, or has it learned anew, ends the pause.
func TestPause_Resize(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 2)
		defer d.Close()
		tasks := acquire(d, 10)
		l.pauses(2, time.Hour)
		d.Release(tasks[0])
		d.Release(tasks[1])
		require.Empty(t, granted())
		d.Resize(0)
		require.Len(t, granted(), 1)
		d.pools[0].learn(&learning{law: &teller{limit: 3}, bounds: concurrency.Options{Min: 1, Max: 50}})
		require.Len(t, granted(), 3)
		for _, task := range tasks[2:] {
			d.Release(task)
		}
		require.Zero(t, d.Gauge().Busy)
	})
}
