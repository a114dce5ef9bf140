package dispatch

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// teller is a law that says what it is told to say, and notes what it is told.
type teller struct {
	mu      sync.Mutex
	limit   int
	next    int // from the next completion on, 0 for no other
	samples []concurrency.Sample
	service time.Duration // a millisecond if it is 0
	pause   time.Duration
}

func (l *teller) Limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

func (l *teller) Completed(s concurrency.Sample) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, s)
	if l.next == 0 {
		return l.limit, false
	}
	l.limit, l.next = l.next, 0
	return l.limit, true
}

func (l *teller) Pause() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.pause)
}

func (l *teller) Why() string { return "a test says so" }

func (l *teller) Service() int64 { return int64(cmp.Or(l.service, time.Millisecond)) }

// says has the law answer n to the next completion.
func (l *teller) says(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = n
}

// pauses is the same, with a pause from now on, or with none.
func (l *teller) pauses(n int, pause time.Duration) {
	l.says(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pause = pause
}

// told returns what the law was told since the last call.
func (l *teller) told() []concurrency.Sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := slices.Clone(l.samples)
	l.samples = nil
	return told
}

// dice is a law that says anything from 1 to 9, as often as not.
type dice struct {
	limit atomic.Int64
	pause atomic.Bool
}

func (l *dice) Limit() int { return int(max(1, l.limit.Load())) }

func (l *dice) Completed(concurrency.Sample) (int, bool) {
	n := rand.Int64N(16)
	if n == 0 || n > 9 {
		return l.Limit(), false
	}
	l.limit.Store(n)
	l.pause.Store(rand.IntN(8) == 0)
	return int(n), true
}

func (l *dice) Pause() int64 {
	if l.pause.Load() {
		return 1
	}
	return 0
}

func (l *dice) Why() string { return "chance" }

func (l *dice) Service() int64 { return 1 }

// newLearner returns a stage whose number of workers is what a law says.
func newLearner(t *testing.T, o Options, limit int) (*stage, *teller) {
	o.Strategy, o.Epoch = "fifo", time.Now().Add(-time.Hour)
	s, l := newStage(t, o), &teller{limit: limit}
	s.pools[0].limit.set(0, &learning{law: l, bounds: concurrency.Options{Min: 1, Max: 50}})
	synctest.Wait()
	return s, l
}

// The law is told of each turn of a worker: when it began and ended, and whether something
// waits. The number follows it at once, up and down.
func TestLearn_Workers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{}, 2)
		defer s.close()
		for i := range 8 {
			s.submit(fmt.Sprint("slow", i))
		}
		s.requireBegun(2)
		require.Empty(t, l.told())
		time.Sleep(4 * time.Millisecond)
		l.says(4)
		s.end("slow0")
		s.requireBegun(5, "one has ended, and four run")
		hour := int64(time.Hour)
		require.Equal(t, []concurrency.Sample{{Now: hour + 4e6, Began: hour, Running: 2, Waiting: true}}, l.told())
		require.Equal(t, &Learned{Limit: 4, Min: 1, Max: 50, Why: "a test says so"}, s.Gauge().Learned)
		require.Equal(t, 4, s.Gauge().Workers)
		require.Equal(t, 4, s.Gauge().Busy)

		l.says(1)
		s.end("slow1")
		s.end("slow2")
		s.end("slow3")
		s.requireBegun(5, "one of those that run is left")
		require.Equal(t, 1, s.Gauge().Workers)
		s.end("slow4")
		s.requireBegun(6)
		s.end("slow5")
		s.end("slow6")
		l.told()
		s.end("slow7")
		require.False(t, l.told()[0].Waiting)
		require.Len(t, s.endedNow(), 8)
	})
}

// A turn with several writes is one sample, and what is not run is none.
func TestLearn_TurnsAreTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{MaxBatch: 4}, 1)
		defer s.close()
		s.submit("slow")
		s.submit("w1", isWrite)
		s.submit("w2", isWrite)
		s.submit("late", within(time.Millisecond))
		time.Sleep(time.Millisecond)
		s.end("slow")
		s.requireEnded("slow", "late:expired", "w1", "w2")
		require.Len(t, l.told(), 2)
	})
}

// Whoever runs a task may say that it was dropped, or that its duration says nothing. Of
// several writes one that was dropped counts for all. What a task said last time is gone.
func TestLearn_OutcomesAreTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{MaxBatch: 4}, 1)
		defer s.close()
		s.submit("slow")
		s.submit("dropped")
		s.submit("unmeasured")
		s.submit("good")
		s.submit("w1", isWrite)
		s.submit("w2 dropped", isWrite)
		s.submit("w3 unmeasured", isWrite)
		s.end("slow")
		s.requireEnded("slow", "dropped", "unmeasured", "good", "w1", "w2 dropped", "w3 unmeasured")
		var dropped []bool
		for _, sample := range l.told() {
			dropped = append(dropped, sample.Dropped)
		}
		require.Equal(t, []bool{false, true, false, true}, dropped, "slow, dropped, good and the writes")
		require.EqualValues(t, 2, s.Gauge().Learned.Dropped)

		s.Resize(1)
		s.submit("dropped, though nobody learns")
		synctest.Wait()
		require.Len(t, s.endedNow(), 8)
		require.Empty(t, l.told())
	})
}

// Under observe the number holds nobody back, and the law is told nothing.
func TestLearn_Observed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{Observe: true}, 2)
		defer s.close()
		for i := range 8 {
			s.submit(fmt.Sprint("slow", i))
		}
		s.requireBegun(8)
		require.EqualValues(t, 8, s.pools[0].count.Load(), "as many as are needed")
		l.says(3)
		s.end("slow0")
		require.Empty(t, l.told())
		require.Equal(t, 50, s.Gauge().Workers)
		require.Zero(t, s.Gauge().Learned.Limit)
		require.Contains(t, s.Gauge().Learned.Why, "observe mode")
		require.Equal(t, 7, s.Gauge().Busy)
	})
}

// The number is given and learned in turns: what was under way then tells nothing.
func TestLearn_Changes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{}, 1)
		defer s.close()
		s.submit("slow1")
		s.submit("slow2")
		s.submit("slow3")
		s.Resize(2)
		synctest.Wait()
		s.requireBegun(2)
		require.Nil(t, s.Gauge().Learned)
		s.end("slow1")
		require.Empty(t, l.told())
		require.NoError(t, s.Learn(concurrency.Options{Min: 7, Max: 7}))
		require.Equal(t, 7, s.Gauge().Workers)
		require.Equal(t, 7, s.Gauge().Learned.Min)
		require.ErrorContains(t, s.Learn(concurrency.Options{Min: 3, Max: 2}), "at least 3 is more than at most 2")
	})
}

// What is learned is so between the bounds, which must not cross; pools that are split
// have no number that could be.
func TestLearn_Options(t *testing.T) {
	t.Parallel()
	run := func([]*Task, func(*Task)) {}
	for _, row := range []struct {
		name string
		o    Options
		want string
	}{
		{"crossed bounds", Options{Learn: &concurrency.Options{Min: 3, Max: 2}}, "at least 3 is more than at most 2"},
		{"a number as well", Options{Learn: &concurrency.Options{}, Workers: 3}, "Learn excludes Split and Workers"},
		{"split", Options{Learn: &concurrency.Options{}, Split: true}, "Learn excludes Split and Workers"},
		{"neither", Options{}, "0 workers, need at least 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.o.Strategy, row.o.MaxBatch, row.o.Run = "fifo", 1, run
			_, err := Open(row.o)
			require.ErrorContains(t, err, row.want)
		})
	}
	d, err := Open(Options{Strategy: "fifo", MaxBatch: 1, Run: run, Learn: &concurrency.Options{}})
	require.NoError(t, err)
	learned := d.Gauge().Learned
	require.Equal(t, 1, learned.Min)
	require.Equal(t, concurrency.DefaultMax, learned.Max)
	require.Equal(t, learned.Limit, d.Gauge().Workers)
	require.Zero(t, d.pools[0].count.Load(), "nobody needs a worker yet")
	d.Close()
}

// lender returns a dispatcher of places, whose number is what a law says, and which notes
// what it grants.
func lender(t *testing.T, o Options, limit int) (d *Places, l *teller, granted func() []string) {
	var mu sync.Mutex
	var names []string
	o.Strategy, o.Epoch, o.Workers = "fifo", time.Now().Add(-time.Hour), 1
	o.Grant = func(t *Task) {
		mu.Lock()
		defer mu.Unlock()
		names = append(names, t.Payload.(string))
	}
	d, err := Lend(o)
	require.NoError(t, err)
	l = &teller{limit: limit}
	d.only().limit.set(0, &learning{law: l, bounds: concurrency.Options{Min: 1, Max: 50}})
	return d, l, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(names)
	}
}

func request(name string, cost int) *Task {
	return &Task{Payload: name, Done: func(*Task) {}, Task: strategies.Task{Cost: cost}}
}

// Places are as many as the law says: where it says fewer while all are taken, so many have
// to come back before the next is given.
func TestLearn_Places(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 3)
		defer d.Close()
		tasks := map[string]*Task{}
		ask := func(name string, cost int) bool {
			tasks[name] = request(name, cost)
			return d.Acquire(tasks[name])
		}
		for _, name := range []string{"a", "b", "c"} {
			require.True(t, ask(name, 1))
		}
		for _, name := range []string{"d", "e", "f"} {
			require.False(t, ask(name, 1))
		}
		require.False(t, ask("wide", 5))
		time.Sleep(time.Millisecond)
		l.says(1)
		d.Release(tasks["a"])
		require.Empty(t, granted())
		require.Equal(t, 1, d.Gauge().Workers)
		require.Equal(t, 2, d.Gauge().Busy)
		d.Release(tasks["b"])
		require.Empty(t, granted())
		d.Release(tasks["c"])
		require.Equal(t, []string{"d"}, granted())
		hour := int64(time.Hour)
		at := hour + 1e6
		want := func(running int) concurrency.Sample {
			return concurrency.Sample{Now: at, Began: hour, Running: running, Waiting: true}
		}
		require.Equal(t, []concurrency.Sample{want(3), want(2), want(1)}, l.told())

		l.says(4)
		time.Sleep(time.Millisecond)
		d.Release(tasks["d"])
		require.Equal(t, []string{"d", "e", "f"}, granted(), "and the wide one gathers")
		require.Equal(t, []concurrency.Sample{{Now: at + 1e6, Began: at, Running: 1, Waiting: true}}, l.told())
		l.says(2)
		d.Release(tasks["e"])
		d.Release(tasks["f"])
		require.Equal(t, []string{"d", "e", "f", "wide"}, granted(), "it takes all that there are")
		d.Release(tasks["wide"])
		require.Zero(t, d.Gauge().Busy)
		require.Len(t, l.told(), 3, "whatever it cost, one sample")
	})
}

// A sample may be taken before its place is given back, by whoever is first and once, and
// may say that it was no good, or nothing.
func TestLearn_Answered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, _ := lender(t, Options{}, 3)
		defer d.Close()
		for _, row := range []struct {
			name string
			how  Outcome
			told bool
		}{{"good", Good, true}, {"dropped", Dropped, true}, {"unmeasured", Ignored, false}} {
			task := request(row.name, 1)
			require.True(t, d.Acquire(task))
			time.Sleep(time.Millisecond)
			d.Answered(task, task.Began(), row.how)
			told := l.told()
			require.Equal(t, row.told, len(told) == 1, row.name)
			if row.told {
				require.EqualValues(t, time.Millisecond, told[0].Now-told[0].Began)
				require.Equal(t, row.how == Dropped, told[0].Dropped)
			}
			require.Equal(t, 1, d.Gauge().Busy, "its place is not free")
			time.Sleep(time.Millisecond)
			d.Answered(task, task.Began(), Good)
			d.Release(task)
			require.Empty(t, l.told())
			require.Zero(t, d.Gauge().Busy)
		}
		require.EqualValues(t, 1, d.Gauge().Learned.Dropped)
	})
}

// Who says how a task ended while it is released, and gets its places anew, says nothing of
// what it does then.
func TestLearn_AnsweredTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, _ := lender(t, Options{}, 3)
		defer d.Close()
		task := request("", 1)
		require.True(t, d.Acquire(task))
		began := task.Began()
		time.Sleep(time.Millisecond)
		d.Release(task)
		d.Answered(task, began, Dropped)
		require.True(t, d.Acquire(task))
		d.Answered(task, began, Dropped)
		d.Answered(task, 0, Dropped)
		time.Sleep(2 * time.Millisecond)
		d.Release(task)
		told := l.told()
		require.Len(t, told, 2)
		for i, took := range []time.Duration{time.Millisecond, 2 * time.Millisecond} {
			require.EqualValues(t, took, told[i].Now-told[i].Began)
			require.False(t, told[i].Dropped)
		}
		require.Zero(t, d.Gauge().Learned.Dropped)
	})
}

// Under observe nobody waits for a place.
func TestLearn_PlacesObserved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, _ := lender(t, Options{Observe: true}, 2)
		defer d.Close()
		var tasks []*Task
		for range 10 {
			tasks = append(tasks, request("", 3))
			require.True(t, d.Acquire(tasks[len(tasks)-1]))
		}
		g := d.Gauge()
		require.Equal(t, 50, g.Workers)
		require.Equal(t, 30, g.Busy)
		d.Answered(tasks[0], tasks[0].Began(), Dropped)
		releaseAll(d, tasks)
		require.Empty(t, l.told())
		require.EqualValues(t, 1, d.Gauge().Learned.Dropped, "which needs no law")
		require.Zero(t, d.Gauge().Busy)
	})
}

// What a strategy without a queue grants is beyond the places, and no sample.
func TestLearn_Inline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, _ := lender(t, Options{}, 1)
		defer d.Close()
		require.NoError(t, d.Switch("sync"))
		for range 3 {
			task := request("", 1)
			require.True(t, d.Acquire(task))
			d.Answered(task, task.Began(), Good)
			d.Release(task)
		}
		require.Empty(t, l.told())
		require.Zero(t, d.Gauge().Workers)
		require.NotNil(t, d.Gauge().Learned)
	})
}

// A task counts as dropped only if it had as long, when it got its places, as good ones take.
func TestLearn_Hurried(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, l, granted := lender(t, Options{}, 1)
		defer d.Close()
		l.service = time.Hour // so that nothing is found stuck
		// run ends a task that got its places at once, or after a wait, with so much time left.
		run := func(left, wait, took time.Duration, how Outcome) (told bool) {
			task := request("", 1)
			if left != 0 {
				task.Deadline = d.Now() + int64(wait+left)
			}
			var first *Task
			if wait > 0 {
				first = request("first", 1)
				require.True(t, d.Acquire(first))
				first.began.Store(0) // which says nothing
			}
			require.Equal(t, wait == 0, d.Acquire(task))
			if wait > 0 {
				time.Sleep(wait)
				before := len(granted())
				d.Release(first)
				require.Len(t, granted(), before+1)
			}
			time.Sleep(took)
			d.Answered(task, task.Began(), how)
			d.Release(task)
			samples := l.told()
			if len(samples) == 0 {
				return false
			}
			require.Equal(t, how == Dropped, samples[0].Dropped)
			require.EqualValues(t, took, samples[0].Now-samples[0].Began)
			return true
		}
		require.True(t, run(time.Second, 0, time.Second, Dropped), "nobody knows yet what is usual")
		for range 100 {
			require.True(t, run(time.Minute, 0, 2*time.Second, Good))
		}
		for _, wait := range []time.Duration{0, time.Minute} {
			require.True(t, run(0, wait, time.Millisecond, Dropped), "it has no deadline")
			require.True(t, run(3*time.Second, wait, 3*time.Second, Dropped))
			require.True(t, run(3*time.Second, wait, time.Millisecond, Dropped), "it was refused")
			require.False(t, run(time.Second, wait, time.Second, Dropped), "it waited")
			require.True(t, run(time.Second, wait, time.Second, Good))
		}
		for range 100 { // and all that time out had time
			require.True(t, run(3*time.Second, 0, 3*time.Second, Dropped))
		}
		require.True(t, run(time.Hour, 0, time.Hour, Good))
		require.True(t, run(3*time.Second, 0, 3*time.Second, Dropped), "one that takes long is not usual")
	})
}

// The same with workers.
func TestLearn_HurriedWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := newLearner(t, Options{}, 1)
		defer s.close()
		s.submit("slow")
		time.Sleep(2 * time.Second)
		s.end("slow")
		s.submit("dropped")
		s.submit("dropped, in time", within(3*time.Second))
		s.submit("dropped, late", within(time.Second))
		var dropped []bool
		for _, sample := range l.told() {
			dropped = append(dropped, sample.Dropped)
		}
		require.Equal(t, []bool{false, true, true}, dropped)
		require.Len(t, s.endedNow(), 4)
	})
}

// Who is shown the number while it is learned or given anew sees one of the two, and never none.
func TestLearn_NumberIsNeverNone(t *testing.T) {
	t.Parallel()
	d, err := Lend(Options{Strategy: "fifo", Workers: 3, Grant: func(*Task) {}})
	require.NoError(t, err)
	over := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if n := d.only().limit.number(false); n < 1 {
					t.Errorf("the number is %d", n)
					return
				}
			}
		})
	}
	for range 1000 {
		require.NoError(t, d.Learn(concurrency.Options{}))
		d.Resize(3)
	}
	close(over)
	readers.Wait()
	d.Close()
}
