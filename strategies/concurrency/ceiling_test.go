//go:build !race

package concurrency_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

// Where requests are long and the objective short, fewer at once would not be faster.
func TestCeiling_AnObjectiveThatIsTooShort(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Objective: func() time.Duration { return time.Millisecond }})
	n := c.learned(10) // 1 ms each alone, 2 ms where it does most
	require.Greater(t, n, 4.)
	require.Less(t, n, 16.)
}

// An incident in which all take long ends, and so does what it did to the ceiling.
func TestCeiling_RisesAfterAnIncident(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Objective: func() time.Duration { return 20 * time.Millisecond }})
	c.complete(10_000, hands(16), nil)
	require.Greater(t, c.law.Limit(), 12)
	c.complete(2_000, func(int) time.Duration { return 100 * time.Millisecond }, nil)
	require.Less(t, c.law.Limit(), 8, c.law.Why())
	c.complete(10_000, hands(16), nil)
	require.Greater(t, c.law.Limit(), 12, c.law.Why())
}

// Two lone requests, long after each other, end the slow start before anything is known of how long requests take.
func TestCeiling_AfterLoneRequests(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Objective: func() time.Duration { return 20 * time.Millisecond }})
	c.law.Completed(concurrency.Sample{Now: 1e6, Began: 0, Running: 1})
	c.law.Completed(concurrency.Sample{Now: 1e9 + 1e6, Began: 1e9, Running: 1})
	c.now = 2e9
	c.complete(10_000, hands(16), nil)
	c.complete(2_000, func(int) time.Duration { return 100 * time.Millisecond }, nil)
	require.Less(t, c.law.Limit(), 8, c.law.Why())
}

// nagle is a server of four hands that take 10 ms for each request. It sends the head and the body of an
// answer one after the other, so that a part comes 40 ms late, as clients delay their acknowledgements; no hand waits
// for that. Whether answers come late stays the same for some of a connection.
type nagle struct {
	late   float64 // the part of answers
	stays  float64 // for how many answers, in the mean
	soon   int     // answers of a connection come in time at first
	random *rand.Rand

	now  int64
	free [4]int64 // when each hand will be
	runs []answer // ordered by their ends
	idle []peer   // connections, the latest last
}

type peer struct {
	late     bool
	answered int
}

type answer struct {
	end, began int64
	of         peer
}

func (s *nagle) begin() {
	c := peer{late: s.random.Float64() < s.late}
	if n := len(s.idle); n > 0 {
		c, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	if c.answered++; s.random.Float64() < 1/s.stays {
		c.late = s.random.Float64() < s.late
	}
	slices.Sort(s.free[:])
	end := max(s.now, s.free[0]) + 9.5e6 + s.random.Int64N(1e6)
	s.free[0] = end
	if c.late && c.answered > s.soon {
		end += 40e6
	}
	i, _ := slices.BinarySearchFunc(s.runs, end, func(a answer, end int64) int { return int(a.end - end) })
	s.runs = slices.Insert(s.runs, i, answer{end, s.now, c})
}

// served returns what part of what four hands can do is done until a time, from the tenth second on.
func (s *nagle) served(law *concurrency.Law, until time.Duration) float64 {
	const from = 10 * time.Second
	done := 0
	for s.now < int64(until) {
		for len(s.runs) < law.Limit() {
			s.begin()
		}
		a, running := s.runs[0], len(s.runs)
		s.now, s.runs, s.idle = a.end, s.runs[1:], append(s.idle, a.of)
		law.Completed(concurrency.Sample{Now: s.now, Began: a.began, Running: running, Waiting: true})
		if s.now > int64(from) {
			done++
		}
	}
	return float64(done) / (until - from).Seconds() / 400
}

// Requests come to take five times as long, or do at times, by a delay that the limit does not change: as many run as
// keep all hands busy.
func TestCeiling_LateAnswers(t *testing.T) {
	t.Parallel()
	for _, late := range []float64{0.05, 0.1, 0.2, 0.3, 0.5, 0.9} {
		for _, stays := range []float64{1, 20} {
			for _, soon := range []int{0, 16} {
				mean := 0.
				const seeds = 8
				for seed := range uint64(seeds) {
					law, err := concurrency.New(concurrency.Options{
						Objective: func() time.Duration { return 200 * time.Millisecond }, Epoch: time.Unix(0, int64(seed)*1e8),
					})
					require.NoError(t, err)
					s := nagle{late: late, stays: stays, soon: soon, random: rand.New(rand.NewPCG(seed, 7))}
					share := s.served(law, 40*time.Second)
					require.Greater(t, share, 0.7, "%v late, for %v, after %d, seed %d: %s", late, stays, soon, seed, law.Why())
					mean += share / seeds
				}
				require.Greater(t, mean, 0.9, "%v late, for %v, after %d", late, stays, soon)
			}
		}
	}
}
