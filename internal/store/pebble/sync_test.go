package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

// What was acknowledged before Sync is on the disk after it, under any mode.
func TestStore_Sync(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewCrashableMem()
			s := openOnly(t, Options{Dir: "d", FS: mem, Sync: mode})
			require.NoError(t, apply(s, put("a", "1")))
			require.NoError(t, s.Sync())
			left := open(t, Options{Dir: "d", FS: mem.CrashClone(vfs.CrashCloneCfg{}), Sync: mode})
			require.Equal(t, "1", get(t, left, "a"))
			require.NoError(t, s.Close())
			require.ErrorIs(t, s.Sync(), store.ErrClosed)
		})
	}
}
