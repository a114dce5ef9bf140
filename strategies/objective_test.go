package strategies_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

func TestObjective_ZeroValue(t *testing.T) {
	t.Parallel()
	var o strategies.Objective
	require.Equal(t, 100*time.Millisecond, o.InForce())
	require.Zero(t, o.Usual())
	require.Equal(t, strategies.ObjectiveState{
		InForce: 100 * time.Millisecond,
		Why:     "none is set, so 100ms stand in until the usual service time is known",
	}, o.State())
}

func TestObjective_Set(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		set, inForce time.Duration
		err          string
	}{
		{100 * time.Microsecond, 100 * time.Microsecond, ""},
		{time.Second, time.Second, ""},
		{time.Hour, time.Hour, ""},
		{0, 100 * time.Millisecond, ""},
		{strategies.NoObjective, 0, ""},
		{99 * time.Microsecond, 0, "an objective of 99µs: 100µs to 1h0m0s is allowed, 0 for one that follows the usual service time, or -1 for none"},
		{time.Hour + 1, 0, "an objective of 1h0m0.000000001s: 100µs to 1h0m0s is allowed, 0 for one that follows the usual service time, or -1 for none"},
		{-2, 0, "an objective of -2ns: 100µs to 1h0m0s is allowed, 0 for one that follows the usual service time, or -1 for none"},
		{-time.Hour, 0, "an objective of -1h0m0s: 100µs to 1h0m0s is allowed, 0 for one that follows the usual service time, or -1 for none"},
	} {
		var o strategies.Objective
		require.NoError(t, o.Set(2*time.Second))
		err := o.Set(tt.set)
		if tt.err != "" {
			require.EqualError(t, err, tt.err)
			require.EqualError(t, strategies.CheckObjective(tt.set), tt.err)
			require.Equal(t, 2*time.Second, o.InForce(), "it stays what it was")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, strategies.CheckObjective(tt.set))
		require.Equal(t, tt.inForce, o.InForce())
		require.Equal(t, tt.set, o.State().Set)
	}
}

// What is in force where the work takes so long, and the words for it.
func TestObjective_StandsIn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		set, usual, inForce time.Duration
		why                 string
	}{
		{0, 123_456, 100 * time.Millisecond, "none is set, so 100ms stand in, as 6 times the usual service time of 120µs is less"},
		{0, 5 * time.Millisecond, 100 * time.Millisecond, "none is set, so 100ms stand in, as 6 times the usual service time of 5ms is less"},
		{0, 20 * time.Millisecond, 120 * time.Millisecond, "none is set, so it is 6 times the usual service time of 20ms"},
		{0, time.Second, 6 * time.Second, "none is set, so it is 6 times the usual service time of 1s"},
		{0, 6 * time.Second, 30 * time.Second, "none is set, and 6 times the usual service time of 6s is more than 30s"},
		{0, 48 * time.Hour, 30 * time.Second, "none is set, and 6 times the usual service time of 1h0m0s is more than 30s"},
		{time.Second, 2 * time.Second, time.Second, "it is set"},
		{strategies.NoObjective, 2 * time.Second, 0, "nobody is refused for being late"},
	} {
		var o strategies.Objective
		for range 8 {
			o.Answered(int64(tt.usual))
		}
		require.NoError(t, o.Set(tt.set))
		require.Equal(t, strategies.ObjectiveState{Set: tt.set, InForce: tt.inForce, Why: tt.why}, o.State())
	}
}

// The usual service time is the lower quartile of the mean of eight, within a fifth; of one in ten that takes long it
// sees nothing, and no share of those makes it wander.
func TestObjective_LearnsTheUsual(t *testing.T) {
	t.Parallel()
	const ms = float64(time.Millisecond)
	for _, tt := range []struct {
		work  string
		draw  func(*rand.Rand) float64
		usual float64
	}{
		{"constant", func(*rand.Rand) float64 { return 20 * ms }, 20 * ms},
		{"even", func(r *rand.Rand) float64 { return 40 * ms * r.Float64() }, 17.2 * ms},
		{"exponential", func(r *rand.Rand) float64 { return 50 * ms * r.ExpFloat64() }, 37.3 * ms},
		{"a tenth takes 30 times as long", func(r *rand.Rand) float64 {
			if r.IntN(10) == 0 {
				return 600 * ms
			}
			return 20 * ms
		}, 20 * ms},
		{"a third takes 30 times as long", func(r *rand.Rand) float64 {
			if r.IntN(3) == 0 {
				return 600 * ms
			}
			return 20 * ms
		}, 165 * ms},
		{"half takes 30 times as long", func(r *rand.Rand) float64 {
			if r.IntN(2) == 0 {
				return 600 * ms
			}
			return 20 * ms
		}, 237.5 * ms},
		{"nine tenths take 30 times as long", func(r *rand.Rand) float64 {
			if r.IntN(10) != 0 {
				return 600 * ms
			}
			return 20 * ms
		}, 527.5 * ms},
	} {
		t.Run(tt.work, func(t *testing.T) {
			t.Parallel()
			for _, first := range []int64{1000, 20e6, 60e9} {
				var o strategies.Objective
				random := rand.New(rand.NewPCG(1, 2))
				o.Answered(first)
				for range 5000 {
					o.Answered(int64(tt.draw(random)))
				}
				var seen []float64
				for range 10_000 {
					o.Answered(int64(tt.draw(random)))
					seen = append(seen, float64(o.Usual()))
				}
				slices.Sort(seen)
				require.InEpsilon(t, tt.usual, seen[len(seen)/2], 0.2, "the median, after a first one of %v", time.Duration(first))
				require.Greater(t, seen[len(seen)/100], tt.usual/2)
				require.Less(t, seen[len(seen)*99/100], 2*tt.usual)
			}
		})
	}
}

// Once many are sampled, eight answers move it by a fiftieth at most, and never beyond
// themselves. What is no time counts as the shortest.
func TestObjective_EightAnswersMoveItLittle(t *testing.T) {
	t.Parallel()
	for _, took := range []int64{-5, 0, 1, 1e6, 20e6, 21e6, 1e9, 1 << 62} {
		var o strategies.Objective
		for range 201 * 8 {
			o.Answered(20e6)
		}
		for range 8 {
			require.EqualValues(t, 20e6, o.Usual())
			o.Answered(took)
		}
		require.InDelta(t, 20e6, int64(o.Usual()), 20e6/50, took)
		require.True(t, o.Usual() <= 20e6 == (took <= 20e6), took)
		for range 30_000 {
			o.Answered(took)
		}
		require.EqualValues(t, min(max(took, 1), int64(time.Hour)), o.Usual())
	}
}

// Of the first eight answers the second shortest counts, and none before: those that were slow for
// a cause of their own raise nothing.
func TestObjective_FirstAnswers(t *testing.T) {
	t.Parallel()
	var o strategies.Objective
	for _, took := range []int64{2e9, 2e9, 20e6, 2e9, 10e6, 2e9, 2e9} {
		o.Answered(took)
		require.Zero(t, o.Usual())
		require.Equal(t, strategies.StandIn, o.InForce())
	}
	o.Answered(2e9)
	require.Equal(t, 20*time.Millisecond, o.Usual())
}

// It rises by answers alone: not by what is set, or asked.
func TestObjective_RisesByAnswersAlone(t *testing.T) {
	t.Parallel()
	var o strategies.Objective
	for range 8 {
		o.Answered(20e6)
	}
	for range 1000 {
		for _, set := range []time.Duration{time.Hour, strategies.NoObjective, -7, 0} {
			_ = o.Set(set)
			o.State()
			o.InForce()
		}
	}
	require.Equal(t, 120*time.Millisecond, o.InForce())
}

// All may be called at once, and what is in force is always one of what was set, or between the
// bounds.
func TestObjective_Concurrent(t *testing.T) {
	t.Parallel()
	var o strategies.Objective
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range 5000 {
				switch random.IntN(3) {
				case 0:
					_ = o.Set([]time.Duration{0, time.Hour, strategies.NoObjective, 5}[random.IntN(4)])
				case 1:
					o.Answered(random.Int64N(50e6))
				default:
					s := o.State()
					if s.InForce != 0 && s.InForce != time.Hour && (s.InForce < strategies.StandIn || s.InForce > strategies.StandInMost) || s.Why == "" {
						t.Errorf("%+v", s)
					}
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, o.Usual())
	require.Less(t, o.Usual(), 51*time.Millisecond)
}
