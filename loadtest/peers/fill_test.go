package peers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// TestFillStore_HoldsTheNearKeysAndFewOfTheFar asks for both as a comparison does.
func TestFillStore_HoldsTheNearKeysAndFewOfTheFar(t *testing.T) {
	t.Parallel()
	const keys, requests = 500, 1000
	dir := filepath.Join(t.TempDir(), "store")
	require.NoError(t, FillStore(t.Context(), dir, keys, 1000))
	require.ErrorIs(t, FillStore(t.Context(), dir, keys, 1000), os.ErrExist)

	kv, err := openKeyValue(&Options{Dir: dir, CacheBytes: 1 << 20})
	require.NoError(t, err)
	size := 0
	for _, key := range []string{"key000000000000", "key000000000499", "key000000000500", "key000000001500", "key000000499500"} {
		require.NoError(t, kv.get([]byte(key), func(value []byte) { size += len(value) }), key)
	}
	require.Equal(t, 5*1000, size)
	require.NoError(t, kv.close())

	p, err := Open(Options{Name: "plain", Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Dir: dir, CacheBytes: 1 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	get := func(keys uint64) map[string]int64 {
		r, err := generator.Run(t.Context(), workload.Options{
			URL: "http://" + p.Addr().String(), Mix: workload.Mix{Get: 1}, Keys: keys, Count: requests, Connections: 2, Seed: 1,
		})
		require.NoError(t, err)
		return r.Status
	}
	require.Equal(t, map[string]int64{"200": requests}, get(keys))
	require.Greater(t, get(keys * (1 + Apart))["404"], int64(requests*98/100))
}
