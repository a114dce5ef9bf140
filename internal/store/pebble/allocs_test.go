//go:build !race

// Under the race detector Pebble's iterators copy values at random, to find those who keep
// them for too long.

package pebble

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

// Conditions on large values hold up other writes no longer than those on small ones.
func TestStore_ViewAllocatesNoValue(t *testing.T) {
	t.Parallel()
	s := openOnly(t, Options{Dir: t.TempDir(), memTableBytes: 16 << 20})
	require.NoError(t, apply(s, put("large", strings.Repeat("v", 1<<20))))
	require.NoError(t, s.View(func(v store.View) error {
		once, _, err := v.Get([]byte("large"))
		require.NoError(t, err)
		again, _, err := v.Get([]byte("large"))
		require.Len(t, again, 1<<20)
		require.Same(t, &once[0], &again[0])
		return err
	}))
	require.NoError(t, s.Close())
}
