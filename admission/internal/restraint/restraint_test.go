package restraint

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// day is any.
var day = time.Unix(1_800_000_000, 0)

// However much is under way, and however much was asked for at once, a service that
// accepts everything is sent everything, whatever the draw.
func TestThrottle_HealthyServiceIsSentEverything(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var th throttle
	now := day
	for underWay := 0; now.Sub(day) < time.Minute; now = now.Add(10 * time.Millisecond) {
		for range random.IntN(50) {
			require.True(t, th.admit(now, 0))
			underWay++
		}
		for ; underWay > 0 && random.IntN(20) > 0; underWay-- {
			th.note(now, Accepted, time.Second)
		}
	}
}

// drive asks a hundred times a second for so long. The service accepts so many a second,
// and refuses the others. It returns how many were sent and not sent in each second.
func drive(th *throttle, now time.Time, seconds, capacity int) (sent, held []int) {
	for range seconds {
		s, accepted := 0, 0.0
		for i := range 100 {
			now = now.Add(10 * time.Millisecond)
			if !th.admit(now, rand.Float64()) {
				continue
			}
			s++
			if room := float64((i+1)*capacity) / 100; accepted < room {
				accepted++
				th.note(now, Accepted, 0)
			} else {
				th.note(now, Refused, 0)
			}
		}
		sent, held = append(sent, s), append(held, 100-s)
	}
	return sent, held
}

func sum(of []int) (n int) {
	for _, i := range of {
		n += i
	}
	return n
}

// A service is sent about twice what it accepts, if so much is wanted, and a few more; and
// everything once ten seconds have passed since it refused any.
func TestThrottle_SendsTwiceWhatIsAccepted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ capacity, least, most int }{ // a second
		{0, 1, 2},
		{1, 2, 4},
		{5, 9, 13},
		{20, 38, 45},
		{40, 75, 86},
		{60, 100, 100},
		{100, 100, 100},
	} {
		var th throttle
		sent, _ := drive(&th, day, 600, tt.capacity)
		each := sum(sent[20:]) / len(sent[20:])
		require.GreaterOrEqual(t, each, tt.least, "%d a second", tt.capacity)
		require.LessOrEqual(t, each, tt.most, "%d a second", tt.capacity)

		_, held := drive(&th, day.Add(600*time.Second), 20, 100)
		require.Zero(t, sum(held[10:]), "%d a second: %v", tt.capacity, held)
	}
}

// A deadline that passes says that the service is too slow only if others had their
// answer in that time, or nobody had.
func TestThrottle_Deadlines(t *testing.T) {
	t.Parallel()
	var th throttle
	th.note(day, TimedOut, time.Millisecond)
	require.Equal(t, 1, th.sum.answered, "nobody was answered")
	th.note(day, Accepted, 100*time.Millisecond)
	th.note(day, Accepted, 300*time.Millisecond)
	th.note(day, TimedOut, 199*time.Millisecond)
	require.Equal(t, 3, th.sum.answered)
	th.note(day, TimedOut, 200*time.Millisecond)
	require.Equal(t, 4, th.sum.answered)
	th.note(day.Add(11*time.Second), TimedOut, time.Millisecond)
	require.Equal(t, counts{answered: 1}, th.sum, "nobody was answered of late")
}

// A clock that is set back has all forgotten.
func TestThrottle_Clock(t *testing.T) {
	t.Parallel()
	var th throttle
	for range 100 {
		th.note(day, Refused, 0)
	}
	require.False(t, th.admit(day, 0))
	require.True(t, th.admit(day.Add(-time.Hour), 0))
	require.Zero(t, th.sum)
}

// Retries are a tenth of the requests, however many fail, and a few for those who seldom
// ask.
func TestBudget(t *testing.T) {
	t.Parallel()
	var b budget
	retries := func(requests int) (n int) {
		for range requests {
			b.deposit()
			for range MaxAttempts - 1 {
				if b.withdraw() {
					n++
				}
			}
		}
		return n
	}
	require.InDelta(t, 110, retries(1000), 1)
	for range 1000 {
		b.deposit()
	}
	require.Equal(t, MaxAttempts-1, retries(1), "it has saved some again")
}

func TestRestraint_Again(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		attempts    int
		asked       time.Duration
		said        bool
		deadline    time.Duration
		ok          bool
		least, most time.Duration
	}{
		{"as asked", 1, time.Second, true, time.Hour, true, time.Second, 1501 * time.Millisecond},
		{"at once", 1, 0, true, time.Hour, true, 0, time.Millisecond},
		{"not asked", 1, 0, false, time.Hour, true, 0, 200 * time.Millisecond},
		{"not asked, again", 2, 0, false, time.Hour, true, 0, 400 * time.Millisecond},
		{"too often", 3, 0, false, time.Hour, false, 0, 0},
		{"too long", 1, 31 * time.Second, true, time.Hour, false, 0, 0},
		{"for ever", 1, 1<<63 - 1, true, time.Hour, false, 0, 0},
		{"too late", 1, time.Second, true, time.Second, false, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				wait, ok := new(Restraint).Again(ctx, tt.attempts, tt.asked, tt.said)
				require.Equal(t, tt.ok, ok)
				if ok {
					require.GreaterOrEqual(t, wait, tt.least)
					require.LessOrEqual(t, wait, tt.most)
				}
			})
		})
	}
}
