package shares

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ten tenants that ask for twice what they may, with requests of 1 ×, 10 ×, 100 × and any size: after a minute each has
// its share of the time, give or take 5% and its largest request, and after ten minutes all have the same.
func TestFair_SharesOfTime(t *testing.T) {
	t.Parallel()
	tenants := ten(places)
	weighted := ten(places)
	for i := range weighted {
		weighted[i].weight = 1 + i%3
		weighted[i].asks *= float64(weighted[i].weight)
	}
	for _, tc := range []struct {
		name, strategy string
		tenants        []tenant
	}{
		{"equal", "fair", tenants},
		{"weighted", "fair", weighted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3) {
				o, err := try(tc.strategy, tc.tenants, time.Minute, time.Second, seed)
				require.NoError(t, err)
				require.LessOrEqual(t, worst(o, tc.tenants, time.Minute), 0.05, "seed %d: %v", seed, o.share)
			}
			o, err := try(tc.strategy, tc.tenants, 10*time.Minute, time.Second, 1)
			require.NoError(t, err)
			require.GreaterOrEqual(t, jain(o.share, tc.tenants), 0.98)
		})
	}
	// By count the heavy ones have more: the measure is one.
	o, err := try("DRR by count", tenants, time.Minute, time.Second, 1)
	require.NoError(t, err)
	require.Greater(t, worst(o, tenants, time.Minute), 0.4)
}

// With places that are learned the shares are fair in the long run. In the first minute the heavy ones have less, while
// the number is learned.
func TestFair_SharesOfLearnedPlaces(t *testing.T) {
	t.Parallel()
	o, err := try("fair"+learned, ten(places), 10*time.Minute, time.Second, 1)
	require.NoError(t, err)
	require.GreaterOrEqual(t, jain(o.share, ten(places)), 0.98)
}

// So much is answered in time as under auto.
func TestFair_Goodput(t *testing.T) {
	t.Parallel()
	for _, slo := range []time.Duration{100 * time.Millisecond, time.Second} {
		fair, err := try("fair", ten(places), 2*time.Minute, slo, 1)
		require.NoError(t, err)
		auto, err := try("auto", ten(places), 2*time.Minute, slo, 1)
		require.NoError(t, err)
		require.GreaterOrEqual(t, float64(fair.Good), 0.99*float64(auto.Good), "%v", slo)
	}
}

// Nearly the same with places that are learned: of work, as auto has fewer of the long requests there, and so more of
// the short.
func TestFair_GoodputOfLearnedPlaces(t *testing.T) {
	t.Parallel()
	tenants := ten(places)
	for _, slo := range []time.Duration{100 * time.Millisecond, time.Second} {
		fair, err := try("fair"+learned, tenants, 10*time.Minute, slo, 1)
		require.NoError(t, err)
		auto, err := try("auto"+learned, tenants, 10*time.Minute, slo, 1)
		require.NoError(t, err)
		require.GreaterOrEqual(t, work(fair, tenants), 0.95*work(auto, tenants), "%v", slo)
	}
}

// Who asks for half of its share hardly notices nine that ask for more than theirs.
func TestFair_BelowItsShare(t *testing.T) {
	t.Parallel()
	tenants := light()
	alone, err := try("fair", tenants[:1], 2*time.Minute, time.Second, 1)
	require.NoError(t, err)
	beside, err := try("fair", tenants, 2*time.Minute, time.Second, 1)
	require.NoError(t, err)
	require.LessOrEqual(t, served(beside.Result, 0), 2*served(alone.Result, 0))
	require.GreaterOrEqual(t, float64(beside.Classes[0].Good), 0.99*float64(beside.Classes[0].Offered))
}

func TestReport(t *testing.T) {
	t.Parallel()
	require.NoError(t, report(t.Output(), time.Duration(*seconds)*time.Second, *seeds))
}
