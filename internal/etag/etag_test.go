package etag

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTag_Text(t *testing.T) {
	t.Parallel()
	tag := Of([]byte("value"))
	require.Len(t, tag.String(), Length)
	again, ok := Parse([]byte(tag.String()))
	require.True(t, ok)
	require.Equal(t, tag, again)
	other := Of([]byte("Value"))
	require.NotEqual(t, tag, other)
	require.False(t, tag.IsZero())
}

// One tag has one text, and what is none has no tag.
func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "*", "abc",
		"AAAAAAAAAAAAAAAAAAAAAB",  // the last bits of this one would not matter
		"AAAAAAAAAAAAAAAAAAAAA+",  // of another alphabet
		"AAAAAAAAAAAAAAAAAAAAAAA", // too long
		"AAAAAAAAAAAAAAAAAAAAA\n",
	} {
		_, ok := Parse([]byte(text))
		require.False(t, ok, "%q", text)
	}
}

func TestTag_AllocatesNothing(t *testing.T) {
	value, dst := make([]byte, 100), make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		tag := Of(value)
		dst = tag.Append(dst[:0])
		_, _ = Parse(dst)
	}))
}

func BenchmarkOf(b *testing.B) {
	for _, n := range []int{0, 100, 1 << 10, 4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			value := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				_ = Of(value)
			}
		})
	}
}
