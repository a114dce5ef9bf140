package dispatch

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// rogueFIFO is a strategy whose discipline is first-in first-out, but for what the test has it answer.
func rogueFIFO(t *testing.T, r *rogue) strategies.Spec {
	fifo, err := strategies.Lookup("fifo")
	require.NoError(t, err)
	return strategies.Spec{Name: "rogue", New: func(c strategies.Config) strategies.Discipline {
		r.Discipline = fifo.New(c)
		return r
	}}
}

// A timer has reads taken that wait behind writes that hang. If it fires while a switch has all reads in its hands, and
// writes have begun since, it is set again once they are in the other discipline.
func TestSwitch_LeavesNoReadBesideIdleWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{Workers: 2, MaxBatch: 2})
		defer s.close()
		s.submit("slow-write1", isWrite)
		s.submit("slow-read")
		s.submit("slow-write2", isWrite)
		s.submit("w", isWrite)
		s.submit("late")
		s.end("slow-read") // its worker sets the timer, and parks
		time.Sleep(time.Duration(hang) / 2)
		s.end("slow-write1") // the next two fill a turn
		s.requireStarted("slow-write1", "slow-read", "slow-write2", "w")
		q.script(ignore, func(n int) {
			if n == 2 { // the switch has found late, and that there are no others
				time.Sleep(time.Duration(hang)/2 + time.Millisecond)
			}
		})
		require.NoError(t, s.Switch("lifo"))
		synctest.Wait()
		s.requireStarted("slow-write1", "slow-read", "slow-write2", "w")
		time.Sleep(time.Duration(hang))
		synctest.Wait()
		s.requireStarted("slow-write1", "slow-read", "slow-write2", "w", "late")
	})
}

// A task that is given up while a switch has it in its hands is its submitter's again, who may have another pool put it
// into a line. The race detector sees whether the switch still looks at it.
func TestSwitch_LooksAtNoTaskThatWasGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 2, Split: true})
		defer s.close()
		s.submit("slow")
		others := &s.pools[1].backlog
		reused := make(chan struct{})
		first, second := s.task("first", within(time.Second)), s.task("second")
		first.Done = func(*Task) { // by the switch, as it has expired
			require.True(t, s.Cancel(second, strategies.ReasonAbandoned))
			go func() {
				defer close(reused)
				others.mu.Lock()
				defer others.mu.Unlock()
				others.continuations.push(second)
				others.continuations.pop()
			}()
			for range 10_000 { // until it has, with nothing that orders what the switch does after that
				runtime.Gosched()
			}
		}
		s.Submit(first)
		s.Submit(second)
		time.Sleep(time.Second)
		readers := &s.pools[0].backlog
		readers.moveFrom(readers.active.Load()) // the writers' pool is left out, whose lock would order the two
		<-reused
		s.end("slow")
		s.requireEnded("second:abandoned", "slow")
	})
}

// What a submitter moves, as its discipline was left, has the timer of a learned number run, which may have found
// meanwhile that nothing waits.
func TestSubmit_SetsTheTimerForWhatItMoves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _, granted := lender(t, Options{}, 1)
		defer p.Close()
		q := new(rogue)
		require.NoError(t, p.SwitchTo(rogueFIFO(t, q)))
		require.True(t, p.Acquire(request("stuck", 1)))
		former, late, b := p.active.Load(), request("late", 1), request("b", 1)
		late.Deadline = p.Now() + 1
		late.Done = func(*Task) { // who moves both has b in its hands
			p.watch()
			time.Sleep(stuckFirst + time.Second)
			require.False(t, p.only().limit.watched.Load(), "the timer has found that nothing waits")
		}
		q.push = func(*strategies.Task) strategies.Verdict {
			q.push = nil
			require.NoError(t, p.Switch("lifo"))
			for _, other := range []*Task{late, b} { // of others on their way into the former discipline
				p.entered(other)
				other.Submitted = p.Now()
				former.accept(other)
				former.push(other, p.Now())
			}
			time.Sleep(time.Millisecond)
			return strategies.Verdict{Outcome: strategies.CallerRuns}
		}
		require.False(t, p.Acquire(request("a", 1)))
		synctest.Wait()
		require.Equal(t, []string{"a"}, granted())
		time.Sleep(time.Hour)
		require.Equal(t, []string{"a", "b"}, granted(), "what runs is stuck")
	})
}

// A discipline may answer Contended while somebody else pops, who does not look again, as one who pushes does. A switch
// asks it again.
func TestSwitch_AsksAContendedDisciplineAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo"})
		defer s.close()
		q, pops := new(rogue), 0
		s.use(rogueFIFO(t, q))
		s.submit("slow")
		s.submit("a")
		q.pop = func() (*strategies.Task, strategies.PopResult, strategies.Reason) {
			if pops++; pops == 1 {
				return nil, strategies.Contended, strategies.ReasonNone
			}
			return q.Discipline.Pop(0)
		}
		require.NoError(t, s.Switch("lifo"))
		require.Equal(t, 1, s.pools[0].active.Load().len())
		s.end("slow")
		s.requireEnded("slow", "a")
	})
}

// What a discipline has refused as full while a switch left it is offered to the other one.
func TestSubmit_IsNotRefusedByWhatWasLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Capacity: 1})
		defer s.close()
		q := new(rogue)
		s.use(rogueFIFO(t, q))
		s.submit("slow")
		s.submit("a")
		q.push = func(b *strategies.Task) strategies.Verdict {
			v := q.Discipline.Push(b, 0)
			require.Equal(t, strategies.TurnedAway, v.Outcome)
			require.NoError(t, s.Switch("unbounded"))
			return v
		}
		require.Equal(t, "rogue", s.submit("b").Strategy)
		s.end("slow")
		s.requireEnded("slow", "a", "b")
	})
}
