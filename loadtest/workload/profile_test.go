//go:build !race

package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// As many requests are due in each part of a run as the profile says.
func TestProfile_Rates(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, tt := range map[string]struct {
		profile  Profile
		from, to time.Duration
		want     float64 // multiple of the rate
	}{
		"steady":                     {"steady", 0, 12 * s, 1},
		"before a spike":             {"spike:4x,4s", 0, 3500 * time.Millisecond, 1},
		"during a spike":             {"spike:4x,4s", 3500 * time.Millisecond, 7500 * time.Millisecond, 4},
		"after a spike":              {"spike:4x,4s", 7500 * time.Millisecond, 12 * s, 1},
		"warm-up of a ramp":          {"ramp:0.5x,1.5x", 0, 2 * s, 0.5},
		"first half of a ramp":       {"ramp:0.5x,1.5x", 2 * s, 7 * s, 0.75},
		"second half of a ramp":      {"ramp:0.5x,1.5x", 7 * s, 12 * s, 1.25},
		"bursts":                     {"burst:6x,200ms,1s", 0, 12 * s, 2},
		"between bursts":             {"burst:6x,200ms,1s", 9 * s, 9800 * time.Millisecond, 1},
		"a spike longer than a run":  {"spike:3x,20s", 2 * s, 12 * s, 3},
		"a warm-up before that long": {"spike:3x,20s", 0, 2 * s, 1},
	} {
		for _, arrivals := range []Arrivals{Poisson, Constant} {
			o := Options{Rate: 20_000, Arrivals: arrivals, Profile: tt.profile, Warmup: 2 * s, Duration: 10 * s, Mix: Mix{Get: 1}}
			next, n, last, ordered := requests(o), 0, time.Duration(0), true
			for r := next(); r.At < tt.to; r = next() {
				ordered, last = ordered && r.At >= last, r.At
				if r.At >= tt.from {
					n++
				}
			}
			require.True(t, ordered, name)
			require.InEpsilon(t, tt.want*o.Rate, float64(n)/(tt.to-tt.from).Seconds(), 0.03, "%s, %v", name, arrivals)
		}
	}
}

func TestClients_Shares(t *testing.T) {
	t.Parallel()
	o := Options{Rate: 1000, Clients: "greedy=95,other*19=5"}
	next, counts := requests(o), map[string]int{}
	const n = 100_000
	for range n {
		counts[next().Client]++
	}
	require.Len(t, counts, 20)
	require.InDelta(t, 0.95, float64(counts["greedy"])/n, 0.005)
	require.InDelta(t, 0.05/19, float64(counts["other19"])/n, 0.001)
	names, kinds, _, ok := Clients("greedy=95,other*19=5,others=1").Parse()
	require.True(t, ok)
	require.Equal(t, []string{"greedy", "other7", "others"}, []string{names[0], names[7], names[20]})
	require.Equal(t, []string{"greedy", "other", "others"}, []string{kinds[0], kinds[7], kinds[20]})
	// Who asks changes nothing else of the requests.
	with, without := requests(o), requests(Options{Rate: 1000})
	for range 100 {
		a, b := with(), without()
		a.Client = ""
		require.Equal(t, b, a)
	}
}
