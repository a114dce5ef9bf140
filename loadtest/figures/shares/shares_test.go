//go:build !race

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
	for _, tc := range []struct {
		name, strategy string
		tenants        []tenant
	}{
		{"equal", "fair", tenants},
		{"weighted", "fair", weighted(ten(places))},
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

// So it is in the minutes after, while a tenant's requests take the objective by themselves, and where places are
// learned, once they are. In the first half minute the number may be too high. Then all begin at once, and nothing waits
// that could be shared.
func TestFair_SharesOfEachMinute(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, strategy string
		tenants        []tenant
	}{
		{"fixed", "fair", ten(places)},
		{"fixed, weighted", "fair", weighted(ten(places))},
		{"learned", "fair" + learned, ten(places)},
		{"learned, weighted", "fair" + learned, weighted(ten(places))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			holds := func(seed uint64, from time.Duration) {
				o, err := tryFrom(from, tc.strategy, tc.tenants, time.Minute, time.Second, seed)
				require.NoError(t, err)
				require.LessOrEqual(t, worst(o, tc.tenants, time.Minute), 0.05, "seed %d, from %v: %v", seed, from, o.share)
			}
			holds(0, 30*time.Second)
			holds(1, 2*time.Minute)
			holds(7, 2*time.Minute) // when nothing of a tenant with long requests waits now and then
		})
	}
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
		require.GreaterOrEqual(t, fair.good(), 0.99*auto.good(), "%v", slo)
	}
}

// Nearly the same with places that are learned: of work, as auto has fewer of the long requests there, and so more of
// the short. Within 100 ms three of the ten tenants can hardly be answered. Fair gives them their share all the same.
func TestFair_GoodputOfLearnedPlaces(t *testing.T) {
	t.Parallel()
	tenants := ten(places)
	for slo, part := range map[time.Duration]float64{100 * time.Millisecond: 0.9, time.Second: 0.97} {
		fair, err := try("fair"+learned, tenants, 10*time.Minute, slo, 1)
		require.NoError(t, err)
		auto, err := try("auto"+learned, tenants, 10*time.Minute, slo, 1)
		require.NoError(t, err)
		require.GreaterOrEqual(t, work(fair, tenants), part*work(auto, tenants), "%v", slo)
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
	require.LessOrEqual(t, beside.served(0), 2*alone.served(0))
	require.GreaterOrEqual(t, float64(beside.answers[0].good), 0.99*float64(beside.answers[0].asked))
}

func TestReport(t *testing.T) {
	t.Parallel()
	require.NoError(t, report(t.Output(), time.Duration(*seconds)*time.Second, *seeds))
}
