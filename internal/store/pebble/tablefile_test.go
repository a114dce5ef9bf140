package pebble

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// The damage of a block is found before Pebble looks for its cause.
func TestTable_DamagedBlock(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	s := openOnly(t, Options{Dir: "d", FS: mem})
	value := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(value)
	require.NoError(t, apply(s, put("a", string(value)), put("b", "v")))
	require.NoError(t, s.Close())
	name := largest(t, mem)
	damaged := content(t, mem, name)
	damaged[len(value)/2] ^= 1
	overwrite(t, mem, name, damaged)

	r := newRecorder(t)
	s = openOnly(t, Options{Dir: "d", FS: mem, Logger: slog.New(r)})
	for range 3 {
		_, _, err := s.Get(nil, []byte("a"))
		var block *blockError
		require.ErrorAs(t, err, &block)
		require.ErrorIs(t, err, format.ErrDamaged)
		require.ErrorIs(t, err, pebble.ErrCorruption)
		require.Equal(t, "v", get(t, s, "b"))
	}
	require.NotZero(t, r.count("corrupt data"))
	require.Zero(t, r.count("the store cannot read"), "once is enough")
	require.NoError(t, s.Close())
}

// A compaction that fails is not repeated at once, for ever.
func TestStore_FailingCompactionsRest(t *testing.T) {
	t.Parallel()
	fs := newFaults()
	s := openOnly(t, Options{Dir: "d", FS: fs, Sync: Never, RetryInterval: time.Hour, Logger: slog.New(newRecorder(t))})
	fs.set(on(syscall.EIO, ".sst", read, readAt))
	for range 2 {
		require.NoError(t, apply(s, put("a", strings.Repeat("v", 1000)), put("z", "v")))
		require.NoError(t, s.cur.Load().db.Flush())
	}
	for s.cur.Load().db.Metrics().Compact.FailedCount == 0 {
		runtime.Gosched()
	}
	for i := range 3000 {
		require.NoError(t, apply(s, put(fmt.Sprint(i), "v")))
		_ = s.cur.Load().db.Metrics()
	}
	require.EqualValues(t, 1, s.cur.Load().db.Metrics().Compact.FailedCount)
	require.NoError(t, s.Close())
}

// When too many tables wait for compactions that cannot read, writes are refused,
// instead of waiting with the workers. They return when the tables can be read.
func TestStore_CompactionsFail(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			fs, w := newFaults(), newWatcher()
			s := openOnly(t, Options{
				Dir: "d", FS: fs, Sync: mode, RetryInterval: 5 * time.Millisecond, OnWritable: w.onWritable,
				memTableBytes: 32 << 10, Logger: slog.New(newRecorder(t)),
			})
			fs.set(on(syscall.EIO, ".sst", read, readAt))
			value := valueOf("a")
			var err error
			for err == nil {
				err = apply(s, put("a", value), put("z", value))
			}
			require.ErrorIs(t, err, store.ErrUnwritable)
			require.ErrorContains(t, err, "compactions")
			require.ErrorIs(t, <-w.failed, syscall.EIO)
			require.ErrorIs(t, s.Writable(), store.ErrUnwritable)
			fs.heal()
			<-w.well
			require.NoError(t, apply(s, put("a", "1")))
			require.Equal(t, "1", get(t, s, "a"))
			require.NoError(t, s.Close())
			require.Empty(t, w.failed)
		})
	}
}

func TestRateLimiter(t *testing.T) {
	t.Parallel()
	var s rateLimiter
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	for _, row := range []struct {
		at   int
		held int
		ok   bool
	}{
		{0, 0, true},
		{1, 0, false},
		{999, 0, false},
		{1000, 2, true},
		{2000, 0, true},
		{2001, 0, false},
		{9000, 1, true},
	} {
		held, ok := s.allow(at(row.at))
		require.Equal(t, row.ok, ok, row.at)
		require.Equal(t, row.held, held, row.at)
	}
}
