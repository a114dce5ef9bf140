package bufpool

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGet(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 4<<10 - 1, 4 << 10, 8<<10 + 1, 1 << 20, 1 << 24, 1<<24 + 1} {
		b := Get(n)
		require.Empty(t, b)
		require.GreaterOrEqual(t, cap(b), n)
		Put(b)
	}
	Put(make([]byte, 0, 10_000)) // no size of ours
	require.GreaterOrEqual(t, cap(Get(10_000)), 10_000)
	Put(nil)
}

// No buffer has much more room than was asked for, whatever has been put back.
func TestGet_RoomIsBounded(t *testing.T) {
	t.Parallel()
	check := func(n int) {
		b := Get(n)
		require.GreaterOrEqual(t, cap(b), n)
		require.LessOrEqual(t, cap(b), n+n/4+1, n)
		Put(b)
		Put(make([]byte, 0, n))
	}
	for class := range pools {
		size := sizeOf(class)
		require.Equal(t, class, classBelow(size))
		require.Equal(t, class, classBelow(sizeOf(class+1)-1))
		for _, n := range []int{size + size/8, size + 1, size, size - 1} {
			check(n)
			check(n)
		}
	}
	require.Equal(t, smallest, sizeOf(0))
	require.Equal(t, largest, sizeOf(len(pools)-1))
}

func TestGrow(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 100, 8 << 10} {
		for _, n := range []int{0, 1, 1000, 4 << 10, 8 << 10, 1 << 20} {
			content := strings.Repeat("a", length)
			for _, room := range []int{0, 500, 2 << 20} {
				b := append(make([]byte, 0, length+room), content...)
				grown := Grow(b, n)
				require.Equal(t, content, string(grown))
				require.GreaterOrEqual(t, cap(grown)-len(grown), n)
				if room >= n {
					require.Equal(t, cap(b), cap(grown), "it had room")
				}
				if length > 0 && room < n {
					grown[0] = 'b'
					require.Equal(t, content, string(b), "b is the caller's")
				}
			}
		}
	}
}
