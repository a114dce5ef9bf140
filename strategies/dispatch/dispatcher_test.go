package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// stage runs a dispatcher whose tasks run until they are told to end. It is
// used inside a bubble of synctest, where Wait says that everybody who could do
// something has done it.
type stage struct {
	*Dispatcher
	t *testing.T

	mu      sync.Mutex
	started []string   // names of tasks, in the order in which they started
	turns   [][]string // names of tasks, by turn
	ended   []string   // "name" or "name:reason", in the order of Done
	release map[string]chan struct{}
}

func newStage(t *testing.T, o Options) *stage {
	s := &stage{t: t, release: map[string]chan struct{}{}}
	o.Run = s.run
	if o.Capacity == 0 {
		o.Capacity = 100
	}
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 1
	}
	d, err := Open(o)
	require.NoError(t, err)
	s.Dispatcher = d
	synctest.Wait()
	return s
}

func (s *stage) run(tasks []*Task, done func(*Task)) {
	var turn []string
	s.mu.Lock()
	for _, t := range tasks {
		turn = append(turn, t.Payload.(string))
	}
	s.started = append(s.started, turn...)
	s.turns = append(s.turns, turn)
	gate := s.release[turn[0]]
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	for _, t := range tasks {
		switch name := t.Payload.(string); {
		case strings.Contains(name, "dropped"):
			t.Ended(Dropped)
		case strings.Contains(name, "unmeasured"):
			t.Ended(Ignored)
		}
		done(t)
	}
}

// use switches to a strategy that is not registered.
func (s *stage) use(spec strategies.Spec) {
	require.NoError(s.t, s.SwitchTo(spec))
}

type taskOption func(*Task)

func isWrite(t *Task) { t.Write = true }

func within(d time.Duration) taskOption {
	return func(t *Task) { t.Deadline = t.Arrival + int64(d) }
}

// task makes a task. One whose name begins with "slow" runs until end(name).
func (s *stage) task(name string, options ...taskOption) *Task {
	t := &Task{Task: strategies.Task{Arrival: s.Now()}, Payload: name}
	t.Done = func(t *Task) {
		s.mu.Lock()
		defer s.mu.Unlock()
		end := name
		if t.Shed != strategies.ReasonNone {
			end += ":" + t.Shed.String()
		}
		s.ended = append(s.ended, end)
	}
	for _, o := range options {
		o(t)
	}
	if len(name) >= 4 && name[:4] == "slow" {
		s.mu.Lock()
		s.release[name] = make(chan struct{})
		s.mu.Unlock()
	}
	return t
}

// submit submits a task and lets everybody do what they can.
func (s *stage) submit(name string, options ...taskOption) *Task {
	t := s.task(name, options...)
	go s.Submit(t) // it may run on the submitter's goroutine
	synctest.Wait()
	return t
}

func (s *stage) end(name string) {
	s.mu.Lock()
	close(s.release[name])
	delete(s.release, name)
	s.mu.Unlock()
	synctest.Wait()
}

// endAny ends a task that runs.
func (s *stage) endAny() {
	s.mu.Lock()
	i := slices.IndexFunc(s.started, func(name string) bool { return s.release[name] != nil })
	name := s.started[i]
	s.mu.Unlock()
	s.end(name)
}

// close ends all tasks and the dispatcher.
func (s *stage) close() {
	s.mu.Lock()
	for _, gate := range s.release {
		close(gate)
	}
	clear(s.release)
	s.mu.Unlock()
	s.Close()
}

func (s *stage) requireStarted(names ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s.t, names, s.started)
}

func (s *stage) requireEnded(names ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s.t, names, s.ended)
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// eachQueue runs the test for every strategy that has a queue.
func eachQueue(t *testing.T, test func(t *testing.T, spec strategies.Spec)) {
	t.Parallel()
	for _, spec := range strategies.Specs() {
		if spec.Inline {
			continue
		}
		t.Run(spec.Name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { test(t, spec) })
		})
	}
}

func TestOpen_RejectsBadOptions(t *testing.T) {
	t.Parallel()
	run := func([]*Task, func(*Task)) {}
	good := Options{Strategy: "fifo", Capacity: 1, Workers: 2, MaxBatch: 1, Run: run}
	for name, c := range map[string]struct {
		spoil func(*Options)
		want  string
	}{
		"no workers":         {func(o *Options) { o.Workers = 0 }, "0 workers, need at least 1"},
		"one worker, split":  {func(o *Options) { o.Workers, o.Split = 1, true }, "1 workers, need at least 2"},
		"capacity below 0":   {func(o *Options) { o.Capacity = -1 }, "capacity -1"},
		"empty batches":      {func(o *Options) { o.MaxBatch = 0 }, "batches of 0"},
		"nothing to run":     {func(o *Options) { o.Run = nil }, "Run is nil"},
		"no such strategy":   {func(o *Options) { o.Strategy = "nonsense" }, "choose one of adaptive-lifo, "},
		"no strategy at all": {func(o *Options) { o.Strategy = "" }, "unknown strategy"},
	} {
		o := good
		c.spoil(&o)
		_, err := Open(o)
		require.ErrorContains(t, err, c.want, name)
	}
}

// A task goes straight to an idle worker, the most recently idle first.
func TestSubmit_WakesTheMostRecentlyIdleWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 3})
		defer s.close()
		p := s.pools[0]
		for _, name := range []string{"slow1", "slow2", "slow3"} {
			s.submit(name)
		}
		s.end("slow2")
		second := p.idle.top()
		s.end("slow1")
		first := p.idle.top()
		require.NotSame(t, first, second)
		s.submit("slow4")
		require.Same(t, second, p.idle.top(), "the worker of slow1 parked last, so it is taken first")
		s.end("slow3")
		s.end("slow4")
	})
}

// No worker is parked while a task waits, whatever came in which order.
func TestDispatcher_IsWorkConserving(t *testing.T) {
	eachQueue(t, func(t *testing.T, spec strategies.Spec) {
		const workers, tasks = 4, 10
		s := newStage(t, Options{Strategy: spec.Name, Workers: workers})
		defer s.close()
		for i := range tasks {
			s.submit(fmt.Sprintf("slow%d", i))
		}
		for left := tasks; left > 0; left-- {
			s.mu.Lock()
			running := len(s.started) - len(s.ended)
			s.mu.Unlock()
			require.Equal(t, min(left, workers), running)
			g := s.Gauge()
			require.Equal(t, Gauge{
				Strategy: spec.Name, Depth: left - running, Capacity: g.Capacity, Workers: workers, Busy: running, Limit: g.Limit, Pace: g.Pace,
			}, g)
			s.endAny()
		}
		require.Zero(t, s.Gauge().Busy)
	})
}

// With one worker the order of service is exactly the discipline's.
func TestDispatcher_KeepsTheOrderOfTheDiscipline(t *testing.T) {
	eachQueue(t, func(t *testing.T, spec strategies.Spec) {
		s := newStage(t, Options{Strategy: spec.Name})
		defer s.close()
		s.submit("slow")
		for _, name := range []string{"a", "b", "c"} {
			s.submit(name)
		}
		s.end("slow")
		s.requireStartedBy(spec, "a", "b", "c")
	})
}

// requireStartedBy requires that the tasks have started after slow in an order of the strategy. If chance decides, it
// has many.
func (s *stage) requireStartedBy(spec strategies.Spec, pushed ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var order []string
	for range 1000 {
		if order = append([]string{"slow"}, inOrder(spec, pushed...)...); slices.Equal(order, s.started) {
			return
		}
	}
	require.Equal(s.t, order, s.started)
}

// inOrder returns the names in the order in which a discipline of the strategy gives
// out tasks that were pushed in that order.
func inOrder(spec strategies.Spec, pushed ...string) (popped []string) {
	q := spec.New(strategies.Config{Capacity: 100, Workers: 1})
	for i, name := range pushed {
		q.Push(&strategies.Task{Owner: name, Arrival: 1, Submitted: 1}, int64(1+i))
	}
	for q.Len() > 0 {
		t, _, _ := q.Pop(2)
		popped = append(popped, t.Owner.(string))
	}
	return popped
}

// What happens when there is no room is the discipline's decision.
func TestDispatcher_WhenFull(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]struct{ started, ended []string }{
		"codel":       {[]string{"slow", "a"}, []string{"b:full", "slow", "a"}},
		"fair":        {[]string{"slow", "b"}, []string{"a:fair", "slow", "b"}},
		"fifo":        {[]string{"slow", "a"}, []string{"b:full", "slow", "a"}},
		"mpmc":        {[]string{"slow", "a"}, []string{"b:full", "slow", "a"}},
		"sharded":     {[]string{"slow", "a"}, []string{"b:full", "slow", "a"}},
		"lifo":        {[]string{"slow", "b"}, []string{"a:displaced", "slow", "b"}},
		"drop-oldest": {[]string{"slow", "b"}, []string{"a:displaced", "slow", "b"}},
		"caller-runs": {[]string{"slow", "b", "a"}, []string{"b", "slow", "a"}},
		"unbounded":   {[]string{"slow", "a", "b"}, []string{"slow", "a", "b"}},
		"sync":        {[]string{"slow", "a", "b"}, []string{"a", "b", "slow"}},
	} {
		t.Run(strategy, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStage(t, Options{Strategy: strategy, Capacity: 1})
				defer s.close()
				s.submit("slow")
				s.submit("a")
				s.submit("b")
				s.end("slow")
				s.requireStarted(want.started...)
				s.requireEnded(want.ended...)
			})
		})
	}
}

// Writes that wait are taken together, up to the limit. A read among them ends
// the turn's collecting and goes ahead, to a parked worker if there is one.
func TestWorker_CollectsWrites(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", MaxBatch: 3})
		defer s.close()
		s.submit("slow")
		for _, name := range []string{"w1", "w2", "w3", "w4"} {
			s.submit(name, isWrite)
		}
		s.submit("r1")
		s.submit("w5", isWrite)
		s.end("slow")
		require.Equal(t, [][]string{{"slow"}, {"w1", "w2", "w3"}, {"w4"}, {"r1"}, {"w5"}}, s.turns)
	})
}

// A read that a worker has met while it collected writes waits for no commit if
// somebody else is free.
func TestWorker_DoesNotSitOnReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 2, MaxBatch: 3})
		defer s.close()
		s.submit("slow1")
		s.submit("slow2")
		s.submit("slow-write", isWrite)
		s.submit("read")
		s.end("slow1")
		s.requireStarted("slow1", "slow2", "slow-write")
		require.Equal(t, 1, s.Gauge().Depth)
		s.end("slow2")
		s.requireStarted("slow1", "slow2", "slow-write", "read")
		s.end("slow-write")
	})
}

// A read that was put back can still be given up.
func TestCancel_FindsWhatWasPutBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", MaxBatch: 3})
		defer s.close()
		s.submit("slow")
		s.submit("slow-write", isWrite)
		read := s.submit("read")
		s.end("slow")
		require.True(t, s.Cancel(read, strategies.ReasonExpired))
		require.False(t, s.Cancel(read, strategies.ReasonExpired))
		s.end("slow-write")
		s.requireEnded("slow", "read:expired", "slow-write")
	})
}

// A task is given up only while it waits, once, and makes room at once.
func TestCancel(t *testing.T) {
	eachQueue(t, func(t *testing.T, spec strategies.Spec) {
		s := newStage(t, Options{Strategy: spec.Name, Capacity: 2})
		defer s.close()
		running := s.submit("slow")
		a := s.submit("a")
		b := s.submit("b")
		require.False(t, s.Cancel(running, strategies.ReasonAbandoned))
		require.True(t, s.Cancel(a, strategies.ReasonAbandoned))
		require.False(t, s.Cancel(a, strategies.ReasonAbandoned))
		c := s.submit("c")
		s.requireEnded("a:abandoned")
		s.end("slow")
		require.False(t, s.Cancel(b, strategies.ReasonAbandoned))
		require.False(t, s.Cancel(c, strategies.ReasonAbandoned))
		require.Len(t, s.ended, 4)
	})
}

// A task whose deadline has passed is never started, wherever it was.
func TestDispatcher_NeverStartsExpiredTasks(t *testing.T) {
	eachQueue(t, func(t *testing.T, spec strategies.Spec) {
		s := newStage(t, Options{Strategy: spec.Name, MaxBatch: 4})
		defer s.close()
		s.submit("slow", isWrite)
		s.submit("write", isWrite, within(time.Millisecond))
		s.submit("read", within(time.Millisecond))
		s.submit("patient")
		time.Sleep(time.Millisecond)
		s.end("slow")
		s.requireStarted("slow", "patient")
		slices.Sort(s.ended)
		s.requireEnded("patient", "read:expired", "slow", "write:expired")
	})
}

// Turns alternate between the queue and the continuations, which take turns among
// themselves, and are not shed for being late.
func TestContinue_AlternatesWithTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		var scans []*Task
		for _, name := range []string{"scan1", "scan2", "scan3"} {
			scans = append(scans, s.submit(name, within(time.Millisecond)))
		}
		s.submit("slow")
		s.submit("a")
		s.submit("b")
		time.Sleep(time.Second)
		for _, scan := range scans {
			s.Continue(scan)
			require.False(t, s.Cancel(scan, strategies.ReasonExpired))
		}
		require.Equal(t, 2, s.Gauge().Depth, "continuations have begun: they do not wait for their turn in the queue")
		s.end("slow")
		s.requireStarted("scan1", "scan2", "scan3", "slow", "a", "scan1", "b", "scan2", "scan3")
	})
}

// At a switch what waits is moved into the new discipline, in order of arrival,
// between any two strategies; into sync it stays with the workers.
func TestSwitch_MovesWhatWaits(t *testing.T) {
	t.Parallel()
	for _, f := range strategies.Specs() {
		for _, b := range strategies.Specs() {
			from, to := f.Name, b.Name
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					var switches []string
					s := newStage(t, Options{Strategy: from, Switched: func(from, to string) {
						switches = append(switches, from+" to "+to)
					}})
					defer s.close()
					s.submit("slow")
					a := s.submit("a")
					gone := s.submit("b")
					require.NoError(t, s.Switch(to))
					require.NoError(t, s.Switch(to))
					require.Equal(t, []string{from + " to " + to}, switches)
					require.Equal(t, to, s.Gauge().Strategy)
					c := s.submit("c")
					require.Equal(t, to, c.Strategy)
					d := s.submit("d")
					require.Equal(t, to, d.Strategy)
					require.Equal(t, from, a.Strategy, "it was submitted there")
					require.Equal(t, f.Inline, !s.Cancel(gone, strategies.ReasonAbandoned), "it waits, wherever that is now")
					s.end("slow")

					switch {
					case f.Inline: // slow, a and b ran at once, and the worker was free for c
						s.requireStarted("slow", "a", "b", "c", "d")
					case b.Inline:
						s.requireStarted("slow", "c", "d", "a")
					default:
						s.requireStartedBy(b, "a", "c", "d")
					}
				})
			})
		}
	}
}

// What is moved has its place by the rules of the new strategy, and is turned away
// for its reasons; the law of the old one gives up nothing any more.
func TestSwitch_ByTheRulesOfTheNewStrategy(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		from, to       string
		started, ended []string
	}{
		// There is room for three, of five.
		{"unbounded", "fifo", []string{"slow", "0", "1", "2"}, []string{"3:full", "4:full", "slow", "0", "1", "2"}},
		{"unbounded", "lifo", []string{"slow", "4", "3", "2"}, []string{"0:displaced", "1:displaced", "slow", "4", "3", "2"}},
		{"unbounded", "drop-oldest", []string{"slow", "2", "3", "4"}, []string{"0:displaced", "1:displaced", "slow", "2", "3", "4"}},
		// Those for which there is no room stay with the worker, all in their order.
		{"unbounded", "caller-runs", []string{"slow", "0", "1", "2", "3", "4"}, []string{"slow", "0", "1", "2", "3", "4"}},
		{"unbounded", "sync", []string{"slow", "0", "1", "2", "3", "4"}, []string{"slow", "0", "1", "2", "3", "4"}},
		// CoDel would give up what waited for so long.
		{"codel", "fifo", []string{"slow", "0", "1", "2"}, []string{"3:full", "4:full", "slow", "0", "1", "2"}},
		{"lifo", "unbounded", []string{"slow", "2", "3", "4"}, []string{"0:displaced", "1:displaced", "slow", "2", "3", "4"}},
	} {
		t.Run(row.from+" to "+row.to, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStage(t, Options{Strategy: row.from, Capacity: 3})
				defer s.close()
				s.submit("slow")
				for i := range 5 {
					s.submit(fmt.Sprint(i))
					time.Sleep(10 * time.Second)
				}
				require.NoError(t, s.Switch(row.to))
				s.end("slow")
				s.requireStarted(row.started...)
				s.requireEnded(row.ended...)
			})
		})
	}
}

// A worker that has parked because nothing waited is woken for what a switch
// brings.
func TestSwitch_ExpiredWhileItIsMoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		s.submit("slow")
		s.submit("late", within(time.Second))
		s.submit("a")
		time.Sleep(time.Second)
		require.NoError(t, s.Switch("unbounded"))
		s.requireEnded("late:expired")
		s.end("slow")
		s.requireEnded("late:expired", "slow", "a")
	})
}

// A strategy that is given as a value is another than the registered one of its name.
func TestSwitch_OfTheSameName(t *testing.T) {
	t.Parallel()
	var made int
	own := strategies.Spec{Name: "fifo", New: func(c strategies.Config) strategies.Discipline {
		made++
		c.Capacity = 3
		lifo, _ := strategies.Lookup("lifo")
		return lifo.New(c)
	}}
	for _, row := range []struct {
		name     string
		begin    Options
		change   func(*Dispatcher) error
		capacity int
	}{
		{"one's own, then the registered one", Options{Spec: own}, func(d *Dispatcher) error { return d.Switch("fifo") }, 100},
		{"the registered one, then one's own", Options{Strategy: "fifo"}, func(d *Dispatcher) error { return d.SwitchTo(own) }, 3},
		{"one's own, then it again", Options{Spec: own}, func(d *Dispatcher) error { return d.SwitchTo(own) }, 3},
		{"there and back", Options{Strategy: "fifo"}, func(d *Dispatcher) error { return errors.Join(d.SwitchTo(own), d.Switch("fifo")) }, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, row.begin)
				defer s.close()
				s.submit("slow")
				s.submit("a")
				require.NoError(t, row.change(s.Dispatcher))
				require.Equal(t, row.capacity, s.Gauge().Capacity)
				s.end("slow")
				s.requireEnded("slow", "a")
			})
		})
	}
	require.NotZero(t, made)
}

func TestSwitch_UnknownStrategy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		require.ErrorIs(t, s.Switch("nonsense"), strategies.ErrUnknown)
		require.Equal(t, Gauge{Strategy: "fifo", Workers: 1, Capacity: 100}, s.Gauge())
	})
}

// A capacity that is not set is that of the active strategy.
func TestSwitch_Capacity(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ asked, fifo, auto int }{{0, 256, 4096}, {7, 7, 7}} {
		d, err := Open(Options{
			Strategy: "fifo", Capacity: tt.asked, Workers: 1, MaxBatch: 1,
			Run: func([]*Task, func(*Task)) {},
		})
		require.NoError(t, err)
		require.Equal(t, tt.fifo, d.Gauge().Capacity)
		require.NoError(t, d.Switch("auto"))
		require.Equal(t, tt.auto, d.Gauge().Capacity)
		require.NoError(t, d.Switch("lifo"))
		require.Equal(t, tt.fifo, d.Gauge().Capacity)
		d.Close()
	}
}

// The gauge is of the active strategy, and counts what waits wherever it does.
func TestGauge_AfterASwitch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Capacity: 7})
		defer s.close()
		s.submit("slow")
		s.submit("a")
		require.NoError(t, s.Switch("unbounded"))
		s.submit("b")
		require.Equal(t, Gauge{Strategy: "unbounded", Depth: 2, Capacity: strategies.Unbounded, Workers: 1, Busy: 1}, s.Gauge())
		require.NoError(t, s.Switch("sync"))
		require.Equal(t, Gauge{Strategy: "sync", Depth: 2}, s.Gauge())
		s.end("slow")
		require.Equal(t, Gauge{Strategy: "sync"}, s.Gauge())
	})
}

// Split pools serve reads and writes apart, each with the full capacity.
func TestSplit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 3, Capacity: 1, Split: true})
		defer s.close()
		require.Equal(t, Gauge{Strategy: "fifo", Workers: 3, Capacity: 2}, s.Gauge())
		s.submit("slow-r1")
		s.submit("slow-r2")
		s.submit("slow-w1", isWrite)
		s.submit("slow-r3")
		s.submit("slow-w2", isWrite)
		s.requireStarted("slow-r1", "slow-r2", "slow-w1")
		require.Equal(t, Gauge{Strategy: "fifo", Depth: 2, Capacity: 2, Workers: 3, Busy: 3}, s.Gauge())
		s.submit("r4")
		s.submit("w3", isWrite)
		s.requireEnded("r4:full", "w3:full")
		s.end("slow-r1")
		s.end("slow-r2")
		s.requireStarted("slow-r1", "slow-r2", "slow-w1", "slow-r3")
		s.end("slow-w1")
		s.end("slow-w2")
		s.end("slow-r3")
	})
}

// Drain waits for all that is in flight.
func TestDrain_LosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		s.submit("slow")
		s.submit("a")
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(context.Background()) }()
		synctest.Wait()
		require.Empty(t, drained)
		s.submit("b")
		s.end("slow")
		require.NoError(t, <-drained)
		s.requireEnded("slow", "a", "b")
	})
}

// When its time is over, Drain sheds what waits, everywhere.
func TestDrain_GivesUp(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"fifo", "lifo", "mpmc", "unbounded"} {
		t.Run(from, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStage(t, Options{Strategy: from, Workers: 2})
				defer s.close()
				scan := s.submit("scan")
				s.submit("slow1")
				s.submit("slow2")
				s.submit("a")
				require.NoError(t, s.Switch("drop-oldest"))
				s.submit("b")
				s.Continue(scan)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				require.ErrorIs(t, s.Drain(ctx), context.DeadlineExceeded)
				s.requireEnded("scan", "a:draining", "b:draining", "scan:draining")
				s.submit("late")
				s.Continue(scan)
				s.end("slow1")
				s.submit("later")
				s.requireEnded("scan", "a:draining", "b:draining", "scan:draining", "late:draining", "scan:draining", "slow1", "later:draining")
				s.end("slow2")
				require.NoError(t, s.Drain(context.Background()))
			})
		})
	}
}

// DrainTime is the depth times the service time over the workers.
func TestDrainTime(t *testing.T) {
	eachQueue(t, func(t *testing.T, spec strategies.Spec) {
		s := newStage(t, Options{Strategy: spec.Name, Workers: 1})
		defer s.close()
		require.Zero(t, s.DrainTime())
		s.submit("slow1")
		time.Sleep(3 * time.Second)
		s.end("slow1")
		s.submit("slow2")
		require.Zero(t, s.DrainTime())
		s.submit("a")
		s.submit("b")
		require.Equal(t, 6*time.Second, s.DrainTime())
		s.end("slow2")
	})
}

// Tasks that take for ever do not make it negative.
func TestDrainTime_Overflow(t *testing.T) {
	t.Parallel()
	const year = int64(365 * 24 * time.Hour)
	for _, row := range []struct{ service, waiting, width, want int64 }{
		{3e9, 2, 1, 6e9},
		{0, 4096, 8, 0},
		{7, 3, 2, 10},
		{year, 4096, 4096, year},
		{year, 4096, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 2, math.MaxInt64},
		{math.MaxInt64, 2, 2, math.MaxInt64},
	} {
		require.Equal(t, row.want, drainTime(row.service, row.waiting, row.width), row)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		for _, name := range []string{"slow1", "slow2", "a", "b", "c"} {
			s.submit(name)
		}
		time.Sleep(time.Duration(100 * year))
		s.end("slow1")
		require.Equal(t, time.Duration(math.MaxInt64), s.DrainTime())
		s.end("slow2")
	})
}

// What edf has learnt of tasks that waited, it uses at the door. What it lets in
// waits until its deadline, as under any other strategy.
func TestDispatcher_RefusesWhatCannotBeDone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "edf"})
		defer s.close()
		s.submit("slow1")
		s.submit("slow2")
		s.end("slow1")
		time.Sleep(3 * time.Second)
		s.submit("early", within(2*time.Second)) // nothing waits and nothing is learnt
		s.end("slow2")
		s.submit("slow3")
		s.submit("none")
		s.submit("hopeless", within(8*time.Second))
		s.requireEnded("slow1", "slow2", "early", "hopeless:late")
		s.submit("b", within(10*time.Second))
		s.submit("a", within(9*time.Second))
		s.end("slow3")
		s.requireStarted("slow1", "slow2", "early", "slow3", "a", "b", "none")
	})
}

// learner is a strategy of somebody else: it cannot give up tasks, and wants to
// be told of completions.
type learner struct {
	mu      sync.Mutex
	tasks   []*strategies.Task
	learned [][2]time.Duration
}

func (l *learner) Push(t *strategies.Task, _ int64) strategies.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks = append(l.tasks, t)
	return strategies.Verdict{}
}

// Pop gives up every task called "unwanted".
func (l *learner) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tasks) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	t := l.tasks[0]
	l.tasks = l.tasks[1:]
	if t.Owner.(*Task).Payload == "unwanted" {
		return t, strategies.Shed, strategies.ReasonCoDel
	}
	return t, strategies.Run, strategies.ReasonNone
}

func (l *learner) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tasks)
}

func (l *learner) Cap() int { return strategies.Unbounded }

func (l *learner) Completed(waited, service, _ int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.learned = append(l.learned, [2]time.Duration{time.Duration(waited), time.Duration(service)})
}

// A strategy may learn, may shed when popped, and need not be able to remove.
func TestDispatcher_DrivesOptionalAbilities(t *testing.T) {
	t.Parallel()
	l := new(learner)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "sync"})
		defer s.close()
		s.use(strategies.Spec{Name: "learner", New: func(strategies.Config) strategies.Discipline { return l }})
		s.submit("slow1")
		time.Sleep(time.Second)
		s.submit("unwanted")
		a := s.submit("slow2")
		require.False(t, s.Cancel(a, strategies.ReasonAbandoned))
		time.Sleep(time.Second)
		s.end("slow1")
		time.Sleep(3 * time.Second)
		s.end("slow2")
		s.requireEnded("slow1", "unwanted:codel", "slow2")
		require.Equal(t, [][2]time.Duration{{time.Second, 3 * time.Second}}, l.learned)
	})
}

// Each step is told to the strategy that the task was submitted to.
func TestEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		add := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf(format, args...))
		}
		s := newStage(t, Options{Strategy: "fifo", Capacity: 1, Events: func(spec strategies.Spec) Events {
			name := spec.Name
			return Events{
				Submitted: func() { add("%s submitted", name) },
				Started:   func(d time.Duration) { add("%s started after %v", name, d) },
				Shed:      func(r strategies.Reason) { add("%s shed %v", name, r) },
			}
		}})
		defer s.close()
		s.submit("slow")
		time.Sleep(time.Second)
		s.submit("a")
		s.submit("b")
		require.NoError(t, s.Switch("sync"))
		scan := s.submit("c")
		s.Continue(scan)
		time.Sleep(time.Second)
		s.end("slow")
		require.Equal(t, []string{
			"fifo submitted", "fifo started after 0s",
			"fifo submitted",
			"fifo submitted", "fifo shed full",
			"sync submitted", "sync started after 0s",
			"fifo started after 1s",
		}, log)
	})
}
