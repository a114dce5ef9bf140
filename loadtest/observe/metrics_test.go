package observe

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetrics_Sum(t *testing.T) {
	t.Parallel()
	m, err := ParseMetrics([]byte("# TYPE a counter\na{b=\"c\"} 1\na{b=\"d e\"} 1.5e+06\nf -1\n"))
	require.NoError(t, err)
	for name, want := range map[string]float64{"a": 1_500_001, "f": -1} {
		got, ok := m.Sum(name)
		require.True(t, ok, name)
		require.InDelta(t, want, got, 0, name)
	}
	_, ok := m.Sum("g")
	require.False(t, ok)
	_, err = ParseMetrics([]byte("404 page not found"))
	require.Error(t, err)
}
