package dispatch

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// fragile is a third party's discipline, first-in first-out, of which one method panics, once it is armed, so many
// times: before it has done what it does or, if after is set, then.
type fragile struct {
	strategies.Discipline
	method string
	after  bool
	armed  *atomic.Int64
}

func (f *fragile) panics(method string, after bool) {
	if method == f.method && after == f.after && f.armed.Add(-1) >= 0 {
		panic("index out of range")
	}
}

func (f *fragile) Push(t *strategies.Task, now int64) strategies.Verdict {
	f.panics("Push", false)
	defer f.panics("Push", true)
	return f.Discipline.Push(t, now)
}

func (f *fragile) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	f.panics("Pop", false)
	defer f.panics("Pop", true)
	return f.Discipline.Pop(now)
}

func (f *fragile) Len() int { f.panics("Len", false); return f.Discipline.Len() }
func (f *fragile) Cap() int { f.panics("Cap", false); return f.Discipline.Cap() }

func (f *fragile) Remove(t *strategies.Task) bool {
	f.panics("Remove", false)
	defer f.panics("Remove", true)
	return f.Discipline.(strategies.Remover).Remove(t)
}

func (f *fragile) Completed(_, _, _ int64) { f.panics("Completed", false) }
func (f *fragile) Resize(int)              { f.panics("Resize", false) }
func (f *fragile) TurnBegan(int64)         { f.panics("TurnBegan", false) }
func (f *fragile) Measured() strategies.Measured {
	f.panics("Measured", false)
	return strategies.Measured{}
}

func fragileSpec(t *testing.T, method string, after bool, armed *atomic.Int64) strategies.Spec {
	fifo, err := strategies.Lookup("fifo")
	require.NoError(t, err)
	return strategies.Spec{Name: "fragile", New: func(c strategies.Config) strategies.Discipline {
		return &fragile{Discipline: fifo.New(c), method: method, after: after, armed: armed}
	}}
}

// eachPanic runs the test for each method of a discipline, panicking in it once or for ever.
func eachPanic(t *testing.T, test func(t *testing.T, spec func(*testing.T) strategies.Spec, method string, arm func())) {
	t.Parallel()
	for _, method := range []string{"Push", "Pop", "Len", "Cap", "Remove", "Completed", "Resize", "TurnBegan", "Measured"} {
		for how, times := range map[string]int64{"once": 1, "ever": 1 << 40} {
			for _, after := range []bool{false, true} {
				if after && method != "Push" && method != "Pop" && method != "Remove" {
					continue // it does nothing that could be lost
				}
				name := method + " " + how
				if after {
					name += ", when it is done"
				}
				t.Run(name, func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						armed := new(atomic.Int64)
						spec := func(t *testing.T) strategies.Spec { return fragileSpec(t, method, after, armed) }
						test(t, spec, method, func() { armed.Store(times) })
					})
				})
			}
		}
	}
}

// A panic of a discipline ends in the call that met it: no lock stays taken, it is told once, every task ends or can be
// given up, and another strategy takes over.
func TestPanic_Workers(t *testing.T) {
	eachPanic(t, func(t *testing.T, spec func(*testing.T) strategies.Spec, method string, arm func()) {
		var told []string
		s := newStage(t, Options{Workers: 2, MaxBatch: 4, Strategy: "fifo", Broken: func(_, rule string) { told = append(told, rule) }})
		s.use(spec(t))
		for _, name := range []string{"slow1", "slow2"} {
			s.submit(name)
		}
		waiting := []*Task{s.submit("a"), s.submit("b", isWrite), s.submit("c")}
		arm()
		waiting = append(waiting, s.submit("d", isWrite), s.submit("e"))
		s.Resize(3)
		s.Gauge()
		s.Cancel(waiting[0], strategies.ReasonAbandoned)
		s.Resize(2)
		s.end("slow1")
		s.end("slow2")
		synctest.Wait()
		s.Gauge()
		for _, task := range waiting {
			s.Cancel(task, strategies.ReasonAbandoned)
		}
		require.Len(t, s.endedNow(), 7, "each ended once")
		require.Len(t, told, 1)
		require.True(t, strings.HasPrefix(told[0], method+" panicked: index out of range"), told[0])
		require.NoError(t, s.Switch("fifo"))
		s.submit("f")
		require.Equal(t, "f", s.endedNow()[7])
		s.close()
	})
}

// The same with places.
func TestPanic_Places(t *testing.T) {
	eachPanic(t, func(t *testing.T, spec func(*testing.T) strategies.Spec, method string, arm func()) {
		var told []string
		granted := make(chan *Task, 10)
		shed := make(chan *Task, 10)
		d, err := Lend(Options{
			Workers: 2, Capacity: 100, Spec: spec(t), Grant: func(t *Task) { granted <- t },
			Broken: func(_, rule string) { told = append(told, rule) },
		})
		require.NoError(t, err)
		time.Sleep(time.Second) // at 0 a task that has waited looks as if it had not
		acquire := func(cost int) *Task {
			task := &Task{Task: strategies.Task{Cost: cost}, Done: func(t *Task) { shed <- t }}
			if d.Acquire(task) {
				granted <- task
			}
			return task
		}
		held := []*Task{acquire(1), acquire(1)}
		<-granted
		<-granted
		waiting := []*Task{acquire(1), acquire(2)}
		arm()
		waiting = append(waiting, acquire(1), acquire(2))
		d.Resize(3)
		d.Gauge()
		d.Cancel(waiting[0], strategies.ReasonAbandoned)
		d.Resize(2)
		for _, task := range held {
			d.Release(task)
		}
		ended := 0
		for over := false; !over; {
			synctest.Wait()
			select {
			case task := <-granted:
				d.Release(task)
				ended++
			default:
				over = true
			}
		}
		for _, task := range waiting {
			d.Cancel(task, strategies.ReasonAbandoned)
		}
		require.Equal(t, 4, ended+len(shed), "each ended once")
		require.Len(t, told, 1)
		require.True(t, strings.HasPrefix(told[0], method+" panicked: index out of range"), told[0])
		require.NoError(t, d.Switch("fifo"))
		require.True(t, d.Acquire(waiting[0]))
		require.Equal(t, 1, d.Gauge().Busy)
		d.Release(waiting[0])
		time.Sleep(time.Minute)
		require.Zero(t, d.Gauge().Busy)
		d.Close()
	})
}

// A strategy of which New panics is not switched to.
func TestPanic_New(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		err := s.SwitchTo(strategies.Spec{Name: "fragile", New: func(strategies.Config) strategies.Discipline { panic("no") }})
		require.EqualError(t, err, `strategy "fragile": New panicked: no`)
		require.Equal(t, "fifo", s.Gauge().Strategy)
		require.NoError(t, s.Switch("lifo"))
	})
}

// A task that was cancelled while a discipline that has panicked had just popped it is not taken for what its submitter
// has made of it since.
func TestPanic_CancelWhileItIsPopped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{Capacity: 1})
		defer s.close()
		s.submit("slow")
		a := s.submit("a")
		panics, offered, goOn := func() { panic("no") }, make(chan struct{}), make(chan struct{})
		q.counted.Store(&panics)
		s.Gauge()
		q.script(ignore, func(n int) {
			if n != 1 {
				return
			}
			q.popped.Store(nil)
			require.True(t, s.Cancel(a, strategies.ReasonAbandoned), "the discipline may have lost it")
			pushing := func() {
				close(offered)
				<-goOn
			}
			q.pushing.Store(&pushing)
			go s.Submit(a) // which is offered now, and not yet in the queue
			<-offered
		})
		s.end("slow")
		q.Discipline.Push(&s.task("b").Task, s.Now()) // so that the queue is full
		close(goOn)
		synctest.Wait()
		s.requireEnded("slow", "a:abandoned", "a:full")
	})
}

// A task that a Push has queued before it panics, and that has run by then, ends once.
func TestPanic_PushOfWhatHasRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{})
		defer s.close()
		s.submit("slow")
		panics := func() {
			s.end("slow")
			s.requireEnded("slow", "a")
			panic("no")
		}
		q.pushed.Store(&panics)
		s.Submit(s.task("a"))
		s.requireEnded("slow", "a")
	})
}

// thief displaces the oldest task for each that comes third, and has the submitter run that all the same.
type thief struct{ strategies.Discipline }

func (q thief) Push(t *strategies.Task, now int64) strategies.Verdict {
	if q.Len() < 2 {
		return q.Discipline.Push(t, now)
	}
	displaced, _, _ := q.Pop(now)
	return strategies.Verdict{Outcome: strategies.CallerRuns, Displaced: displaced}
}

// A task that is displaced against the rules is shed, also where a switch would offer another one twice.
func TestSwitch_LosesNoneToADisciplineThatIsWrong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		for _, name := range []string{"slow", "a", "b", "c"} {
			s.submit(name)
		}
		fifo, err := strategies.Lookup("fifo")
		require.NoError(t, err)
		require.NoError(t, s.SwitchTo(strategies.Spec{Name: "thief", New: func(c strategies.Config) strategies.Discipline {
			return thief{fifo.New(c)}
		}}))
		s.end("slow")
		s.requireEnded("a:displaced", "slow", "c", "b")
	})
}
