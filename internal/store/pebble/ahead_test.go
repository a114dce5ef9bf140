package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

// logsOf returns the contents of the logs, the newest last.
func logsOf(t *testing.T, fs vfs.FS) (logs [][]byte) {
	t.Helper()
	names, err := fs.List("data")
	require.NoError(t, err)
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		f, err := fs.Open(fs.PathJoin("data", name))
		if errors.Is(err, os.ErrNotExist) { // obsolete, and removed in this moment
			continue
		}
		require.NoError(t, err)
		b, err := io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		logs = append(logs, b)
	}
	return logs
}

func TestLog_ZerosAhead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sync  SyncMode
		ahead int
	}{
		{Always, 256 << 10},
		{Interval, 0},
		{Never, 0},
	} {
		t.Run(string(test.sync), func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewCrashableMem()
			s := open(t, Options{Dir: "data", FS: fs, Sync: test.sync, memTableBytes: 1 << 20})
			newest := func() []byte { logs := logsOf(t, fs); return logs[len(logs)-1] }
			require.Empty(t, newest(), "nothing is written")
			require.NoError(t, apply(s, put("a", "1")))
			require.Less(t, len(newest()), 1000)
			for i := range 10 {
				require.NoError(t, apply(s, put(fmt.Sprint(i), "value")))
			}
			log := newest()
			written := len(bytes.TrimRight(log, "\x00"))
			require.Less(t, written, 2000)
			require.GreaterOrEqual(t, len(log)-written, test.ahead/2)
			require.LessOrEqual(t, len(log)-written, test.ahead+1)
		})
	}
}

// TestStore_CrashesInARow starts the store again and again, and crashes it after
// a few writes or none, with more or less of what was not synced on the disk.
func TestStore_CrashesInARow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			fs := vfs.NewCrashableMem()
			var acknowledged []string
			for round := range 40 {
				s := openOnly(t, Options{Dir: "data", FS: fs, memTableBytes: 1 << 20})
				for _, k := range acknowledged {
					require.Equal(t, k, get(t, s, k), "start %d", round)
				}
				for i := range r.IntN(5) {
					k := fmt.Sprintf("%d-%d", round, i)
					require.NoError(t, apply(s, put(k, k)))
					acknowledged = append(acknowledged, k)
				}
				var last store.Commit
				if r.IntN(2) == 0 {
					var err error
					last, err = s.Apply([]store.Write{put("unsynced", strings.Repeat("u", r.IntN(100_000)))})
					require.NoError(t, err)
				}
				crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * r.IntN(3), RNG: r})
				if last != nil {
					require.NoError(t, last.Wait())
				}
				require.NoError(t, s.Close())
				fs = crashed
			}
		})
	}
}

// TestStore_CrashesWithoutWrites has logs that hold nothing to replay. The start that
// finds them must be done with them, since to a later one, of which they are not the
// last, they could seem damaged.
func TestStore_CrashesWithoutWrites(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewCrashableMem()
			s := openOnly(t, Options{Dir: "data", FS: fs, Sync: mode})
			for i := range 4 {
				require.NoError(t, s.Checkpoint(fmt.Sprint("copy", i)))
			}
			crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			require.NoError(t, s.Close())
			for _, dir := range []string{"data", "copy1", "copy3"} {
				fs := crashed
				for range 3 {
					s := openOnly(t, Options{Dir: dir, FS: fs, Sync: mode})
					crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
					require.NoError(t, s.Close())
					fs = crashed
				}
			}
		})
	}
}
