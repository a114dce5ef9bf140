package pebble

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// All memtables that may wait together take no more than half of the caches, and no more
// than that of blocks, unless that is too small for any.
func TestOptions_MemtablesFollowTheCache(t *testing.T) {
	t.Parallel()
	for cache, want := range map[[2]int64]uint64{
		{1, 0}: 1 << 20, {4 << 20, 0}: 1 << 20, {32 << 20, 0}: 4 << 20, {0, 0}: 8 << 20, {256 << 20, 0}: 32 << 20, {512 << 20, 0}: 64 << 20, {8 << 30, 0}: 64 << 20,
		{128 << 20, 128 << 20}: 32 << 20, {128 << 20, 8 << 30}: 32 << 20, {128 << 20, -1}: 16 << 20, {4 << 30, 4 << 30}: 64 << 20,
	} {
		o := Options{CacheBytes: cache[0], ValueBytes: cache[1]}
		o.setDefaults()
		require.Equal(t, want, o.memTableBytes, "caches of %d bytes", cache)
	}
}

// A copy that takes its time holds up the removal of logs, and no longer. None is
// written over another.
func TestOptions_LogsAreRemoved(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	copying, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var reused atomic.Int64
	s := openOnly(t, Options{Dir: "d", memTableBytes: 32 << 10, FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasPrefix(op.Path, "copy/") {
			once.Do(func() {
				close(copying)
				<-goOn
			})
		}
		if op.Kind == errorfs.OpReuseForWrite {
			reused.Add(1)
		}
		return nil
	}))})
	rotate := func(n int) {
		for i := range n {
			require.NoError(t, apply(s, put(fmt.Sprint(i), strings.Repeat("v", 20<<10))))
		}
	}
	rotate(10)
	copied := make(chan error, 1)
	go func() { copied <- s.Checkpoint("copy") }()
	<-copying
	rotate(100)
	require.NoError(t, s.cur.Load().db.Flush())
	require.Greater(t, len(named(t, mem, "", ".log")), 20, "the copy holds them up")
	close(goOn)
	require.NoError(t, <-copied)
	require.NoError(t, s.cur.Load().db.Flush())
	require.NoError(t, s.Close()) // ends the removal of what is obsolete
	require.LessOrEqual(t, len(named(t, mem, "", ".log")), 2)
	require.Zero(t, reused.Load())
}
