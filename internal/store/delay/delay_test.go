package delay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"spillway/internal/store"
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
	} {
		d, err := ParseDistribution(row.in)
		require.NoError(t, err, row.in)
		require.Equal(t, row.want, d, row.in)
		require.Equal(t, row.out, d.String(), row.in)
		again, err := ParseDistribution(d.String())
		require.NoError(t, err)
		require.Equal(t, d, again)
	}
	for _, bad := range []string{"-1ms", "4", "exp:", "exp:-4ms", "exp", "gauss:4ms", "EXP:4ms", "2h", " 4ms", "exp:exp:4ms"} {
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

// counting is a store that notes its calls.
type counting struct {
	store.Store
	calls string
}

func (c *counting) Get(dst, _ []byte) ([]byte, error) { c.calls += "g"; return dst, nil }
func (c *counting) Apply([]store.Write) (store.Commit, error) {
	c.calls += "a"
	return nil, nil
}
func (c *counting) Range(_, _ []byte) (store.Iterator, error) { c.calls += "r"; return nil, nil }

func TestWrap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := new(counting)
		require.Same(t, inner, Wrap(inner, Distribution{}).(*counting))
		s := Wrap(inner, Distribution{mean: 4 * time.Millisecond})
		for _, row := range []struct {
			do   func()
			want time.Duration
		}{
			{func() { _, _ = s.Get(nil, nil) }, 4 * time.Millisecond},
			{func() { _, _ = s.Range(nil, nil) }, 4 * time.Millisecond},
			{func() { _, _ = s.Apply(make([]store.Write, 3)) }, 12 * time.Millisecond},
		} {
			start := time.Now()
			row.do()
			require.Equal(t, row.want, time.Since(start))
		}
		require.Equal(t, "gra", inner.calls)
	})
}
