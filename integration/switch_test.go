//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// A live switch between any two strategies, under load, fails no request and
// loses none. On a slow machine codel may turn some away that have waited long, and
// says so.
func TestSwitch_AllPairs(t *testing.T) {
	t.Parallel()
	for _, pools := range []string{"shared", "split"} {
		t.Run(pools, func(t *testing.T) {
			t.Parallel()
			s := start(t, raced, "SPILLWAY_POOLS="+pools, "SPILLWAY_WORKERS=2", "SPILLWAY_SYNC=never")
			var answered, late atomic.Int64
			var stop atomic.Bool
			done := make(chan error, 1)
			go func() {
				done <- concurrently(12, func(i int) error {
					c, err := dial(s.data)
					if err != nil {
						return err
					}
					defer c.close()
					for n := 0; !stop.Load(); {
						method, status := http.MethodPut, http.StatusCreated
						if n > 0 && n%2 == 0 { // a read of what was written just before
							method, status = http.MethodGet, http.StatusOK
						}
						a, err := c.do(method, entity(fmt.Sprint("k", i)), "")
						if err != nil {
							return err
						}
						switch {
						case a.status == status:
							answered.Add(1)
							n++
						case a.shed() == "codel":
							late.Add(1)
						default:
							return fmt.Errorf("%s: status %d: %s", method, a.status, a.body)
						}
					}
					return nil
				})
			}()
			t.Cleanup(func() { stop.Store(true) })

			names := strategies.Names()
			switches := 0
			for _, pair := range walk(names) {
				s.switchTo(pair)
				switches++
				require.Equal(t, pair, s.strategy().Strategy)
				// Enough for every connection to have met the new strategy.
				target := answered.Load() + 60
				s.eventually("requests are answered under "+pair, func() bool { return answered.Load() >= target || len(done) > 0 })
			}
			stop.Store(true)
			require.NoError(t, <-done)
			require.Greater(t, switches, len(names)*(len(names)-1))
			s.awaitConserved(names...)

			m := s.metrics()
			active := names[0]
			require.Equal(t, 1.0, m.sum("spillway_strategy_info", strategyLabel(active)))
			require.Equal(t, 1.0, m.sum("spillway_strategy_info"), "one strategy is active")
			require.NotZero(t, m.sum("spillway_strategy_switches_total"))
			for _, name := range names {
				require.NotZero(t, m.sum("spillway_tasks_run_total", strategyLabel(name)), name)
			}
			require.EqualValues(t, late.Load(), m.sum("spillway_shed_total", `reason="codel"`))
			require.EqualValues(t, late.Load(), m.sum("spillway_shed_total"), "for no other reason")
			s.eventually("the gauges of inactive strategies are gone", func() bool {
				for series := range s.metrics() {
					for _, name := range names[1:] {
						if series == fmt.Sprintf("spillway_queue_depth{strategy=%q}", name) {
							return false
						}
					}
				}
				return true
			})
			s.stop()
		})
	}
}

// walk returns a sequence that begins and ends with the first name, in which
// every name follows every other one: an Eulerian circuit of the complete graph,
// after Hierholzer.
func walk(names []string) []string {
	next := make([]int, len(names))
	var circuit []string
	stack := []int{0}
	for len(stack) > 0 {
		from := stack[len(stack)-1]
		if next[from] == from {
			next[from]++
		}
		if to := next[from]; to < len(names) {
			next[from]++
			stack = append(stack, to)
			continue
		}
		circuit = append(circuit, names[from])
		stack = stack[:len(stack)-1]
	}
	return circuit
}

// status is the answer of /strategy.
type status struct {
	Strategy  string
	Workers   int
	Capacity  *int
	Available []string
}

func (s *service) strategy() status {
	s.t.Helper()
	a := s.request(http.MethodGet, s.adminURL("/strategy"), "")
	require.Equal(s.t, http.StatusOK, a.status, a.body)
	var st status
	require.NoError(s.t, json.Unmarshal([]byte(a.body), &st), a.body)
	return st
}

// What /strategy and /metrics say of each strategy.
func TestSwitch_Status(t *testing.T) {
	t.Parallel()
	for pools, sum := range map[string]int{"shared": 1, "split": 2} {
		t.Run(pools, func(t *testing.T) {
			t.Parallel()
			s := start(t, raced, "SPILLWAY_POOLS="+pools, "SPILLWAY_WORKERS=5", "SPILLWAY_QUEUE_CAPACITY=7")
			for _, name := range strategies.Names() {
				s.switchTo(name)
				st, m, l := s.strategy(), s.metrics(), strategyLabel(name)
				require.Equal(t, name, st.Strategy)
				require.Equal(t, strategies.Names(), st.Available)
				workers, capacity := 5, 7*sum
				if name == "sync" {
					workers, capacity = 0, 0
				}
				require.Equal(t, workers, st.Workers, name)
				require.EqualValues(t, workers, m.sum("spillway_workers", l))
				if name == "unbounded" {
					require.Nil(t, st.Capacity)
					require.NotContains(t, m, "spillway_queue_capacity{"+l+"}")
				} else {
					require.NotNil(t, st.Capacity, name)
					require.Equal(t, capacity, *st.Capacity, name)
					require.EqualValues(t, capacity, m["spillway_queue_capacity{"+l+"}"], name)
				}
				for _, r := range strategies.Reasons() {
					require.Contains(t, m, fmt.Sprintf("spillway_shed_total{reason=%q,%s}", r, l))
				}
			}
			for _, body := range []string{`{"strategy":"nonsense"}`, `{}`, `nonsense`, ``} {
				a := s.request(http.MethodPut, s.adminURL("/strategy"), body)
				detail := a.requireProblem(t, http.StatusBadRequest)
				require.Contains(t, detail, "drop-oldest", "the choices are named")
			}
			s.stop()
		})
	}
}
