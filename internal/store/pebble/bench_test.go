package pebble

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

const benchKeys = 1 << 20

func benchKey(dst []byte, i uint64) []byte {
	// Scattered, so that neighbours in time are not neighbours in the tree.
	return binary.BigEndian.AppendUint64(dst[:0], i*0x9e3779b97f4a7c15)
}

// fill writes benchKeys entries of 100 random bytes, about 110 MB, and lets
// compactions settle.
func fill(b *testing.B, s *Store) {
	r := rand.NewChaCha8([32]byte{1})
	writes := make([]store.Write, 0, 1024)
	for i := range uint64(benchKeys) {
		v := make([]byte, 100)
		_, _ = r.Read(v)
		writes = append(writes, store.Write{Key: benchKey(nil, i), Value: v})
		if len(writes) == cap(writes) {
			require.NoError(b, apply(s, writes...))
			writes = writes[:0]
		}
	}
	require.NoError(b, s.cur.Load().db.Flush())
	require.NoError(b, s.cur.Load().db.Compact(b.Context(), []byte{0}, []byte{255, 255}, false))
}

// BenchmarkGet reads random keys: present or absent, with a block cache that
// holds everything or a tenth (the rest is in the system's page cache).
func BenchmarkGet(b *testing.B) {
	for _, kib := range []int{4, 8, 16} {
		for _, cache := range []int64{12 << 20, 512 << 20} {
			s := openOnly(b, Options{
				Dir: b.TempDir(), Sync: Never, CacheBytes: cache,
				blockSize: kib << 10, Logger: slog.New(slog.DiscardHandler),
			})
			fill(b, s)
			for _, key := range []string{"present", "absent"} {
				b.Run(fmt.Sprintf("block=%dKiB/cache=%dMiB/key=%s", kib, cache>>20, key), func(b *testing.B) {
					b.ReportAllocs()
					k, v := make([]byte, 8), make([]byte, 0, 128)
					r := rand.New(rand.NewPCG(1, 2))
					for b.Loop() {
						i := r.Uint64N(benchKeys)
						if key == "absent" {
							i += benchKeys
						}
						k = benchKey(k, i)
						v, _, _ = s.Get(v[:0], k)
					}
				})
			}
			require.NoError(b, s.Close())
		}
	}
}
