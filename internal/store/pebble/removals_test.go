package pebble

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What several instances want to remove is removed once, after the last hold.
func TestRemovals(t *testing.T) {
	t.Parallel()
	var r removals
	require.False(t, r.later("1.sst"))
	r.hold()
	require.True(t, r.later("2.sst"))
	r.hold()
	require.True(t, r.later("2.sst"))
	require.True(t, r.later("3.sst"))
	require.Empty(t, r.release())
	require.Equal(t, []string{"2.sst", "3.sst"}, r.release())
	require.False(t, r.later("2.sst"))
	r.hold()
	require.Empty(t, r.release())
}
