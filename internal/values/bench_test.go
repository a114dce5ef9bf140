package values

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkCache tells what the steps of a read and of a write cost, with keys that no
// cache of the processor holds.
func BenchmarkCache(b *testing.B) {
	const n = 1 << 18
	value := make([]byte, 100)
	keys := make([][]byte, 2*n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key%012d", i)
	}
	filled := func(b *testing.B, size int64) *Cache {
		c, err := New(Options{Bytes: size})
		require.NoError(b, err)
		b.Cleanup(c.Close)
		for _, key := range keys[:n] {
			_, _, t, _ := c.Get(nil, key)
			c.Fill(t, key, value, Meta{})
		}
		b.ReportAllocs()
		return c
	}
	parallel := func(b *testing.B, do func(i int)) {
		b.RunParallel(func(pb *testing.PB) {
			for i := rand.IntN(n); pb.Next(); i = (i*5 + 1) % n {
				do(i)
			}
		})
	}
	b.Run("op=hit", func(b *testing.B) {
		c := filled(b, 128<<20)
		b.RunParallel(func(pb *testing.PB) {
			dst := make([]byte, 0, 200)
			for i := rand.IntN(n); pb.Next(); i = (i*5 + 1) % n {
				if _, _, _, ok := c.Get(dst, keys[i]); !ok {
					panic("a miss")
				}
			}
		})
	})
	b.Run("op=absent", func(b *testing.B) {
		c := filled(b, 128<<20)
		parallel(b, func(i int) { c.Get(nil, keys[n+i]) })
	})
	// With every fill something leaves.
	b.Run("op=miss-and-fill", func(b *testing.B) {
		c := filled(b, 16<<20)
		parallel(b, func(i int) {
			_, _, t, ok := c.Get(nil, keys[n+i])
			if !ok {
				c.Fill(t, keys[n+i], value, Meta{})
			}
		})
	})
	b.Run("op=write-known", func(b *testing.B) {
		c := filled(b, 128<<20)
		parallel(b, func(i int) {
			w := c.Change()
			w.Add(keys[i], Meta{})
			if w.Known(0) {
				w.Put(0, keys[i], value)
			}
			w.End()
		})
	})
	b.Run("op=write-unknown", func(b *testing.B) {
		c := filled(b, 128<<20)
		parallel(b, func(i int) {
			w := c.Change()
			w.Add(keys[n+i], Meta{})
			w.End()
		})
	})
}
