package dispatch

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// paused returns a dispatcher of places of which one has been given back, at which a pause of so
// long has begun, and all tasks that asked for one.
func paused(t *testing.T, limit, tasks int, pause time.Duration) (*Places, *teller, []*Task, func() []string) {
	d, l, granted := lender(t, Options{}, limit)
	asked := acquire(d, tasks)
	l.pauses(limit, pause)
	d.Release(asked[0])
	return d, l, asked, granted
}

// In a pause of the law nothing begins but one, once nothing has ended for so long.
func TestPause_Places(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 3)
		defer d.Close()
		tasks := acquire(d, 20)
		l.pauses(2, time.Second)
		d.Release(tasks[0])
		d.Release(tasks[1])
		d.Release(tasks[2])
		for i := range 4 {
			require.Len(t, granted(), i)
			require.Equal(t, 2, d.Gauge().Learned.Limit, "people are told how many it is without a pause")
			time.Sleep(999 * time.Millisecond)
			require.Len(t, granted(), i)
			time.Sleep(2 * time.Millisecond)
			require.Len(t, granted(), i+1)
			time.Sleep(900 * time.Millisecond)
			require.Len(t, granted(), i+1)
			if i < 3 {
				d.Release(tasks[3+i])
			}
		}
		l.pauses(4, 0)
		d.Release(tasks[6])
		require.Len(t, granted(), 4+4)
		releaseAll(d, tasks[7:])
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
		time.Sleep(600 * time.Millisecond)
		require.Equal(t, []string{"later"}, granted())
		d.Release(task)
		time.Sleep(time.Hour)
		require.False(t, d.only().limit.watched.Load(), "no timer runs for ever")
	})
}

// The one that begins after a pause may hang, as may what ran before.
func TestPause_Hangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, tasks, granted := paused(t, 2, 60, time.Second)
		defer d.Close()
		time.Sleep(1001 * time.Millisecond)
		require.Len(t, granted(), 1, "although one still runs that began before")
		time.Sleep(990 * time.Millisecond)
		require.Len(t, granted(), 1, "it may take as long as the pause")
		time.Sleep(time.Second)
		require.Len(t, granted(), 2)
		time.Sleep(time.Hour)
		require.Len(t, granted(), 49, "the bound of the number")
		releaseAll(d, tasks[1:])
		require.Zero(t, d.Gauge().Busy)
	})
}

// Who gives the number, or has it learned anew, ends the pause.
func TestPause_Resize(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, tasks, granted := paused(t, 2, 10, time.Hour)
		defer d.Close()
		d.Release(tasks[1])
		require.Empty(t, granted())
		d.Resize(0)
		require.Len(t, granted(), 1)
		d.only().limit.set(0, &learning{law: &teller{limit: 3}, bounds: concurrency.Options{Min: 1, Max: 50}})
		require.Len(t, granted(), 3)
		releaseAll(d, tasks[2:])
		require.Zero(t, d.Gauge().Busy)
	})
}

// What the law is told of ends a probe, and has a pause begin. What it is not told of does neither.
func TestPause_Outcomes(t *testing.T) {
	const pause = time.Minute
	for name, tt := range map[string]struct {
		end  func(d *Places, t *Task)
		next time.Duration // when another begins
	}{
		"released": {func(d *Places, t *Task) { d.Release(t) }, pause},
		"answered": {func(d *Places, t *Task) { d.Answered(t, t.Began(), Dropped) }, pause},
		"answered, and released": {func(d *Places, t *Task) {
			d.Answered(t, t.Began(), Dropped)
			time.Sleep(time.Second)
			d.Release(t)
		}, pause - time.Second},
		"unmeasured": {func(d *Places, t *Task) {
			d.Answered(t, t.Began(), Ignored)
			d.Release(t)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d, _, tasks, granted := paused(t, 1, 6, pause)
				defer d.Close()
				time.Sleep(pause + time.Millisecond)
				for i := 1; i < 4; i++ {
					require.Len(t, granted(), i)
					tt.end(d, tasks[i])
					if tt.next > 0 {
						time.Sleep(tt.next - time.Millisecond)
						require.Len(t, granted(), i)
						time.Sleep(2 * time.Millisecond)
					}
				}
				for _, task := range tasks[1:] {
					d.Answered(task, task.Began(), Ignored)
				}
			})
		})
	}
}

// One that began before the pause, and ends after it, changes nothing.
func TestPause_OneEndsThatBeganBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, tasks, granted := paused(t, 2, 10, time.Minute)
		defer d.Close()
		time.Sleep(time.Minute + time.Millisecond)
		require.Len(t, granted(), 1)
		d.Answered(tasks[1], tasks[1].Began(), Ignored)
		d.Release(tasks[1])
		time.Sleep(time.Second)
		require.Len(t, granted(), 1)
		releaseAll(d, tasks[2:])
	})
}

// Once a pause is over, what hangs is found as soon as before.
func TestPause_ThenAllHang(t *testing.T) {
	for name, over := range map[string]func(*Places, *teller, *Task){
		"one that began before is good": func(d *Places, l *teller, t *Task) {
			l.pauses(2, 0)
			d.Release(t)
		},
		"the number is learned anew": func(d *Places, _ *teller, t *Task) {
			d.Release(t)
			d.only().limit.set(0, &learning{law: &teller{limit: 2}, bounds: concurrency.Options{Min: 1, Max: 50}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d, l, tasks, granted := paused(t, 2, 10, time.Minute)
				defer d.Close()
				over(d, l, tasks[1])
				require.Len(t, granted(), 2)
				time.Sleep(117 * time.Millisecond)
				require.Len(t, granted(), 4)
				releaseAll(d, tasks[2:])
			})
		})
	}
}

// People are told the number of the law, as nothing is stuck.
func TestPause_Status(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, _ := lender(t, Options{}, 10)
		defer d.Close()
		l.pauses(10, time.Second)
		d.Release(acquire(d, 1)[0])
		for range 3 {
			require.Equal(t, 10, d.Gauge().Learned.Limit)
			require.True(t, d.Gauge().Learned.Paused)
			require.Equal(t, 10, d.Gauge().Workers)
			time.Sleep(time.Second)
		}
		tasks := acquire(d, 30)
		require.Equal(t, 1, d.Gauge().Busy)
		l.pauses(10, 0)
		d.Answered(tasks[0], tasks[0].Began(), Good)
		require.False(t, d.Gauge().Learned.Paused)
		require.Equal(t, 10, d.Gauge().Busy)
		releaseAll(d, tasks)
	})
}

// sizes notes how many workers its discipline is told of.
type sizes struct {
	strategies.Discipline
	told *[]int
}

func (s sizes) Resize(n int) { *s.told = append(*s.told, n) }

// No discipline is told that there are no workers.
func TestPause_Switch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 2)
		defer d.Close()
		var told []int
		fifo, err := strategies.Lookup("fifo")
		require.NoError(t, err)
		spec := strategies.Spec{Name: "sizes", New: func(c strategies.Config) strategies.Discipline {
			told = append(told, c.Workers)
			return sizes{fifo.New(c), &told}
		}}
		require.NoError(t, d.SwitchTo(spec))
		tasks := acquire(d, 5)
		d.measure(int64(time.Second))
		l.pauses(2, time.Second)
		d.Release(tasks[0])
		d.Release(tasks[1])
		require.Equal(t, 3*time.Second, d.DrainTime())
		require.NoError(t, d.SwitchTo(spec))
		for i := 1; i < 3; i++ {
			time.Sleep(1001 * time.Millisecond)
			require.Len(t, granted(), i)
			d.Release(tasks[1+i])
		}
		require.NotContains(t, told, 0)
		l.pauses(2, 0)
		time.Sleep(1001 * time.Millisecond)
		require.Len(t, granted(), 3)
		d.Release(tasks[4])
	})
}

// Close has what waits run, even in a pause, or if one begins meanwhile.
func TestPause_Close(t *testing.T) {
	for name, before := range map[string]bool{"in a pause": true, "one begins": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, l := newLearner(t, Options{}, 1)
				for _, name := range []string{"slow0", "x", "slow1", "y"} {
					s.submit(name)
				}
				pause := func() {
					l.pauses(1, time.Minute)
					s.end("slow0")
				}
				if before {
					pause()
				}
				var closed sync.WaitGroup
				closed.Go(s.Close)
				synctest.Wait()
				if !before {
					pause()
				}
				s.end("slow1")
				closed.Wait()
				s.requireEnded("slow0", "x", "slow1", "y")
			})
		})
	}
}

// The number that is asked for at least holds in a pause, which then needs no timer to end.
func TestPause_Floor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 5)
		defer d.Close()
		d.Resize(1)
		d.only().limit.set(0, &learning{law: l, bounds: concurrency.Options{Min: 3, Max: 50}, floor: 3})
		tasks := acquire(d, 9)
		require.Equal(t, 5, d.Gauge().Busy)
		l.pauses(3, time.Second)
		for i := range 3 {
			d.Answered(tasks[i], tasks[i].Began(), Dropped)
			d.Release(tasks[i])
		}
		require.Len(t, granted(), 1)
		require.Equal(t, 3, d.Gauge().Busy)
		require.Equal(t, &Learned{
			Limit: 3, Min: 3, Max: 50, Paused: true, Dropped: 3, Why: "3 at once, and no fewer are allowed: the latest timed out",
		}, d.Gauge().Learned)
		for i := 3; i < 9; i++ {
			d.Release(tasks[i])
			require.Len(t, granted(), min(i-1, 4))
		}
		time.Sleep(time.Hour)
		require.False(t, d.only().limit.watched.Load(), "no timer runs for ever")
	})
}
