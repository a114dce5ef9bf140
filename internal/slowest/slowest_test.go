package slowest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestRecorder_Forgets(t *testing.T) {
	t.Parallel()
	var r Recorder
	const later = int64(time.Minute)
	for range Size - 1 {
		offer(&r, time.Second, 0)
	}
	offer(&r, 2*time.Second, later)
	require.False(t, offer(&r, time.Millisecond, int64(Memory)-1), "a spike is remembered")

	// When its time is over, what is slow by then is seen again, also if nobody
	// has looked.
	require.True(t, offer(&r, time.Millisecond, int64(Memory)))
	require.Equal(t, []time.Duration{2 * time.Second, time.Millisecond}, durations(r.List(int64(Memory))))
	require.Equal(t, []time.Duration{time.Millisecond}, durations(r.List(later+int64(Memory))))
	require.Empty(t, r.List(int64(time.Hour)))
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
