package dispatch

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

// What never ends holds no place that others need for long: it counts no more, until it ends.
func TestStuck_Places(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 3)
		defer d.Close()
		tasks := map[string]*Task{}
		ask := func(name string, cost int) {
			tasks[name] = request(name, cost)
			d.Acquire(tasks[name])
		}
		for _, name := range []string{"hangs1", "hangs2", "hangs3", "d", "e", "f"} {
			ask(name, 1)
		}
		ask("wide", 5)
		time.Sleep(115 * time.Millisecond)
		require.Empty(t, granted())
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, []string{"d", "e", "f"}, granted())
		learned := d.Gauge().Learned
		require.Equal(t, 6, learned.Limit)
		require.Equal(t, 6, d.Gauge().Workers)
		require.Equal(t, "a test says so; and 3 more, as 3 do not end", learned.Why)

		l.says(2)
		d.Release(tasks["d"])
		require.Equal(t, 2+3, d.Gauge().Learned.Limit)
		require.Equal(t, 3, l.told()[0].Running, "what is stuck does not")
		d.Release(tasks["e"])
		d.Release(tasks["f"])
		require.Equal(t, "wide", granted()[3], "it takes all but those of what is stuck")
		ask("g", 1)
		require.Len(t, granted(), 4)

		d.Release(tasks["hangs1"])
		d.Release(tasks["hangs2"])
		require.Equal(t, 2+1, d.Gauge().Learned.Limit)
		require.Len(t, granted(), 4)
		d.Release(tasks["wide"])
		require.Equal(t, "g", granted()[4])
		d.Release(tasks["g"])
		d.Release(tasks["hangs3"])
		require.Equal(t, 2, d.Gauge().Learned.Limit)
		require.Equal(t, "a test says so", d.Gauge().Learned.Why)
		require.Zero(t, d.Gauge().Busy)
	})
}

// acquire asks for so many places, one for each task. The names of these are numbers.
func acquire(d *Places, n int) (tasks []*Task) {
	for i := range n {
		tasks = append(tasks, request(fmt.Sprint(i), 1))
		d.Acquire(tasks[i])
	}
	return tasks
}

// releaseAll gives back the places of those tasks that have some by their turn.
func releaseAll(d *Places, tasks []*Task) {
	for _, t := range tasks {
		if t.granted > 0 {
			d.Release(t)
		}
	}
}

// The same with workers.
func TestStuck_Workers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{}, 2)
		defer s.close()
		for i := range 8 {
			s.submit(fmt.Sprint("slow", i))
		}
		s.requireBegun(2)
		time.Sleep(115 * time.Millisecond)
		s.requireBegun(2)
		time.Sleep(2 * time.Millisecond)
		s.requireBegun(4)
		require.Equal(t, 4, s.Gauge().Learned.Limit)
		s.end("slow2")
		s.requireBegun(5)
		require.Equal(t, 2, l.told()[0].Running)
		s.end("slow0")
		require.Equal(t, 3, s.Gauge().Learned.Limit)
		s.requireBegun(5, "it was one too many")
		s.end("slow1")
		require.Equal(t, 2, s.Gauge().Learned.Limit)
		for _, name := range []string{"slow3", "slow4", "slow5", "slow6", "slow7"} {
			s.end(name)
		}
		require.Len(t, s.endedNow(), 8)
	})
}

// What was stuck may end once the number is given.
func TestStuck_UntilItIsGiven(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := newLearner(t, Options{}, 2)
		defer s.close()
		for i := range 5 {
			s.submit(fmt.Sprint("slow", i))
		}
		time.Sleep(117 * time.Millisecond)
		s.requireBegun(4)
		s.Resize(3)
		s.end("slow0")
		s.requireBegun(4, "it was one too many")
		for i := range 4 {
			s.end(fmt.Sprint("slow", 1+i))
		}
		require.Equal(t, Gauge{Strategy: "fifo", Capacity: 100, Workers: 3}, s.Gauge())
	})
}

// If nothing ever ends, more runs ever later, up to the bound.
func TestStuck_NothingEverEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, granted := lender(t, Options{}, 3)
		defer d.Close()
		tasks := acquire(d, 60)
		time.Sleep(time.Second)
		require.Equal(t, 6+4+5+6, d.Gauge().Learned.Limit, "after 116, 174, 261 and 391 ms")
		require.Len(t, granted(), 6+4+5+6-3)
		time.Sleep(time.Hour)
		require.Len(t, granted(), 47, "the bound of the number")
		require.Equal(t, 50, d.Gauge().Learned.Limit)
		d.Resize(4)
		require.Nil(t, d.Gauge().Learned)
		releaseAll(d, tasks)
		require.Len(t, granted(), 57)
		require.Zero(t, d.Gauge().Busy)
	})
}

// That some end that were stuck lends nothing to what waits, as they did not count. So it does
// not matter how many such ends there are, while all that counts hangs as well.
func TestStuck_EndsOfWhatIsStuck(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, granted := lender(t, Options{}, 2)
		defer d.Close()
		tasks := acquire(d, 60)
		time.Sleep(2 * time.Second)
		before := len(granted())
		require.Greater(t, d.Gauge().Learned.Stuck, 10)
		for _, task := range tasks[:10] {
			d.Release(task)
			time.Sleep(50 * time.Millisecond)
		}
		require.GreaterOrEqual(t, len(granted()), before+6, "2 in each of the 116 ms, at least")
		releaseAll(d, tasks[10:])
		require.Zero(t, d.Gauge().Busy)
	})
}

// That is so too if those that come are few. Once one ends, the number is its own again.
func TestStuck_FewCome(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, granted := lender(t, Options{}, 2)
		defer d.Close()
		var tasks []*Task
		waited := func() time.Duration {
			since, before := time.Now(), len(granted())
			tasks = append(tasks, request("", 1))
			d.Acquire(tasks[len(tasks)-1])
			for len(granted()) == before {
				time.Sleep(time.Millisecond)
			}
			return time.Since(since)
		}
		fill := func() {
			for d.Gauge().Learned.Limit > d.Gauge().Busy {
				tasks = append(tasks, request("", 1))
				d.Acquire(tasks[len(tasks)-1])
			}
		}
		for _, after := range []time.Duration{116, 174, 261, 392, 588} {
			fill()
			require.InDelta(t, after, waited()/time.Millisecond, 1)
		}
		fill()
		hung := len(tasks)
		require.Greater(t, hung, 16)
		d.Release(tasks[0])
		require.Equal(t, 2+d.Gauge().Learned.Stuck, d.Gauge().Learned.Limit)
		fill()
		require.InDelta(t, 116, waited()/time.Millisecond, 1)
		releaseAll(d, tasks[1:])
		require.Equal(t, 2, d.Gauge().Learned.Limit)
		require.Zero(t, d.Gauge().Busy)
	})
}

// A number that is learned anew while all hang is no less.
func TestStuck_LearnedWhileAllHang(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, granted := lender(t, Options{}, 3)
		defer d.Close()
		d.Resize(2)
		tasks := acquire(d, 4)
		time.Sleep(time.Hour)
		require.Empty(t, granted())
		d.only().limit.set(0, &learning{law: &teller{limit: 2}, bounds: concurrency.Options{Min: 1, Max: 50}})
		time.Sleep(200 * time.Millisecond)
		require.Len(t, granted(), 2)
		releaseAll(d, tasks)
	})
}

// As long as something ends, nothing is stuck.
func TestStuck_SomethingEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, granted := lender(t, Options{}, 3)
		defer d.Close()
		tasks := acquire(d, 23)
		for i, task := range tasks {
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 3, d.Gauge().Learned.Limit)
			d.Release(task)
			require.Len(t, granted(), min(20, i+1))
		}
	})
}

// The same with workers.
func TestStuck_SomeTurnEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := newLearner(t, Options{}, 2)
		defer s.close()
		for i := range 9 {
			s.submit(fmt.Sprint("slow", i))
		}
		for i := 1; i < 7; i++ {
			time.Sleep(100 * time.Millisecond)
			s.end(fmt.Sprint("slow", i))
			s.requireBegun(2 + i)
		}
	})
}

// A switch has what waits in its hands for a moment, when nothing waits. It is seen after that.
func TestStuck_Switch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, _, granted := lender(t, Options{}, 2)
		defer d.Close()
		tasks := acquire(d, 2)
		late := request("late", 1)
		late.Deadline = d.Now() + 1
		late.Done = func(*Task) { time.Sleep(50 * time.Millisecond) } // while the switch has the next one in its hands
		waits := request("2", 1)
		d.Acquire(late)
		d.Acquire(waits)
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, d.Switch("lifo"))
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, []string{"2"}, granted())
		releaseAll(d, append(tasks, waits))
	})
}

// What waits for a further turn is seen too.
func TestStuck_Continuation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := newLearner(t, Options{}, 2)
		defer s.close()
		scan := s.submit("scan")
		s.submit("slow0")
		s.submit("slow1")
		time.Sleep(time.Second) // nothing waits, so nobody watches any more
		s.Continue(scan)
		time.Sleep(200 * time.Millisecond)
		s.requireStarted("scan", "slow0", "slow1", "scan")
		s.end("slow0")
		s.end("slow1")
	})
}

// Of those that end late, the law is told that at least they ran.
func TestStuck_EndLate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 3)
		tasks := acquire(d, 4)
		time.Sleep(120 * time.Millisecond)
		require.Equal(t, []string{"3"}, granted())
		d.Close()
		for _, i := range []int{3, 0, 1, 2} {
			d.Release(tasks[i])
		}
		for _, sample := range l.told() {
			require.Equal(t, 1, sample.Running)
		}
		require.False(t, d.only().limit.timer.Stop(), "nobody waits after Close")
	})
}

// Where requests take seconds the time in between does not grow, but more begin each time.
func TestStuck_SlowService(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 4)
		defer d.Close()
		l.service = time.Second
		tasks := acquire(d, 40)
		for _, after := range []int{4, 10, 17, 26, 36} { // 4 more, times the root of 1.5 to the power of the row
			time.Sleep(16*time.Second + 101*time.Millisecond)
			require.Len(t, granted(), after)
		}
		releaseAll(d, tasks)
	})
}

// Before the first end of all, it takes seconds.
func TestStuck_NothingHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var granted atomic.Int64
		d, err := Lend(Options{
			Strategy: "fifo", Learn: &concurrency.Options{},
			Grant: func(*Task) { granted.Add(1) },
		})
		require.NoError(t, err)
		defer d.Close()
		var tasks []*Task
		for range 5 {
			tasks = append(tasks, request("", 1))
			d.Acquire(tasks[len(tasks)-1])
		}
		time.Sleep(4 * time.Second)
		require.Equal(t, 4, d.Gauge().Learned.Limit)
		time.Sleep(2 * time.Second)
		require.Equal(t, 8, d.Gauge().Learned.Limit)
		require.EqualValues(t, 1, granted.Load())
		releaseAll(d, tasks)
		require.Equal(t, 4, d.Gauge().Learned.Limit)
	})
}

// Whenever tasks are found stuck, none is taken for it once all have ended.
func TestStuck_NoneIsLeft(t *testing.T) {
	t.Parallel()
	d, err := Lend(Options{
		Strategy: "fifo", Capacity: 1000, Workers: 1, MaxBatch: 1,
		Grant: func(t *Task) { t.Payload.(chan struct{}) <- struct{}{} },
	})
	require.NoError(t, err)
	defer d.Close()
	p, l := d, &learning{law: &dice{}, bounds: concurrency.Options{Min: 1, Max: 50}}
	p.only().limit.set(0, l)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			task := &Task{Payload: make(chan struct{}, 1), Done: func(*Task) {}}
			for i := range 5_000 {
				task.Cost = 1 + rand.IntN(3)
				if !d.Acquire(task) {
					<-task.Payload.(chan struct{})
				}
				if i%8 == 0 {
					p.only().limit.change(p.only().limit.findStuckLocked)
				}
				d.Release(task)
			}
		})
	}
	clients.Wait()
	require.Zero(t, p.only().limit.stuck.Load())
	require.Zero(t, d.Gauge().Busy)
	require.Equal(t, l.Limit(), d.Gauge().Workers)
}

// The same with workers.
func TestStuck_NoWorkerIsLeft(t *testing.T) {
	t.Parallel()
	d, err := Open(Options{
		Strategy: "fifo", Capacity: 1000, Workers: 1, MaxBatch: 1,
		Run: func(tasks []*Task, done func(*Task)) { done(tasks[0]) },
	})
	require.NoError(t, err)
	p, l := d.pools[0], &learning{law: &dice{}, bounds: concurrency.Options{Min: 1, Max: 50}}
	p.limit.set(0, l)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			ended := make(chan struct{}, 1)
			task := &Task{Done: func(*Task) { ended <- struct{}{} }}
			for i := range 5_000 {
				d.Submit(task)
				if i%8 == 0 {
					p.limit.change(p.limit.findStuckLocked)
				}
				<-ended
			}
		})
	}
	clients.Wait()
	d.Close()
	require.Zero(t, p.limit.stuck.Load())
}
