//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// goodByClass returns the share of the requests of each class, of those clients, that
// are served within the SLO, at a multiple of the capacity.
func goodByClass(t *testing.T, strategy string, multiple float64, clients []string, classes ...Class) []float64 {
	t.Helper()
	c := standard(strategy, 256, multiple, classes...)
	c.Warmup, c.Duration = time.Second, 10*time.Second
	r, err := measure(c.asked(poisson(multiple*c.ServiceRate()), clients...))
	require.NoError(t, err)
	var good []float64
	for i := range r.Classes {
		good = append(good, r.Classes[i].OfOffered())
	}
	return good
}

// One client sends 95% of the load. Under fair that is its own affair.
func TestFair_OneGreedyClient(t *testing.T) {
	t.Parallel()
	clients, greedy, others := []string{"greedy", "other*10"}, Class{Weight: 95}, Class{Weight: 5}
	for _, multiple := range []float64{0.9, 1.1, 2, 10} {
		require.GreaterOrEqual(t, goodByClass(t, "fair", multiple, clients, greedy, others)[1], 0.98, "at %g times the capacity", multiple)
	}
	require.Less(t, goodByClass(t, "fifo", 2, clients, greedy, others)[1], 0.02)
}

// The most important class does not notice that there are others.
func TestPriority_TheMostImportantClass(t *testing.T) {
	t.Parallel()
	// Who is passed over goes in the end.
	classes := []Class{{Weight: 20, Priority: 0}, {Weight: 30, Priority: 3}, {Weight: 50, Priority: 7}}
	for i := range classes {
		classes[i].Timeout = 5 * time.Second
	}
	for _, multiple := range []float64{0.9, 2, 3} {
		require.GreaterOrEqual(t, goodByClass(t, "priority", multiple, nil, classes...)[0], 0.99, "at %g times the capacity", multiple)
	}
	require.Less(t, goodByClass(t, "fifo", 3, nil, classes...)[0], 0.01)
}

// With deadlines of 20, 50, 100 and 500 ms, edf misses fewer than others below
// capacity, where hardly one need be missed, and past it not many more than have
// to be.
func TestEDF_MixedDeadlines(t *testing.T) {
	t.Parallel()
	missed := func(strategy string, multiple float64) float64 {
		var classes []Class
		for _, ms := range []time.Duration{20, 50, 100, 500} {
			classes = append(classes, Class{Priority: DefaultPriority, Timeout: ms * time.Millisecond, Deadline: true})
		}
		c := standard(strategy, 256, multiple, classes...)
		c.Objective = time.Hour // the deadlines say what is good
		r, err := measure(c)
		require.NoError(t, err)
		return 1 - r.OfOffered()
	}
	for _, tt := range []struct{ multiple, most float64 }{
		// An exponential service time of 4 ms is longer than 20 ms in 0.7% of the
		// cases, which are a quarter of all.
		{0.7, 0.003}, {0.9, 0.003}, {0.95, 0.003},
		// 9%, 50% and 75% have to be missed.
		{1.1, 0.12}, {2, 0.54}, {4, 0.79},
	} {
		edf := missed("edf", tt.multiple)
		require.LessOrEqual(t, edf, tt.most, "at %g times the capacity", tt.multiple)
		if tt.multiple < 1 {
			require.Less(t, edf, missed("fifo", tt.multiple), "at %g times the capacity", tt.multiple)
			require.Less(t, edf, missed("lifo", tt.multiple), "at %g times the capacity", tt.multiple)
			require.LessOrEqual(t, edf, missed("auto", tt.multiple), "at %g times the capacity", tt.multiple)
		}
	}
}
