package peers

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store/pebble"
)

// TestPebbleOptions_AreThoseOfTheService compares what Pebble writes down of the
// options of either, so that the comparison stays fair when the service's
// change.
func TestPebbleOptions_AreThoseOfTheService(t *testing.T) {
	t.Parallel()
	for _, cache := range []int64{1 << 20, 64 << 20, 256 << 20, 2 << 30} {
		service, peer := t.TempDir(), t.TempDir()
		s, err := pebble.Open(pebble.Options{Dir: service, Sync: pebble.Never, CacheBytes: cache})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		kv, err := openKeyValue(&Options{Dir: peer, CacheBytes: cache})
		require.NoError(t, err)
		require.NoError(t, kv.db.Close())
		require.Equal(t, written(t, service), written(t, peer), "cache of %d bytes", cache)
	}
}

// written returns the options that were written down in a data folder.
func written(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "OPTIONS-*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(text), "mem_table_size")
	return stops.ReplaceAllString(string(text), "")
}

// stops are the limits at which Pebble has writes wait. The service has them wait
// before, by its own measure, and the peers have none but these.
var stops = regexp.MustCompile(`(?m)^ +(mem_table|l0)_stop_writes_threshold=\d+\n`)
