package slowest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// offer does what the data plane does with a request.
func offer(r *Recorder, took time.Duration, now int64) bool {
	wanted := r.Wants(took, now)
	if wanted {
		r.Add(Request{Answered: now, Took: took})
	}
	return wanted
}

func durations(list []Request) (all []time.Duration) {
	for _, q := range list {
		all = append(all, q.Took)
	}
	return all
}

func TestRecorder_KeepsTheSlowest(t *testing.T) {
	t.Parallel()
	var r Recorder
	require.Empty(t, r.List(0))
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(i)*time.Millisecond)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, took := range all {
		offer(&r, took, 7)
	}
	slices.Sort(all)
	slices.Reverse(all)
	require.Equal(t, all[:Size], durations(r.List(7)))
	require.False(t, offer(&r, all[Size-1], 7), "as fast as the fastest of them")
	require.True(t, offer(&r, all[Size-1]+1, 7))
}

// A spike is remembered for as long as its minute, and hides what was slow in
// the other minutes only for that long.
func TestRecorder_Forgets(t *testing.T) {
	t.Parallel()
	var r Recorder
	const oneMinute = int64(time.Minute)
	offer(&r, 3*time.Second, oneMinute-1)
	for range 2 * Size {
		offer(&r, time.Minute, oneMinute)
	}
	require.False(t, offer(&r, time.Second, 2*oneMinute-1), "the spike fills its minute")
	for i := range int64(Size) {
		offer(&r, time.Duration(i+1)*time.Second, 3*oneMinute+i)
	}
	require.True(t, offer(&r, time.Millisecond, 5*oneMinute), "the first of a minute")
	spike := slices.Repeat([]time.Duration{time.Minute}, Size)
	require.Equal(t, spike, durations(r.List(5*oneMinute)))
	require.Equal(t, spike, durations(r.List(6*oneMinute-1)))

	// All that comes after the spike is asked for again, also if nobody has
	// looked: the slowest, not the latest.
	var after []time.Duration
	for i := range Size {
		after = append(after, time.Duration(Size-i)*time.Second)
	}
	require.Equal(t, after, durations(r.List(6*oneMinute)))
	require.Equal(t, []time.Duration{time.Millisecond}, durations(r.List(8*oneMinute)))
	require.Empty(t, r.List(int64(time.Hour)))
}

// Some are added a little after they were answered, when another minute has
// begun.
func TestRecorder_Late(t *testing.T) {
	t.Parallel()
	var r Recorder
	const oneMinute = int64(time.Minute)
	for range Size {
		offer(&r, time.Second, 7*oneMinute)
	}
	r.Add(Request{Answered: 7*oneMinute - 1, Took: time.Minute})
	require.False(t, offer(&r, time.Second, 8*oneMinute-1), "the threshold is still that of the present minute")
	require.Equal(t, time.Minute, r.List(7 * oneMinute)[0].Took)

	r.Add(Request{Answered: 2*oneMinute - 1, Took: time.Hour})
	require.Equal(t, time.Minute, r.List(7 * oneMinute)[0].Took, "the minute of that one is forgotten")
}

// The list is what a list of all requests would give.
func TestRecorder_Exact(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var r Recorder
	var all []Request
	now := int64(0)
	for range 20_000 {
		now += random.Int64N(int64(50 * time.Millisecond))
		q := Request{Answered: now, Took: time.Duration(random.ExpFloat64() * 1e9)}
		all = append(all, q)
		offer(&r, q.Took, now)
		if random.IntN(500) > 0 {
			continue
		}
		var want []Request
		for _, q := range all {
			if now/int64(time.Minute)-q.Answered/int64(time.Minute) < Minutes {
				want = append(want, q)
			}
		}
		slices.SortFunc(want, func(a, b Request) int { return int(b.Took - a.Took) })
		require.Equal(t, durations(want[:min(len(want), Size)]), durations(r.List(now)))
	}
}

func TestRecorder_Concurrent(t *testing.T) {
	t.Parallel()
	var r Recorder
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				offer(&r, time.Duration(4*i+w), 0)
			}
		})
	}
	for range 100 {
		require.LessOrEqual(t, len(r.List(0)), Size)
	}
	wg.Wait()
	var want []time.Duration
	for i := range Size {
		want = append(want, time.Duration(7999-i))
	}
	require.Equal(t, want, durations(r.List(0)))
}

// What a request pays: reading two words, unless it is one of the slowest.
func BenchmarkRecorder(b *testing.B) {
	var r Recorder
	for range Size {
		offer(&r, time.Hour, 0)
	}
	b.Run("request=fast", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				offer(&r, time.Millisecond, 1)
			}
		})
	})
	b.Run("request=slow", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			offer(&r, time.Hour+time.Duration(i), 1)
		}
	})
}
