package delay

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

func TestParseDistribution(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		in   string
		want Distribution
		out  string
	}{
		{"", Distribution{}, "0"},
		{"0", Distribution{}, "0"},
		{"0s", Distribution{}, "0"},
		{"exp:0", Distribution{}, "0"},
		{"4ms", Distribution{mean: 4 * time.Millisecond}, "4ms"},
		{"exp:4ms", Distribution{mean: 4 * time.Millisecond, exponential: true}, "exp:4ms"},
		{"exp:1.5us", Distribution{mean: 1500, exponential: true}, "exp:1.5µs"},
		{"1h", Distribution{mean: time.Hour}, "1h0m0s"},
		{"bimodal:1ms,30ms,0.1", Distribution{mean: time.Millisecond, long: 30 * time.Millisecond, share: 0.1}, "bimodal:1ms,30ms,0.1"},
	} {
		d, err := ParseDistribution(row.in)
		require.NoError(t, err, row.in)
		require.Equal(t, row.want, d, row.in)
		require.Equal(t, row.out, d.String(), row.in)
		again, err := ParseDistribution(d.String())
		require.NoError(t, err)
		require.Equal(t, d, again)
	}
	for _, bad := range []string{"-1ms", "4", "exp:", "exp:-4ms", "exp", "gauss:4ms", "EXP:4ms", "2h", " 4ms", "exp:exp:4ms",
		"bimodal:1ms,30ms", "bimodal:1ms,30ms,0", "bimodal:1ms,30ms,2", "bimodal:1ms,30ms,NaN", "bimodal:30ms,1ms,0.1", "bimodal:0,1ms,0.1", "bimodal:1ms,2h,0.1", "bimodal:a,b,c"} {
		_, err := ParseDistribution(bad)
		require.ErrorContains(t, err, "exp:4ms", bad)
		require.ErrorContains(t, err, `"`+bad+`"`)
	}
}

func TestDistribution_DrawHasItsMean(t *testing.T) {
	t.Parallel()
	const n = 200_000
	d, err := ParseDistribution("exp:4ms")
	require.NoError(t, err)
	var sum, over float64
	for range n {
		x := d.Draw()
		require.GreaterOrEqual(t, x, time.Duration(0))
		sum += x.Seconds()
		if x > 4*time.Millisecond {
			over++
		}
	}
	// The standard error of the mean is 4 ms / sqrt(n), about 9 us; of the share
	// above the mean, which is 1/e, about 0.001.
	require.InDelta(t, 0.004, sum/n, 0.0001)
	require.InDelta(t, 0.3679, over/n, 0.01)
	require.Equal(t, 4*time.Millisecond, Distribution{mean: 4 * time.Millisecond}.Draw())
}

// noting is a store that notes its calls.
type noting struct {
	store.Store
	mu     sync.Mutex
	calls  string
	keys   []string
	closed bool
}

func (n *noting) note(call, key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls += call
	n.keys = append(n.keys, key)
}

func (n *noting) Get(dst, key []byte) ([]byte, store.Meta, error) {
	n.note("g", string(key))
	return dst, store.Meta{}, nil
}

func (n *noting) View(func(store.View) error) error {
	n.note("v", "")
	return nil
}

func (n *noting) Transact([]store.Look, func(store.View) ([]store.Write, error)) (store.Commit, error) {
	n.note("t", "")
	return nil, nil
}

func (n *noting) Apply([]store.Write) (store.Commit, error) {
	n.note("a", "")
	return nil, nil
}

func (n *noting) Range(_, _ []byte, _ bool) (store.Iterator, error) {
	n.note("r", "")
	return nil, nil
}

func (n *noting) Close() error {
	n.closed = true
	return nil
}

const ms = time.Millisecond

func TestStore_Delays(t *testing.T) {
	t.Parallel()
	for _, parallel := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			inner := new(noting)
			s := Wrap(inner, Distribution{mean: 4 * ms}, parallel)
			for _, row := range []struct {
				do   func()
				want time.Duration
			}{
				{func() { _, _, _ = s.Get(nil, nil) }, 4 * ms},
				{func() { _, _ = s.Range(nil, nil, false) }, 4 * ms},
				{func() { _ = s.View(nil) }, 4 * ms},
				{func() { _, _ = s.Transact(nil, nil) }, 4 * ms},
				{func() { _, _ = s.Apply(make([]store.Write, 3)) }, 12 * ms},
			} {
				start := time.Now()
				row.do()
				require.Equal(t, row.want, time.Since(start))
			}
			require.Equal(t, "grvta", inner.calls)
			require.NoError(t, s.Close())
			require.True(t, inner.closed)
		})
	}
}

// No more than the store does at once are done, whatever they are, and those that
// wait are served in the order in which they came.
func TestStore_Parallel(t *testing.T) {
	t.Parallel()
	for parallel, want := range map[int][]time.Duration{
		0: {4, 4, 4, 4, 4, 4},
		1: {4, 8, 12, 16, 20, 24},
		2: {4, 4, 8, 8, 12, 12},
		6: {4, 4, 4, 4, 4, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := Wrap(new(noting), Distribution{mean: 4 * ms}, parallel)
			operations := []func(){
				func() { _, _, _ = s.Get(nil, nil) },
				func() { _, _ = s.Range(nil, nil, false) },
				func() { _, _ = s.Apply(make([]store.Write, 1)) },
			}
			start := time.Now()
			took := make([]time.Duration, len(want))
			var all sync.WaitGroup
			for i := range took {
				all.Go(func() {
					operations[i%len(operations)]()
					took[i] = time.Since(start) / ms
				})
				synctest.Wait() // the one before waits, or sleeps
			}
			all.Wait()
			require.Equal(t, want, took, "%d at once", parallel)
		})
	}
}

// Of a thousand that wait nobody overtakes another, also of those that come while
// turns are given back.
func TestStore_ServesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := new(noting)
		s := Wrap(inner, Distribution{mean: ms}, 1)
		var all sync.WaitGroup
		var want []string
		for i := range 1000 {
			want = append(want, strconv.Itoa(i))
			all.Go(func() { _, _, _ = s.Get(nil, []byte(strconv.Itoa(i))) })
			synctest.Wait()
			if i%3 == 0 {
				time.Sleep(ms)
			}
		}
		all.Wait()
		require.Equal(t, want, inner.keys)
	})
}

// Whoever waits for a turn leaves when the store closes, and whoever comes later
// does not begin; what is being done is done.
func TestStore_NobodyWaitsForAStoreThatCloses(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Store){
		"leave": (*Store).Leave,
		"close": func(s *Store) { _ = s.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := new(noting)
			s := Wrap(inner, Distribution{mean: time.Hour}, 1)
			results := make(chan error, 3)
			for range cap(results) {
				go func() {
					_, _, err := s.Get(nil, nil)
					results <- err
				}()
				synctest.Wait()
			}
			start := time.Now()
			end(s)
			end(s)
			require.ErrorIs(t, <-results, store.ErrClosed, name)
			require.ErrorIs(t, <-results, store.ErrClosed, name)
			require.Zero(t, time.Since(start))
			_, err := s.Range(nil, nil, false)
			require.ErrorIs(t, err, store.ErrClosed)
			_, err = s.Apply(nil)
			require.ErrorIs(t, err, store.ErrClosed)
			require.NoError(t, <-results)
			require.Equal(t, "g", inner.calls)
			require.Equal(t, time.Hour, time.Since(start))
		})
	}
}
