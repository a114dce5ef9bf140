package strategies_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

func TestParseObjective(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0, "none": strategies.NoObjective, "100us": 100 * time.Microsecond, "250ms": 250 * time.Millisecond, "1h": time.Hour,
	} {
		got, err := strategies.ParseObjective(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.NoError(t, strategies.CheckObjective(got))
		again, err := strategies.ParseObjective(strategies.FormatObjective(got))
		require.NoError(t, err)
		require.Equal(t, want, again, text)
	}
	for _, text := range []string{"0", "0s", "-1ns", "-200ms", "99us", "1h1s", "24h", "2d", "200", "fast", "None", " 1s"} {
		_, err := strategies.ParseObjective(text)
		require.EqualError(t, err, "a duration from 100us to 1h such as 250ms or 2s, or none", text)
	}
}
