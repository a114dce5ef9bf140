package pebble

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// All memtables that may wait together take no more than half of the cache,
// unless that is too small for any.
func TestOptions_MemtablesFollowTheCache(t *testing.T) {
	t.Parallel()
	for cache, want := range map[int64]uint64{
		1: 1 << 20, 4 << 20: 1 << 20, 32 << 20: 4 << 20, 0: 8 << 20, 256 << 20: 32 << 20, 512 << 20: 64 << 20, 8 << 30: 64 << 20,
	} {
		o := Options{CacheBytes: cache}
		o.setDefaults()
		require.Equal(t, want, o.memTableBytes, "cache of %d bytes", cache)
	}
}
