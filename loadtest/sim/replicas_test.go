package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// tenReplicas are ten that do four at once each, in 10 ms in the mean, at a part of what they can do.
func tenReplicas(balance string, load float64) Replicas {
	u := Replicas{
		Of: make([]Replica, 10), Work: Exponential(10 * time.Millisecond), Balance: balance, Strategy: "unbounded",
		Limiter: func(int) Limiter { return Fixed(4) }, Objective: strategies.NoObjective, Rate: load * 4000,
		Warmup: time.Second, Length: 20 * time.Second, After: time.Second, Seed: 1,
	}
	for i := range u.Of {
		u.Of[i].Hands = 4
	}
	return u
}

var allBalances = []string{"", RoundRobin, Random, LeastOutstanding, PowerOfTwo, Prequal}

// One of ten that refuses loses no request but those that a balancer had sent it, and all that refuse lose each.
func TestReplicas_Refuse(t *testing.T) {
	t.Parallel()
	refuses := func(now time.Duration) bool { return now > 5*time.Second && now < 9*time.Second }
	for _, balance := range allBalances {
		u := tenReplicas(balance, 0.7)
		u.Of[3].Refuses = refuses
		r := u.Run()
		require.Equal(t, r.Offered, r.Answered, balance)
		sent := 0 // by a balancer, and not begun
		if balance != "" {
			sent = 16
		}
		require.LessOrEqual(t, r.Offered-r.Succeeded, sent, balance)
		require.Less(t, r.Each[3], 9*r.Offered/100, balance)
		require.Greater(t, r.Each[3], 3*r.Offered/100, balance)

		u = tenReplicas(balance, 0.7)
		for i := range u.Of {
			u.Of[i].Refuses = refuses
		}
		r = u.Run()
		require.Equal(t, r.Offered, r.Answered, balance)
		require.InDelta(t, 0.8, float64(r.Succeeded)/float64(r.Offered), 0.05, balance)
	}
}

// What answers with errors at once draws requests, until it rests.
func TestReplicas_Fail(t *testing.T) {
	t.Parallel()
	for _, balance := range allBalances {
		u := tenReplicas(balance, 0.7)
		u.Of[3].Took = func(time.Duration, int, time.Duration) time.Duration { return time.Microsecond }
		u.Of[3].Code = func(time.Duration, int, int) int { return 500 }
		r := u.Run()
		require.Equal(t, r.Offered, r.Answered, balance)
		require.Less(t, r.Offered-r.Succeeded, 10, balance)
	}
}

// Who measures how long requests take, or how many there are, gives a slow one fewer.
func TestReplicas_Slow(t *testing.T) {
	t.Parallel()
	for _, balance := range allBalances {
		u := tenReplicas(balance, 0.4)
		u.Of[3].Took = func(_ time.Duration, _ int, work time.Duration) time.Duration { return 4 * work }
		r := u.Run()
		part := float64(r.Each[3]) / float64(r.Offered)
		if balance == RoundRobin || balance == Random {
			require.Greater(t, part, 0.05, balance)
		} else {
			require.Less(t, part, 0.05, balance)
		}
	}
}

// A replica that comes later, and one whose work ends no more, which keeps the places that it has.
func TestReplicas_ComeAndStop(t *testing.T) {
	t.Parallel()
	u := tenReplicas("", 0.7)
	u.Of[3].From = 11 * time.Second
	u.Of[4].Took = func(now time.Duration, _ int, work time.Duration) time.Duration {
		if now > 5*time.Second {
			return math.MaxInt64 / 4
		}
		return work
	}
	r := u.Run()
	require.InDelta(t, 0.05, float64(r.Each[3])/float64(r.Offered), 0.01)
	require.InDelta(t, 4, r.Offered-r.Answered, 0)
}

func TestReplicas_TheSameSeedTheSameResult(t *testing.T) {
	t.Parallel()
	for _, balance := range allBalances {
		u := tenReplicas(balance, 1.1)
		u.Strategy, u.Objective, u.After = "auto", 100*time.Millisecond, 0
		u.Length = 3 * time.Second
		first := u.Run()
		require.Positive(t, first.Good)
		require.Equal(t, first, u.Run(), balance)
		require.LessOrEqual(t, first.P(50), first.P(99))
	}
	require.Zero(t, (&ReplicasResult{}).P(99))
}

// It chooses of the cold the fastest, and if all are hot the one with the fewest.
func TestPrequal(t *testing.T) {
	t.Parallel()
	var s [4]station
	var some []*station
	for i := range s {
		s[i].line = &line{}
		some = append(some, &s[i])
	}
	for name, tt := range map[string]struct {
		pool []answer
		want int
	}{
		"the fastest of the cold": {[]answer{{from: &s[0], inFlight: 5, latency: 10}, {from: &s[1], inFlight: 1, latency: 30}, {from: &s[2], inFlight: 2, latency: 20}}, 2},
		"the fewest of the hot":   {[]answer{{from: &s[0], inFlight: 6, latency: 10}, {from: &s[1], inFlight: 5, latency: 30}}, 1},
		"not what it may not":     {[]answer{{from: new(station), latency: 1}, {from: &s[1], latency: 30}, {from: &s[0], latency: 31}}, 1},
		"not what is old":         {[]answer{{from: &s[0], at: -int64(2 * time.Second)}, {from: &s[1], latency: 30}, {from: &s[3], latency: 31}}, 1},
	} {
		p := prequal{pool: tt.pool, random: rand.New(rand.NewPCG(1, 2))}
		for range prequalRecent {
			p.note(4)
		}
		require.Equal(t, some[tt.want], p.choose(0, some), name)
		require.LessOrEqual(t, len(p.pool), prequalPool)
	}
}
