package lab

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// simulated is a server of a known capacity with one queue, and the machine that
// it runs on. Time passes in the runs alone.
type simulated struct {
	random   *rand.Rand
	capacity float64 // requests a second
	// jitter is the deviation of the capacity from run to run, as a share.
	jitter float64
	// swing is by how much the capacity goes up and down over some dozens of
	// runs, as a share.
	swing float64
	// hiccups is how many of the runs lose a twentieth of their requests.
	hiccups float64
	// generator is the highest rate that can be sent in time; 0 for any.
	generator float64
	// stuck says that a backlog of more than a second is never worked off.
	stuck bool

	backlog float64 // requests
	runs    int
}

func (s *simulated) run(_ context.Context, o workload.Options) (*result.Result, error) {
	s.runs++
	capacity := s.capacity * (1 + s.jitter*s.random.NormFloat64() + s.swing*math.Sin(float64(s.runs)/8))
	sent, late := o.Rate, 0.0 // late in seconds, at the end
	if s.generator > 0 && sent > s.generator {
		late = (sent/s.generator - 1) * (o.Warmup + o.Duration).Seconds()
	}
	const slot = 0.01
	var offered, good float64
	for t := 0.0; t < (o.Warmup + o.Duration).Seconds(); t += slot {
		arrivals := max(0, sent*slot+math.Sqrt(sent*slot)*s.random.NormFloat64())
		s.backlog += arrivals
		if !s.stuck || s.backlog < capacity {
			s.backlog = max(0, s.backlog-capacity*slot)
		}
		if t < o.Warmup.Seconds() {
			continue
		}
		offered += arrivals
		if s.backlog/capacity <= o.SLO.Seconds() {
			good += arrivals
		}
	}
	if s.random.Float64() < s.hiccups {
		good *= 0.95
	}
	if late > o.SLO.Seconds() {
		good *= o.SLO.Seconds() / late
	}
	r := &result.Result{
		Lateness:  result.Percentiles{P99: late * 1e3},
		TargetRPS: o.Rate, Seconds: o.Duration.Seconds(), SLOMillis: o.SLO.Seconds() * 1e3,
		Requests: int64(offered), OfferedRPS: offered / o.Duration.Seconds(), GoodputRPS: good / o.Duration.Seconds(),
	}
	return r, nil
}

func newSimulated(seed uint64, capacity float64) *simulated {
	return &simulated{random: rand.New(rand.NewPCG(seed, 1)), capacity: capacity}
}

func saturateOptions(run Runner) SaturateOptions {
	return SaturateOptions{Load: workload.Options{URL: "http://127.0.0.1:1"}, Run: run}
}

func TestSaturate_FindsTheCapacity(t *testing.T) {
	t.Parallel()
	// From far below, from far above, and where the first rate is right.
	for _, capacity := range []float64{500, 999, 1000, 1001, 4_700, 250_000} {
		server := newSimulated(1, capacity)
		found, err := Saturate(t.Context(), saturateOptions(server.run))
		require.NoError(t, err)
		require.Empty(t, found.Partial)
		require.Equal(t, LimitServer, found.Limit)
		// At small rates chance alone makes a queue.
		require.InEpsilon(t, capacity, found.BreakingPointRPS, 0.02+1/math.Sqrt(capacity), "of %v", capacity)
		require.Less(t, found.Low, found.BreakingPointRPS)
		require.Less(t, found.BreakingPointRPS, found.High)
		require.LessOrEqual(t, found.High, found.Low*(1+3.2*precision))
	}
}

// Targets say themselves where the load goes.
func TestSaturate_NamesTheServerOfTargets(t *testing.T) {
	t.Parallel()
	server := newSimulated(1, 100)
	o := saturateOptions(func(ctx context.Context, o workload.Options) (*result.Result, error) {
		r, err := server.run(ctx, o)
		r.URL = "http://a:1"
		return r, err
	})
	o.Load.URL, o.Load.Targets = "", []workload.Target{{Method: "GET", URL: "http://127.0.0.1:1/"}}
	found, err := Saturate(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, "http://a:1", found.URL)
}

func TestSaturate_RepeatsOnANoisyMachine(t *testing.T) {
	t.Parallel()
	var answers []float64
	trials, drift := 0, 0
	for seed := range uint64(100) {
		server := newSimulated(seed, 20_000)
		server.jitter, server.hiccups = 0.01, 0.1
		o := saturateOptions(server.run)
		found, err := Saturate(t.Context(), o)
		require.NoError(t, err)
		if found.Partial != "" {
			drift++
		}
		answers = append(answers, found.BreakingPointRPS)
		trials += len(found.Steps)
	}
	s := Spread(answers)
	t.Logf("median %.0f, %.0f to %.0f, %.1f trials a search, %d not sure", s.Median, s.Low, s.High, float64(trials)/100, drift)
	require.LessOrEqual(t, drift, 5)
	require.InEpsilon(t, s.Median, s.Low, 0.05)
	require.InEpsilon(t, s.Median, s.High, 0.05)
	require.InEpsilon(t, 20_000, s.Median, 0.03)
}

func TestSaturate_SaysThatTheMachineIsNotSteady(t *testing.T) {
	t.Parallel()
	server := newSimulated(1, 20_000)
	server.swing = 0.3
	found, err := Saturate(t.Context(), saturateOptions(server.run))
	require.NoError(t, err)
	require.Contains(t, found.Partial, "not steady")
	require.Contains(t, found.String(), "not steady")
	require.Greater(t, found.High, found.Low*1.05)
	require.LessOrEqual(t, found.Low, found.BreakingPointRPS)
	require.LessOrEqual(t, found.BreakingPointRPS, found.High)
}

func TestSaturate_SaysWhatLimits(t *testing.T) {
	t.Parallel()
	// The generator can send less than the server takes.
	server := newSimulated(1, 50_000)
	server.generator = 8_000
	found, err := Saturate(t.Context(), saturateOptions(server.run))
	require.NoError(t, err)
	require.Equal(t, LimitGenerator, found.Limit)
	require.InEpsilon(t, 8_000, found.Low, 0.05)
	require.Contains(t, found.String(), "generator")

	// No rate that is allowed is too much.
	o := saturateOptions(newSimulated(1, 50_000).run)
	o.MaxRate = 3_000
	found, err = Saturate(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, LimitRate, found.Limit)
	require.Equal(t, 3_000.0, found.BreakingPointRPS)
	require.Zero(t, found.High)

	// No rate at all is sustained.
	found, err = Saturate(t.Context(), saturateOptions(newSimulated(1, 0.001).run))
	require.NoError(t, err)
	require.Equal(t, LimitServer, found.Limit)
	require.Zero(t, found.BreakingPointRPS)
}

func TestSaturate_AwaitsTheEndOfABacklog(t *testing.T) {
	t.Parallel()
	server := newSimulated(1, 1000)
	// No trial that counts may begin behind a queue of more than a moment.
	o := saturateOptions(func(ctx context.Context, o workload.Options) (*result.Result, error) {
		if o.Warmup > 0 {
			require.Less(t, server.backlog, 200.0)
		}
		return server.run(ctx, o)
	})
	o.Load.Rate = 4000
	found, err := Saturate(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, found.Partial)

	// A server that never recovers from overload ends the search.
	server = newSimulated(1, 1000)
	server.stuck = true
	found, err = Saturate(t.Context(), saturateOptions(server.run))
	require.NoError(t, err)
	require.Contains(t, found.Partial, "does not recover")
}

func TestSaturate_KeepsWhatItHas(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection refused")
	tests := []struct {
		name    string
		after   int
		partial string
		cancel  bool
	}{
		{"a server that is not there", 0, "", false},
		{"a server that goes away", 3, "connection refused", false},
		{"an interruption", 3, "interrupted after 3 trials", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server := newSimulated(1, 50_000)
			o := saturateOptions(func(ctx context.Context, o workload.Options) (*result.Result, error) {
				if server.runs == tt.after {
					if tt.cancel {
						cancel()
						return &result.Result{Partial: "interrupted"}, nil
					}
					return nil, lost
				}
				return server.run(ctx, o)
			})
			found, err := Saturate(ctx, o)
			if tt.after == 0 {
				require.ErrorIs(t, err, lost)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.partial, found.Partial)
			require.Len(t, found.Steps, tt.after)
			require.Equal(t, 4000.0, found.Low)
			require.Empty(t, found.Limit)

			path := t.TempDir() + "/found.json"
			require.NoError(t, result.SaveJSON(path, found))
			var loaded Saturation
			require.NoError(t, result.LoadJSON(path, &loaded))
			require.Equal(t, found.Steps, loaded.Steps)
		})
	}
}

func TestSaturation_SaysWhereTrialsDisagreed(t *testing.T) {
	t.Parallel()
	yes := func(rate float64) Step { return Step{Rate: rate, Sustained: true} }
	no := func(rate float64) Step { return Step{Rate: rate} }
	const found = "breaking point 100 requests a second (98 is sustained, 102 is not)"
	for _, tt := range []struct {
		steps []Step
		want  string
	}{
		{[]Step{yes(98), no(102), yes(100)}, found},
		{[]Step{yes(98), no(102), no(98), yes(98)}, found + "; trials of 98 disagreed"},
		{[]Step{yes(98), no(102), yes(110), no(90)}, found + "; from 90 to 110 trials disagreed"},
	} {
		s := Saturation{BreakingPointRPS: 100, Low: 98, High: 102, Limit: LimitServer, Steps: tt.steps}
		require.Equal(t, tt.want, s.String())
	}
}

func TestSaturate_RefusesBadOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		say    string
		change func(*SaturateOptions)
	}{
		{"above the highest rate", func(o *SaturateOptions) { o.MaxRate = 10 }},
		{"max-rate", func(o *SaturateOptions) { o.MaxRate = -1 }},
		{"max-rate", func(o *SaturateOptions) { o.MaxRate = math.NaN() }},
		{"max-rate", func(o *SaturateOptions) { o.MaxRate = math.Inf(1) }},
	}
	for _, tt := range tests {
		o := saturateOptions(newSimulated(1, 1).run)
		tt.change(&o)
		_, err := Saturate(t.Context(), o)
		require.ErrorContains(t, err, tt.say)
	}
}

func TestSaturate_EndsAfterSoManyTrials(t *testing.T) {
	t.Parallel()
	server := newSimulated(1, 20_000)
	o := saturateOptions(server.run)
	o.maxTrials = 9
	var told []int
	o.Progress = func(s *Saturation) { told = append(told, len(s.Steps)) }
	found, err := Saturate(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, found.Steps, 9)
	require.NotEmpty(t, found.Partial)
	require.True(t, slices.IsSorted(told))
	require.InEpsilon(t, 20_000, found.BreakingPointRPS, 0.25)
	require.LessOrEqual(t, found.Low, found.BreakingPointRPS)
	require.Len(t, told, len(found.Steps))
}
