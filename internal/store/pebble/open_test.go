package pebble

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
	"github.com/spillway-go/spillway/internal/values"
)

// requireOneLine checks an error for people.
func requireOneLine(t *testing.T, err error, contains ...string) {
	t.Helper()
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	for _, c := range contains {
		require.ErrorContains(t, err, c)
	}
}

func TestOpen_Errors(t *testing.T) {
	t.Parallel()
	t.Run("an unknown mode", func(t *testing.T) {
		t.Parallel()
		_, err := Open(Options{Dir: t.TempDir(), Sync: "sometimes"})
		requireOneLine(t, err, `"sometimes"`, "always, interval, never")
	})
	t.Run("the folder is a file", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o644))
		_, err := Open(Options{Dir: file})
		requireOneLine(t, err, "cannot create the data folder "+file)
	})
	t.Run("the folder cannot be written", func(t *testing.T) {
		t.Parallel()
		fs := newFaults()
		fs.set(on(syscall.EROFS, "", create, write))
		_, err := Open(Options{Dir: "d", FS: fs})
		requireOneLine(t, err, "cannot write to the data folder d", "read-only")
	})
	t.Run("the disk fails while the folder is opened", func(t *testing.T) {
		t.Parallel()
		for _, part := range []string{"MANIFEST", "marker", ".log", ".sst", "temporary"} {
			fs := newFaults()
			s := openOnly(t, Options{Dir: "d", FS: fs})
			require.NoError(t, apply(s, put("a", "1")))
			crashed := newFaults()
			crashed.FS = errorfs.Wrap(fs.crash(0), errorfs.InjectorFunc(on(syscall.EIO, part, create, write, rename)))
			require.NoError(t, s.Close())
			_, err := Open(Options{Dir: "d", FS: crashed.FS})
			requireOneLine(t, err, "cannot open the data folder d", "input/output error")
		}
	})
	t.Run("a second open in the same process", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		s := open(t, Options{Dir: dir})
		_, err := Open(Options{Dir: dir + "/."})
		requireOneLine(t, err, "the data folder "+dir+" is in use")
		require.NoError(t, apply(s, put("a", "1")))
	})
}

// A damaged folder is refused with one line.
func TestOpen_Corrupt(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		glob   string
		damage func(path string) error
	}{
		{"MANIFEST-*", func(p string) error { return os.Truncate(p, 10) }},
		{"MANIFEST-*", func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("x", 1000)), 0o644) }},
		{"MANIFEST-*", os.Remove},
		{"*.sst", os.Remove},
		{"*.sst", func(p string) error { return os.Truncate(p, 10) }},
		{"OPTIONS-*", func(p string) error { return os.WriteFile(p, []byte("[nonsense"), 0o644) }},
	} {
		dir := t.TempDir()
		s := openOnly(t, Options{Dir: dir})
		require.NoError(t, apply(s, put("a", "1")))
		require.NoError(t, s.cur.Load().db.Flush())
		require.NoError(t, s.Close())
		paths, err := filepath.Glob(filepath.Join(dir, row.glob))
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, p := range paths {
			require.NoError(t, row.damage(p))
		}
		_, err = Open(Options{Dir: dir})
		requireOneLine(t, err, "cannot open the data folder "+dir)
	}
}

// A start that was cut off while it made the folder leaves one that the next start
// makes whole. That one writes no log in Pebble's oldest format, either, in which
// later chunks prove nothing of earlier ones.
func TestOpen_CutOffWhileMade(t *testing.T) {
	t.Parallel()
	step := 1
	if testing.Short() {
		step = 4
	}
	for after := 0; ; after += step {
		mem := vfs.NewCrashableMem()
		var left *vfs.MemFS
		o := Options{Dir: "d", FS: counting(mem, after, func() { left = copyOf(mem) })}
		require.NoError(t, openOnly(t, o).Close())
		if left == nil {
			require.Greater(t, after, 20)
			break
		}
		s := openOnly(t, Options{Dir: "d", FS: left})
		require.NoError(t, apply(s, put("a", "1")))
		logs := named(t, left, "", ".log")
		require.GreaterOrEqual(t, content(t, left, logs[len(logs)-1])[6], byte(format.LogFull), "cut off before change %d", after)
		require.NoError(t, s.Close())
	}
}

// An instance that could not be opened changes nothing any more, whatever it has
// begun.
func TestOpen_FailedInstanceIsCutOff(t *testing.T) {
	t.Parallel()
	mem, keys := writeTables(t)
	fs := faulty(mem)
	s := openOnly(t, Options{Dir: "d", FS: fs})
	s.cur.Load().disk.fence()
	fs.set(on(syscall.EIO, "OPTIONS", read))
	inst, err := s.openInstance(nil, false)
	require.ErrorIs(t, err, syscall.EIO)
	fs.heal()
	before := named(t, mem, "", "")
	for _, name := range before {
		require.NoError(t, inst.disk.Remove("d/"+name))
	}
	require.Equal(t, before, named(t, mem, "", ""))
	require.NoError(t, s.Close())
	requireOnDisk(t, fs.crash(0), keys)
}

// A start that fails beside a compaction says so, in one line, and loses nothing.
func TestOpen_FailsBesideACompaction(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	o := Options{Dir: "d", FS: mem}
	o.setDefaults()
	p := o.pebbleOptions()
	p.FS, p.Logger, p.DisableAutomaticCompactions = mem, quiet{}, true
	db, err := pebble.Open("d", p)
	require.NoError(t, err)
	keys := []string{"a", "z"}
	for range 5 {
		for _, k := range keys {
			require.NoError(t, db.Set([]byte(k), []byte(valueOf(k)), pebble.Sync))
		}
		require.NoError(t, db.Flush())
	}
	keys = append(keys, "log")
	require.NoError(t, db.Set([]byte("log"), []byte(valueOf("log")), pebble.Sync))
	require.NoError(t, db.Close())

	fs := faulty(mem)
	fs.set(on(syscall.ENOSPC, "temporary", create)) // the options, which Pebble writes last
	_, err = Open(Options{Dir: "d", FS: fs, Logger: slog.New(slog.DiscardHandler)})
	requireOneLine(t, err, "cannot open the data folder d", "no space left")
	requireOnDisk(t, fs.crash(0), keys)
	requireOnDisk(t, mem, keys)
}

// Another process finds the folder in use: this test starts itself once more.
func TestOpen_InUseByAnotherProcess(t *testing.T) {
	const env = "TEST_OPEN_DIR"
	if dir := os.Getenv(env); dir != "" {
		_, err := Open(Options{Dir: dir})
		fmt.Println("error:", err)
		return
	}
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	cmd := exec.Command(os.Args[0], "-test.run", "^TestOpen_InUseByAnotherProcess$")
	cmd.Env = append(os.Environ(), env+"="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "error: the data folder "+dir+" is in use by another process")
	require.NoError(t, apply(s, put("a", "1")))
}

func TestStore_Checkpoint(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := open(t, Options{Dir: t.TempDir(), Sync: mode})
			require.NoError(t, apply(s, put("a", "1")))
			require.NoError(t, s.cur.Load().db.Flush())
			require.NoError(t, apply(s, put("b", "1")))
			dir := filepath.Join(t.TempDir(), "deep", "copy")
			require.NoError(t, s.Checkpoint(dir))
			requireOneLine(t, s.Checkpoint(dir), "cannot write a checkpoint to "+dir, "exists")
			require.NoError(t, apply(s, put("a", "2"), del("b")))

			c := open(t, Options{Dir: dir})
			require.Equal(t, "1", get(t, c, "a"))
			require.Equal(t, "1", get(t, c, "b"))
		})
	}
}

// A failure of the disk that the checkpoint is written to is not the store's.
func TestStore_CheckpointToAnotherDisk(t *testing.T) {
	t.Parallel()
	fs := newFaults()
	s := openOnly(t, Options{Dir: "d", FS: fs})
	require.NoError(t, apply(s, put("a", "1")))
	fs.set(on(syscall.ENOSPC, "elsewhere", create, write, link))
	requireOneLine(t, s.Checkpoint("elsewhere"), "no space left")
	require.NoError(t, s.Writable())
	require.NoError(t, apply(s, put("a", "2")))
	require.NoError(t, s.Close())
}

func TestStore_Stats(t *testing.T) {
	t.Parallel()
	s := openOnly(t, Options{Dir: t.TempDir(), ValueBytes: 1 << 20})
	for i := range 100 {
		require.NoError(t, apply(s, put(fmt.Sprint(i), strings.Repeat("v", 1000))))
	}
	require.NoError(t, s.cur.Load().db.Flush())
	require.Equal(t, strings.Repeat("v", 1000), get(t, s, "1"))
	require.Equal(t, strings.Repeat("v", 1000), get(t, s, "1"))
	require.Equal(t, strings.Repeat("v", 1000), get(t, s, "2"))
	st := s.Stats()
	var bytes, files uint64
	for _, l := range st.Levels {
		bytes, files = bytes+l.Bytes, files+l.Files
	}
	require.NotZero(t, files)
	require.NotZero(t, bytes)
	require.NotZero(t, st.ReadAmplification)
	require.NotZero(t, st.CacheHits)
	require.Equal(t, values.Stats{Hits: 1, Misses: 2, Values: 2, Bytes: st.Values.Bytes}, st.Values)
	require.NotZero(t, st.CacheMisses)
	require.Greater(t, st.DiskBytes, bytes)
	require.NotZero(t, st.DiskFreeBytes)
	require.NotZero(t, st.MemTableBytes)
	require.NoError(t, s.Close())
	closed := s.Stats()
	closed.DiskFreeBytes = st.DiskFreeBytes // which others change
	require.Equal(t, st, closed)
	_, _, err := s.Get(nil, []byte("1"))
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = s.Apply([]store.Write{put("a", "1")})
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = s.Range([]byte("a"), nil, false)
	require.ErrorIs(t, err, store.ErrClosed)
}
