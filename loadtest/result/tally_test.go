package result

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// That a key has no value answers a get. To a put it says that nothing was stored.
func TestTally_KnowsWhatServes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		op     workload.Op
		status int
		served bool
	}{
		{workload.Get, http.StatusOK, true},
		{workload.Get, http.StatusNotFound, true},
		{workload.Get, http.StatusNotModified, true},
		{workload.Put, http.StatusCreated, true},
		{workload.Delete, http.StatusAccepted, true},
		{workload.Put, http.StatusNotFound, false},
		{workload.Delete, http.StatusNotFound, false},
		{workload.Scan, http.StatusNotFound, false},
		{workload.Get, http.StatusMethodNotAllowed, false},
		{workload.Get, http.StatusServiceUnavailable, false},
	} {
		tally := NewTally(workload.Options{Rate: 1}.WithDefaults())
		part := tally.Part(&workload.Request{Op: tt.op, Priority: -1})
		tally.Offered(0, part)
		tally.Answered(0, 0, time.Millisecond, part, tt.status, "")
		r := tally.Result(time.Time{}, time.Second)
		want := 0.0
		if tt.served {
			want = 1
		}
		require.InDelta(t, want, r.GoodputRPS, 0, "%v to a %v", tt.status, tt.op)
		require.InDelta(t, want, r.ServedRPS, 0, "%v to a %v", tt.status, tt.op)
		require.EqualValues(t, want, r.ServedLatency.Count)
		require.EqualValues(t, 1, r.Latency.Count)
	}
}

// What a request waits for a connection counts by one of two clocks.
func TestTally_GoodByTwoClocks(t *testing.T) {
	t.Parallel()
	o := workload.Options{Rate: 1, SLO: 100 * time.Millisecond}.WithDefaults()
	tally, other := NewTally(o), NewTally(o)
	part := tally.Part(&workload.Request{Op: workload.Get, Priority: -1})
	for _, answered := range []struct{ sent, now time.Duration }{
		{0, 50 * time.Millisecond},                      // good by both
		{60 * time.Millisecond, 150 * time.Millisecond}, // had to wait
		{60 * time.Millisecond, 161 * time.Millisecond}, // was late at the service
	} {
		tally.Answered(0, answered.sent, answered.now, part, http.StatusOK, "")
	}
	tally.Answered(0, 0, time.Millisecond, part, http.StatusServiceUnavailable, "late")
	other.Add(tally)
	r := other.Result(time.Time{}, time.Second)
	require.InDelta(t, 1, r.GoodputRPS, 0)
	require.InDelta(t, 2, r.SentGoodputRPS, 0)
}

// A request that is scheduled in the window and answered after it is good, and no answer of the window.
func TestTally_GoodInTheWindow(t *testing.T) {
	t.Parallel()
	o := workload.Options{Rate: 1, SLO: 100 * time.Millisecond, Warmup: time.Second, Duration: time.Second}.WithDefaults()
	tally, other := NewTally(o), NewTally(o)
	part := tally.Part(&workload.Request{Op: workload.Get, Priority: -1})
	for _, answered := range []struct{ scheduled, now time.Duration }{
		{950 * time.Millisecond, 1050 * time.Millisecond},  // only answered in it
		{1000 * time.Millisecond, 1010 * time.Millisecond}, // both
		{1500 * time.Millisecond, 1601 * time.Millisecond}, // late
		{1990 * time.Millisecond, 2010 * time.Millisecond}, // only scheduled in it
		{1995 * time.Millisecond, 2000 * time.Millisecond}, // the same
	} {
		tally.Answered(answered.scheduled, answered.scheduled, answered.now, part, http.StatusOK, "")
	}
	other.Add(tally)
	r := other.Result(time.Time{}, time.Second)
	require.InDelta(t, 3, r.GoodputRPS, 0)
	require.InDelta(t, 2, r.CompletedGoodRPS, 0)
}

// Who watches a server that answers nothing is to see that.
func TestTally_CountsWhatHasEnded(t *testing.T) {
	t.Parallel()
	tally := NewTally(workload.Options{Rate: 1}.WithDefaults())
	for range 2 {
		tally.Failed(0, 0, 10*time.Second, Part{}, ErrorTimeout)
	}
	tally.Answered(0, 0, time.Millisecond, tally.Part(&workload.Request{Op: workload.Get, Priority: -1}), http.StatusOK, "")
	require.EqualValues(t, 3, tally.Ended.Load())
	require.EqualValues(t, 2, tally.Unanswered.Load())
}

func TestPercentiles_AreKnownByTenBeyondThem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		percentile float64
		count      int64
		known      bool
	}{
		{50, 19, false},
		{50, 20, true},
		{99.9, 9_999, false},
		{99.9, 10_000, true},
		{99.99, 2_463, false},
		{99.99, 100_000, true},
		{99.99, 0, true}, // not counted
	} {
		require.Equal(t, tt.known, Percentiles{Count: tt.count}.Known(tt.percentile), "%+v", tt)
	}
}
