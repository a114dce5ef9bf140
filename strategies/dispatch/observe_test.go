package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// Under Options.Observe what a strategy would shed is counted, once, and run in the
// strategy's order.
func TestObserve_RunsWhatWouldBeShed(t *testing.T) {
	t.Parallel()
	rogueSpec := func(push func(*rogue, *strategies.Task) strategies.Verdict, pop func(*rogue) (*strategies.Task, strategies.PopResult, strategies.Reason)) strategies.Spec {
		return strategies.Spec{Name: "rogue", New: func(c strategies.Config) strategies.Discipline {
			fifo, _ := strategies.Lookup("fifo")
			r := &rogue{Discipline: fifo.New(c)}
			if push != nil {
				r.push = func(t *strategies.Task) strategies.Verdict { return push(r, t) }
			}
			if pop != nil {
				r.pop = func() (*strategies.Task, strategies.PopResult, strategies.Reason) { return pop(r) }
			}
			return r
		}}
	}
	named := func(t *strategies.Task) string { return t.Owner.(*Task).Payload.(string) }
	for _, row := range []struct {
		name  string
		spec  strategies.Spec
		would []string
	}{
		{"codel", strategies.CoDel(strategies.CoDelOptions{}), []string{"rogue codel", "rogue codel"}},
		{"one that sheds all the same when it is popped", rogueSpec(nil, func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason) {
			t, what, reason := r.Discipline.Pop(0)
			if t != nil {
				what, reason = strategies.Shed, strategies.ReasonLate
			}
			return t, what, reason
		}), []string{"rogue late", "rogue late", "rogue late", "rogue late"}},
		{"one that turns away all the same", rogueSpec(func(r *rogue, t *strategies.Task) strategies.Verdict {
			if named(t) == "b" {
				return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonLate}
			}
			return r.Discipline.Push(t, 0)
		}, nil), []string{"rogue late"}},
		{"one that displaces all the same", rogueSpec(func(r *rogue, t *strategies.Task) strategies.Verdict {
			v := r.Discipline.Push(t, 0)
			if named(t) == "d" {
				v.Displaced, _, _ = r.Discipline.Pop(0)
			}
			return v
		}, nil), []string{"rogue displaced"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var would []string
				row.spec.Name = "rogue"
				s := newStage(t, Options{Spec: row.spec, Observe: true, Events: func(spec strategies.Spec) Events {
					return Events{
						Submitted: func() {}, Started: func(time.Duration) {}, Shed: func(strategies.Reason) {},
						WouldShed: func(r strategies.Reason) { would = append(would, spec.Name+" "+r.String()) },
					}
				}})
				defer s.close()
				s.submit("slow1")
				for _, name := range []string{"slow2", "b", "c", "d"} {
					s.submit(name)
				}
				time.Sleep(time.Second)
				s.end("slow1")
				time.Sleep(time.Second)
				if len(s.ended) < 5 {
					s.end("slow2")
				}
				require.ElementsMatch(t, []string{"slow1", "slow2", "b", "c", "d"}, s.ended)
				require.Equal(t, row.would, would)
			})
		})
	}
}

// Want of room, deadlines and clients that go are no law of a strategy.
func TestObserve_CapacityAndDeadlinesHold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var would []strategies.Reason
		s := newStage(t, Options{Strategy: "edf", Capacity: 3, Observe: true, Events: func(strategies.Spec) Events {
			return Events{
				Submitted: func() {}, Started: func(time.Duration) {}, Shed: func(strategies.Reason) {},
				WouldShed: func(r strategies.Reason) { would = append(would, r) },
			}
		}})
		defer s.close()
		s.submit("slow")
		s.submit("slow too")
		s.end("slow")
		time.Sleep(time.Minute)
		s.end("slow too") // from now on it knows how long a task takes
		s.submit("slow at last")
		s.submit("c", within(time.Hour))
		s.submit("too late", within(time.Second))
		gone := s.submit("gone")
		s.submit("too many")
		s.Cancel(gone, strategies.ReasonAbandoned)
		time.Sleep(time.Minute)
		s.end("slow at last")
		require.ElementsMatch(t, []string{
			"slow", "slow too", "slow at last", "c",
			"too late:expired", "gone:abandoned", "too many:full",
		}, s.ended)
		require.Equal(t, []strategies.Reason{strategies.ReasonLate}, would)
	})
}
