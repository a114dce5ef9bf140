//go:build !race

package values

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The index takes what memory the values need, up to all that there is, and finds each of
// them as it grows.
func TestCache_IndexGrows(t *testing.T) {
	t.Parallel()
	c := newCache(t, 4<<20, 1)
	s := &c.shards[0]
	require.Len(t, s.index, firstIndex)
	n := cap(s.index) * indexFull / 16
	for i := range n {
		c.fill(fmt.Sprint("key", i), "v")
		if i%1000 == 0 || i == n-1 {
			require.Less(t, s.used, len(s.index))
			require.LessOrEqual(t, len(s.index), max(firstIndex, 2*s.used))
			for j := 0; j <= i; j += 1 + i/100 {
				_, _, _, ok := c.Get(nil, fmt.Append(nil, "key", j))
				require.True(t, ok, "%d of %d", j, i)
			}
			c.check(t)
		}
	}
	require.Len(t, s.index, cap(s.index))
	c.fill("one more", "v")
	require.Equal(t, n, s.used, "something has left for it")
	c.Clear()
	c.check(t)
	_, _, _, ok := c.Get(nil, []byte("key0"))
	require.False(t, ok)
}
