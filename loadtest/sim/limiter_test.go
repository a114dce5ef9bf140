//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// swings is a limiter that says 2 to 6, another number at each end.
type swings struct {
	t  *testing.T
	at int
}

func (s *swings) Limit() int { return 2 + s.at%5 }

func (s *swings) Ended(e Ended) {
	s.at++
	require.True(s.t, e.Running >= 1 && e.Running <= 6, "%d run", e.Running)
}

// There may be as many workers as a limiter says, and another number under load.
func TestConfig_Limiter(t *testing.T) {
	t.Parallel()
	run := func(workers int, l Limiter) *Result {
		r, err := measure(Config{
			Strategy: "fair", Workers: workers, Limiter: l, Service: Exponential(4 * time.Millisecond), Duration: 10 * time.Second, Seed: 1,
		}.asked(poisson(2000)))
		require.NoError(t, err)
		return r
	}
	require.Equal(t, run(4, nil).Counts, run(8, Fixed(4)).Counts)
	swung := run(8, &swings{t: t})
	require.Equal(t, swung.Offered, swung.Served+swung.Refused)
	require.Greater(t, swung.Good, run(2, nil).Good)
	require.Less(t, swung.Good, run(6, nil).Good)
}
