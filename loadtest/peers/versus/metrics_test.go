package versus

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistogram_MeanAndMedian(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		grown        map[string]float64
		mean, median float64
	}{
		{"of nothing", nil, 0, 0},
		{"of none of its kind", map[string]float64{"g_count": 2, "g_sum": 3}, 0, 0},
		// Two of eight are up to 1, six between 1 and 4: the fourth is a third of the way.
		{"between two bounds", map[string]float64{
			"h_count": 8, "h_sum": 24, `h_bucket{le="1"}`: 2, `h_bucket{le="4"}`: 8, `h_bucket{le="16"}`: 8, `h_bucket{le="+Inf"}`: 8,
		}, 3, 2},
		{"below the first bound", map[string]float64{
			"h_count": 4, "h_sum": 2, `h_bucket{le="1"}`: 4, `h_bucket{le="4"}`: 4, `h_bucket{le="+Inf"}`: 4,
		}, 0.5, 0.5},
		{"beyond the last bound", map[string]float64{
			"h_count": 4, "h_sum": 400, `h_bucket{le="1"}`: 0, `h_bucket{le="4"}`: 1, `h_bucket{le="+Inf"}`: 4,
		}, 100, 4},
	} {
		require.InDelta(t, row.mean, mean(row.grown, "h"), 1e-9, row.name)
		require.InDelta(t, row.median, median(row.grown, "h"), 1e-9, row.name)
	}
}
