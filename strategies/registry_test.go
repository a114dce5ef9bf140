package strategies_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/strategytest"
)

// readsFirstModel is what the strategy of the example does.
var readsFirstModel = strategytest.Model{
	Next: func(waiting []*strategies.Task) int {
		return max(0, slices.IndexFunc(waiting, func(t *strategies.Task) bool { return !t.Write }))
	},
	Full: turnedAway,
}

func TestRegister_Errors(t *testing.T) {
	t.Parallel()
	newQueue := lookup(t, "fifo").New
	for _, tc := range []struct {
		spec strategies.Spec
		want string
	}{
		{strategies.Spec{Name: "mine"}, `register strategy "mine": New is nil`},
		{strategies.Spec{New: newQueue}, `register strategy "": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "Mine", New: newQueue}, `register strategy "Mine": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "my own", New: newQueue}, `register strategy "my own": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "a\n", New: newQueue}, `register strategy "a\n": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "fifo", New: newQueue}, `register strategy "fifo": the name is taken`},
		{strategies.Spec{Name: "reads-first", New: newQueue}, `register strategy "reads-first": the name is taken`},
	} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			t.Parallel()
			before := strategies.Names()
			require.EqualError(t, strategies.Register(tc.spec), tc.want)
			require.Equal(t, before, strategies.Names())
		})
	}
}

func TestLookup_UnknownNamesTheChoices(t *testing.T) {
	t.Parallel()
	_, err := strategies.Lookup("nonsense")
	require.ErrorIs(t, err, strategies.ErrUnknown)
	require.EqualError(t, err, `unknown strategy "nonsense", choose one of `+strings.Join(strategies.Names(), ", "))
}

func TestSpecs_SortedAndComplete(t *testing.T) {
	t.Parallel()
	names := strategies.Names()
	require.True(t, slices.IsSorted(names))
	require.Contains(t, names, "reads-first", "one that was registered is there as well")
	specs := strategies.Specs()
	require.Len(t, specs, len(names))
	for i, s := range specs {
		require.Equal(t, names[i], s.Name)
		require.NotEmpty(t, s.Summary)
		require.NotNil(t, s.New)
		require.Equal(t, s.Name == "sync", s.Inline)
		found, err := strategies.Lookup(s.Name)
		require.NoError(t, err)
		require.Equal(t, s.Name, found.Name)
	}
	// The list is the caller's.
	specs[0].Name = "changed"
	require.Equal(t, names, strategies.Names())
}

// TestSpecs_HaveModels finds strategies that the shared tests would miss.
func TestSpecs_HaveModels(t *testing.T) {
	t.Parallel()
	tested := []string{"reads-first", "sync"}
	for _, m := range models {
		tested = append(tested, m.name)
	}
	require.ElementsMatch(t, strategies.Names(), tested)
}

func TestRegistry_ConcurrentUse(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				// Taken, so that the registry stays as it is.
				_ = strategies.Register(strategies.Spec{Name: "fifo", New: lookup(t, "fifo").New})
				_ = strategies.Specs()
			}
		})
	}
	wg.Wait()
}

func TestReason_Names(t *testing.T) {
	t.Parallel()
	var names []string
	for _, r := range strategies.Reasons() {
		names = append(names, r.String())
	}
	require.Equal(t, []string{"full", "displaced", "codel", "limit", "fair", "abandoned", "draining", "expired"}, names)
	require.Equal(t, "none", strategies.ReasonNone.String())
	require.Equal(t, "unknown", strategies.Reason(200).String())
}
