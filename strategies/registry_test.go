package strategies_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/strategytest"
)

// cheapFirstModel is what the strategy of the example does.
var cheapFirstModel = strategytest.Model{
	Next: strategytest.First(byCost), Full: turnedAway,
}

func TestRegister_Errors(t *testing.T) {
	t.Parallel()
	newQueue := lookup(t, "fifo").New
	for _, tc := range []struct {
		spec strategies.Spec
		want string
	}{
		{strategies.Spec{Name: "mine", New: newQueue, Reasons: []strategies.Reason{"Not this"}}, `register: strategy "mine": the reason "Not this" is none of 1 to 32 lower-case letters, digits, hyphens and underscores`},
		{strategies.Spec{Name: "mine", New: newQueue, Reasons: make([]strategies.Reason, 17)}, `register: strategy "mine": 17 reasons of its own, at most 16 are allowed`},
		{strategies.CoDel(strategies.CoDelOptions{Target: -1}), `register: strategy "codel": Target is -1ns, 1µs to 1h is allowed`},
		{strategies.CoDel(strategies.CoDelOptions{Interval: 2 * time.Hour}), `register: strategy "codel": Interval is 2h0m0s, 1µs to 1h is allowed`},
		{strategies.EDF(strategies.EDFOptions{RelativeDeadline: 1}), `register: strategy "edf": RelativeDeadline is 1ns, 1µs to 1h is allowed`},
		{strategies.Spec{Name: "mine"}, `register: strategy "mine": New is nil`},
		{strategies.Spec{New: newQueue}, `register: strategy "": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "Mine", New: newQueue}, `register: strategy "Mine": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "my own", New: newQueue}, `register: strategy "my own": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "a\n", New: newQueue}, `register: strategy "a\n": a name consists of lower-case letters, digits and hyphens`},
		{strategies.Spec{Name: "fifo", New: newQueue}, `register: strategy "fifo": the name is taken`},
		{strategies.Spec{Name: "cheap-first", New: newQueue}, `register: strategy "cheap-first": the name is taken`},
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
	require.Contains(t, names, "cheap-first", "one that was registered is there as well")
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
	tested := []string{"cheap-first", "sync"}
	for _, m := range models {
		tested = append(tested, m.name)
	}
	for _, name := range strategies.Names() {
		require.True(t, slices.Contains(tested, name), "%s needs a line in models", name)
	}
	require.Len(t, tested, len(strategies.Names()), "each once")
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
	require.Equal(t, []string{"full", "displaced", "codel", "late", "fair", "abandoned", "draining", "expired"}, names)
	require.Equal(t, "none", strategies.ReasonNone.String())
}
