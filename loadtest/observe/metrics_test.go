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

func TestHistogram_MeanAndMedian(t *testing.T) {
	t.Parallel()
	const head = "# TYPE h histogram\n"
	for _, row := range []struct {
		name, before, after string
		mean, median        float64
	}{
		{"of nothing", "", "", 0, 0},
		{"of nothing new", head + "h_bucket{le=\"1\"} 2\nh_sum 2\nh_count 2\n", head + "h_bucket{le=\"1\"} 2\nh_sum 2\nh_count 2\n", 0, 0},
		// Two of eight are up to 1, six between 1 and 4: the fourth is a third of the way.
		{
			"between two bounds", "",
			head + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"4\"} 8\nh_bucket{le=\"16\"} 8\nh_bucket{le=\"+Inf\"} 8\nh_sum 24\nh_count 8\n", 3, 2,
		},
		{
			"of what is new", head + "h_bucket{le=\"1\"} 90\nh_bucket{le=\"4\"} 90\nh_bucket{le=\"+Inf\"} 90\nh_sum 90\nh_count 90\n",
			head + "h_bucket{le=\"1\"} 92\nh_bucket{le=\"4\"} 98\nh_bucket{le=\"+Inf\"} 98\nh_sum 114\nh_count 98\n", 3, 2,
		},
		{"below the first bound", "", head + "h_bucket{le=\"1\"} 4\nh_bucket{le=\"4\"} 4\nh_bucket{le=\"+Inf\"} 4\nh_sum 2\nh_count 4\n", 0.5, 0.5},
		{"beyond the last bound", "", head + "h_bucket{le=\"1\"} 0\nh_bucket{le=\"4\"} 1\nh_bucket{le=\"+Inf\"} 4\nh_sum 400\nh_count 4\n", 100, 4},
	} {
		before, err := ParseMetrics([]byte(row.before))
		require.NoError(t, err, row.name)
		after, err := ParseMetrics([]byte(row.after))
		require.NoError(t, err, row.name)
		h := after.Grown("h", before)
		require.InDelta(t, row.mean, h.Mean(), 1e-9, row.name)
		require.InDelta(t, row.median, h.Median(), 1e-9, row.name)
	}
}
