package profiles

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/admin"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/server"
	"github.com/spillway-go/spillway/internal/store/pebble"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// linked has the service linked into the binary of the test, so that its
// functions have names there.
var linked = []any{admin.Open, dispatch.Open, executor.Open, metrics.New, (*metrics.Metrics).Handler, pebble.Open, server.Open, http.ListenAndServe}

// TestRules_NoneDead fails when a function that a rule names is renamed.
func TestRules_NoneDead(t *testing.T) {
	t.Parallel()
	require.NotContains(t, linked, nil)
	path, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(path)
	require.NoError(t, err)
	// Go keeps the names of all functions, of those that were inlined as well,
	// each ended by a zero byte.
	known := make(map[string]bool)
	for name := range bytes.SplitSeq(binary, []byte{0}) {
		if len(name) > 0 && len(name) < 500 {
			known[shorten(string(name))] = true
		}
	}
	for _, r := range slices.Concat(roots, rules, background) {
		found := false
		for name := range known {
			if strings.HasPrefix(name, r.prefix) {
				found = true
				break
			}
		}
		require.True(t, found, "no function of the service begins with %s", r.prefix)
	}
	for _, name := range parks {
		require.True(t, slices.ContainsFunc([]string{name, name + "1"}, func(s string) bool { return known[s] }), name)
	}
}

// TestRules_NoneShadowed fails for a rule that never decides, because one
// before it names all its functions.
func TestRules_NoneShadowed(t *testing.T) {
	t.Parallel()
	for _, table := range [][]rule{roots, rules, background} {
		for i, r := range table {
			for _, before := range table[:i] {
				if before.part != Parked || r.part == Parked {
					require.False(t, strings.HasPrefix(r.prefix, before.prefix), "%s comes before %s", before.prefix, r.prefix)
				}
			}
		}
	}
}
