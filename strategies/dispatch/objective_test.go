package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// prover is first-in first-out, and says of every task that it would refuse it as late, as a
// strategy does of the few that it serves all the same to see whether it is right.
type prover struct{ strategies.Discipline }

func (p prover) Push(t *strategies.Task, now int64) strategies.Verdict {
	t.WouldShed = strategies.ReasonLate
	return p.Discipline.Push(t, now)
}

func proverSpec(t *testing.T) strategies.Spec {
	spec, err := strategies.Lookup("fifo")
	require.NoError(t, err)
	spec.Name, spec.ByObjective = "prover", true
	fresh := spec.New
	spec.New = func(c strategies.Config) strategies.Discipline { return prover{fresh(c)} }
	return spec
}

// A permit tells whether it was answered within the objective in force, and whether the
// strategy was wrong to take it for late.
func TestObjective_InTime(t *testing.T) {
	for _, tc := range []struct {
		name      string
		set       time.Duration
		work      time.Duration
		how       Outcome
		inTime    bool
		lateWrong int
	}{
		{"within", time.Second, 400 * time.Millisecond, Good, true, 1},
		{"later, as it waited", time.Second, 700 * time.Millisecond, Good, false, 0},
		{"not set", 0, 30 * time.Millisecond, Good, true, 1},
		{"not set, and late", 0, time.Minute, Good, false, 0},
		{"nobody is late", strategies.NoObjective, time.Hour, Good, true, 1},
		{"failed", time.Second, time.Millisecond, Dropped, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				wrong := 0
				granted := make(chan *Task, 1)
				d, err := Lend(Options{
					Spec: proverSpec(t), Workers: 1, Timed: true, Grant: func(t *Task) { granted <- t },
					Events: func(strategies.Spec) Events {
						return Events{
							Submitted: func() {}, Started: func(time.Duration) {}, Shed: func(strategies.Reason) {},
							WouldShed: func(strategies.Reason) {}, LateWrong: func() { wrong++ },
						}
					},
				})
				require.NoError(t, err)
				defer d.Close()
				require.NoError(t, d.Objective().Set(tc.set))
				first := &Task{Task: strategies.Task{Arrival: d.Now()}}
				require.True(t, d.Acquire(first))
				second := &Task{Task: strategies.Task{Arrival: d.Now()}}
				require.False(t, d.Acquire(second))
				time.Sleep(tc.work)
				d.Release(first)
				require.Same(t, second, <-granted)
				time.Sleep(tc.work)
				d.Answered(second, second.Began(), tc.how)
				time.Sleep(time.Hour) // a slow reader
				d.Release(second)
				require.Equal(t, tc.inTime, second.InTime)
				require.Equal(t, tc.lateWrong, wrong)
				require.Equal(t, tc.lateWrong == 1, second.LateWrong)
			})
		})
	}
}

// Observing can begin and end while tasks wait, which is no switch of the strategy.
func TestDispatcher_SetObserve(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var would []strategies.Reason
		s := newStage(t, Options{
			Strategy: "auto", Capacity: 3,
			Switched: func(from, to string) { t.Errorf("switched from %s to %s", from, to) },
			Events: func(strategies.Spec) Events {
				return Events{
					Submitted: func() {}, Started: func(time.Duration) {}, Shed: func(strategies.Reason) {},
					WouldShed: func(r strategies.Reason) { would = append(would, r) }, LateWrong: func() {},
				}
			},
		})
		defer s.close()
		require.NoError(t, s.Objective().Set(time.Second))
		s.submit("slow")
		s.submit("waits")
		require.False(t, s.Gauge().Observe)
		require.NoError(t, s.SetObserve(true))
		require.NoError(t, s.SetObserve(true))
		require.True(t, s.Gauge().Observe)
		time.Sleep(2 * time.Second)
		s.end("slow")
		require.Equal(t, []strategies.Reason{strategies.ReasonLate, strategies.ReasonLate}, would)
		require.NoError(t, s.SetObserve(false))
		s.submit("slow again")
		time.Sleep(2 * time.Second)
		s.end("slow again")
		require.Len(t, would, 2)
		s.requireEnded("slow", "waits", "slow again")
		// Who leaves after the objective would have been refused. Who leaves before it says nothing.
		require.NoError(t, s.SetObserve(true))
		s.submit("slow at last")
		patient, impatient := s.submit("patient"), s.submit("impatient")
		s.Cancel(impatient, strategies.ReasonAbandoned)
		time.Sleep(2 * time.Second)
		s.Cancel(patient, strategies.ReasonAbandoned)
		require.Equal(t, []strategies.Reason{strategies.ReasonLate}, would[2:])
		s.end("slow at last")
	})
}
