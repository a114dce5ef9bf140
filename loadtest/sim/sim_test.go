//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// The goodput of strategies past capacity, as a share of the capacity: what users
// choose by, so that no change alters it unnoticed.
var pastCapacity = []struct {
	strategy  string
	capacity  int
	multiple  float64
	low, high float64
}{
	// Whoever is served has waited for the whole queue, which takes longer than
	// the SLO.
	{"fifo", 256, 1.1, 0.001, 0.02},
	{"fifo", 256, 2, 0, 0.001},
	{"mpmc", 256, 1.1, 0.001, 0.02},
	{"unbounded", 256, 1.1, 0, 0.01},
	// The oldest leaves as soon as another comes, so that the queue is the
	// shorter in time the more there are.
	{"drop-oldest", 256, 1.1, 0, 0.1},
	{"drop-oldest", 256, 2, 0.98, 1.03},
	// A queue that takes less than the SLO does well: but how long is that?
	{"fifo", 64, 2, 0.99, 1.03},
	// Newest first serves nearly everybody whom it serves in time.
	{"lifo", 1024, 1.1, 0.985, 1.03},
	{"lifo", 1024, 2, 0.99, 1.03},
	{"lifo", 1024, 10, 0.99, 1.03},
	// Half of what is served is new, and in time.
	{"hybrid", 256, 1.5, 0.45, 0.55},
	// These answer the newest, or tell who would be late, and so answer the others in time.
	{"adaptive-lifo", 256, 1.5, 0.97, 1.03},
	{"auto", 4096, 1.5, 0.97, 1.03},
	{"codel", 256, 1.5, 0.97, 1.03},
	{"fair", 256, 1.5, 0.97, 1.03},
	// Without deadlines and classes, and with one client, these are first-in first-out.
	{"edf", 256, 1.5, 0, 0.01},
	{"priority", 256, 1.5, 0, 0.01},
	{"sharded", 256, 1.5, 0, 0.01},
	// What callers run is beside the workers, and nothing bounds that here.
	{"caller-runs", 256, 1.5, 0.45, 0.55},
	{"sync", 256, 1.5, 1.45, 1.55},
}

func TestRun_GoodputPastCapacity(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, tt := range pastCapacity {
		tested[tt.strategy] = true
		c := standard(tt.strategy, tt.capacity, tt.multiple)
		c.Duration = time.Duration(float64(40*time.Second) / tt.multiple)
		r, err := measure(c)
		require.NoError(t, err)
		require.Equal(t, 2000.0, r.Capacity)
		t.Logf("%s of %d at %gx: goodput %.4f of capacity, served p99 %v", tt.strategy, tt.capacity, tt.multiple, r.OfCapacity(), r.ServedP(99))
		require.GreaterOrEqual(t, r.OfCapacity(), tt.low, "%+v", tt)
		require.LessOrEqual(t, r.OfCapacity(), tt.high, "%+v", tt)
	}
	for _, name := range strategies.Names() {
		require.True(t, tested[name], "%s needs a line in pastCapacity", name)
	}
}

// Of a run of 15 s that begins with an empty queue, nearly all that is good of a
// long first-in first-out queue is what comes before it has filled.
func TestRun_GoodputWhileTheQueueFills(t *testing.T) {
	t.Parallel()
	for multiple, want := range map[float64]float64{1.1: 0.08, 2: 0.01} {
		goodput := 0.0
		const runs = 8
		for seed := range uint64(runs) {
			c := standard("fifo", 256, multiple)
			c.Warmup, c.Duration, c.Seed = 0, 15*time.Second, seed
			r, err := measure(c)
			require.NoError(t, err)
			goodput += r.OfCapacity() / runs
		}
		require.InDelta(t, want, goodput, want/3)
	}
}
