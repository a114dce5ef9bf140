package dispatch

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// scripted is a fifo queue that lets a test act in the middle of a Pop, and so
// between any two steps of a worker that looks for work.
type scripted struct {
	strategies.Discipline
	remover strategies.Remover
	// popped is called, if it is set, when a Pop has found what it will return,
	// for the n-th time since it was set.
	popped atomic.Pointer[func(n int)]
	n      atomic.Int64
	// before is called, if it is set, at the beginning of a Pop likewise.
	before atomic.Pointer[func(n int)]
	// counted is called once, if it is set, when Len has counted, and pushing and pushed before and after a Push.
	counted, pushing, pushed atomic.Pointer[func()]
}

// once calls what is set, and forgets it.
func once(f *atomic.Pointer[func()]) {
	if f := f.Swap(nil); f != nil {
		(*f)()
	}
}

func (q *scripted) Len() int {
	n := q.Discipline.Len()
	once(&q.counted)
	return n
}

func (q *scripted) Push(t *strategies.Task, now int64) strategies.Verdict {
	once(&q.pushing)
	defer once(&q.pushed)
	return q.Discipline.Push(t, now)
}

func (q *scripted) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	n := int(q.n.Add(1))
	if f := q.before.Load(); f != nil {
		(*f)(n)
	}
	t, what, reason := q.Discipline.Pop(now)
	if f := q.popped.Load(); f != nil {
		(*f)(n)
	}
	return t, what, reason
}

func (q *scripted) Remove(t *strategies.Task) bool { return q.remover.Remove(t) }

// script sets what happens before and after the Pops to come.
func (q *scripted) script(before, popped func(n int)) {
	q.n.Store(0)
	q.before.Store(&before)
	q.popped.Store(&popped)
}

func ignore(int) {}

// newScripted returns a stage with one worker, whose queue is scripted.
func newScripted(t *testing.T, o Options) (*stage, *scripted) {
	o.Strategy = "sync"
	s := newStage(t, o)
	q := new(scripted)
	s.use(strategies.Spec{Name: "scripted", New: func(c strategies.Config) strategies.Discipline {
		spec, err := strategies.Lookup("fifo")
		require.NoError(t, err)
		q.Discipline = spec.New(c)
		q.remover = q.Discipline.(strategies.Remover)
		return q
	}})
	return s, q
}

// A worker that has just parked is not handed a task past those that came
// while it parked.
func TestSubmit_HandsNoTaskPastOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{})
		defer s.close()
		s.submit("slow")
		found := func() { // nothing, and the worker is not on the stack yet
			s.Submit(s.task("a"))
			s.Submit(s.task("b"))
		}
		q.counted.Store(&found)
		q.script(func(n int) {
			if n == 1 { // the worker is on the stack now, and looks again
				s.Submit(s.task("c"))
			}
		}, ignore)
		s.end("slow")
		s.requireStarted("slow", "a", "b", "c")
	})
}

// A worker looks at the clock before it looks into the queue. What comes in between has not begun before it came.
func TestWorker_BeginsNothingBeforeItCame(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var waited time.Duration
		s, q := newScripted(t, Options{Events: func(strategies.Spec) Events {
			return Events{Submitted: func() {}, Started: func(d time.Duration) { waited = d }, Shed: func(strategies.Reason) {}}
		}})
		defer s.close()
		s.submit("slow")
		ahead, late := s.submit("ahead"), s.task("late")
		q.script(func(n int) {
			if n == 1 { // the worker has the time of its turn
				time.Sleep(time.Second)
				require.True(t, s.Cancel(ahead, strategies.ReasonAbandoned))
				s.Submit(late)
			}
		}, ignore)
		s.end("slow")
		time.Sleep(time.Second)
		synctest.Wait()
		s.requireStarted("slow", "late")
		require.Equal(t, late.Submitted, late.Started)
		require.Zero(t, waited)
	})
}

// handedTooMuch makes a worker that has just parked find a task, which is slow,
// while it is handed another. Before it knows of the second, act is called.
func handedTooMuch(s *stage, q *scripted, second *Task, act func()) {
	q.script(func(n int) {
		if n == 1 {
			s.Submit(second)
			s.Submit(s.task("slow"))
		}
	}, func(n int) {
		if n == 1 {
			act()
		}
	})
	s.submit("first")
	time.Sleep(time.Second) // act may sleep, too
	synctest.Wait()
	s.requireStarted("first", "slow")
}

// A task that is handed to a worker which has found another meanwhile, and is
// too late then, is answered at once.
func TestWorker_ShedsWhatExpiresInItsHands(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{})
		defer s.close()
		second := s.task("second", within(time.Millisecond))
		handedTooMuch(s, q, second, func() {
			time.Sleep(time.Millisecond)
			require.False(t, s.Cancel(second, strategies.ReasonExpired), "the worker has it")
		})
		s.requireEnded("first", "second:expired")
	})
}

// A drain that is out of time sheds such a task as well.
func TestDrain_GivesUpWhatAWorkerPutsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{})
		defer s.close()
		late, cancel := context.WithCancel(context.Background())
		cancel()
		handedTooMuch(s, q, s.task("second"), func() { require.Error(t, s.Drain(late)) })
		s.requireEnded("first", "second:draining")
	})
}

// So it does with a read that a worker has met while it collected writes.
func TestDrain_GivesUpWhatACollectorPutsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{MaxBatch: 4})
		defer s.close()
		s.submit("slow")
		s.submit("slow-write", isWrite)
		s.submit("read")
		late, cancel := context.WithCancel(context.Background())
		cancel()
		var drained atomic.Bool
		q.script(ignore, func(n int) {
			if n != 2 { // the read has been popped, and is nowhere
				return
			}
			go func() {
				_ = s.Drain(late)
				drained.Store(true)
			}()
			// The drain may end now, or wait for the worker.
			for range 1000 {
				if drained.Load() {
					break
				}
				runtime.Gosched()
			}
		})
		s.end("slow")
		s.requireStarted("slow", "slow-write")
		require.True(t, drained.Load())
		s.requireEnded("slow", "read:draining")
	})
}

// Several may wait for the same drain.
func TestDrain_Twice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		s.submit("slow")
		drained := make(chan error, 2)
		for range 2 {
			go func() { drained <- s.Drain(context.Background()) }()
		}
		synctest.Wait()
		s.end("slow")
		require.Len(t, drained, 2)
	})
}

// Workers and submitters go on while somebody is told of a switch.
func TestSwitch_HoldsUpNoWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		told := make(chan struct{})
		s := newStage(t, Options{Strategy: "fifo", Switched: func(string, string) { <-told }})
		defer s.close()
		s.submit("slow")
		s.submit("a")
		go func() { _ = s.Switch("unbounded") }()
		synctest.Wait()
		s.submit("b")
		s.end("slow")
		s.requireEnded("slow", "a", "b")
		close(told)
	})
}

// A switch, or a drain, does not wait for a submitter on its way into the discipline: that finds out, and moves its task.
func TestSubmit_WhileItsDisciplineIsEmptied(t *testing.T) {
	late, cancel := context.WithCancel(context.Background())
	cancel()
	for _, row := range []struct {
		name    string
		empties func(*stage) error
		ended   []string
	}{
		{"a switch", func(s *stage) error { return s.Switch("lifo") }, []string{"slow", "b", "a"}},
		{"two switches", func(s *stage) error { return errors.Join(s.Switch("lifo"), s.Switch("fifo")) }, []string{"slow", "a", "b"}},
		{"a drain", func(s *stage) error {
			require.ErrorIs(t, s.Drain(late), context.Canceled)
			return nil
		}, []string{"a:draining", "b:draining", "slow"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, q := newScripted(t, Options{})
				defer s.close()
				s.submit("slow")
				pushing := func() { require.NoError(t, row.empties(s)) }
				q.pushing.Store(&pushing)
				s.submit("a")
				s.submit("b")
				s.end("slow")
				s.requireEnded(row.ended...)
				require.Zero(t, s.Gauge().Depth)
			})
		})
	}
}

// A range that was run and whose continuation is shed counts as run alone.
func TestDrain_CountsContinuationsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var submitted, started, shed atomic.Int64
		s := newStage(t, Options{Strategy: "fifo", Events: func(strategies.Spec) Events {
			return Events{
				Submitted: func() { submitted.Add(1) },
				Started:   func(time.Duration) { started.Add(1) },
				Shed:      func(strategies.Reason) { shed.Add(1) },
			}
		}})
		defer s.close()
		scan := s.submit("scan")
		s.submit("slow")
		s.Continue(scan)
		late, cancel := context.WithCancel(context.Background())
		cancel()
		require.Error(t, s.Drain(late))
		s.Continue(scan)
		s.requireEnded("scan", "scan:draining", "scan:draining")
		require.EqualValues(t, 2, submitted.Load())
		require.Equal(t, submitted.Load(), started.Load()+shed.Load())
	})
}
