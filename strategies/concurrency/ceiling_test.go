package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

// Where requests are long and the objective short, fewer at once would not be faster.
func TestCeiling_AnObjectiveThatIsTooShort(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Objective: func() time.Duration { return time.Millisecond }})
	n := c.learned(10) // 1 ms each alone, 2 ms where it does most
	require.Greater(t, n, 4.)
	require.Less(t, n, 16.)
}

// An incident in which all take long ends, and so does what it did to the ceiling.
func TestCeiling_RisesAfterAnIncident(t *testing.T) {
	t.Parallel()
	c := newClosed(t, concurrency.Options{Objective: func() time.Duration { return 20 * time.Millisecond }})
	c.complete(10_000, hands(16), nil)
	require.Greater(t, c.law.Limit(), 12)
	c.complete(2_000, func(int) time.Duration { return 100 * time.Millisecond }, nil)
	require.Less(t, c.law.Limit(), 8, c.law.Why())
	c.complete(10_000, hands(16), nil)
	require.Greater(t, c.law.Limit(), 12, c.law.Why())
}
