package executor_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Writers count up, each in its own key or, by batches, in a pair of keys, over a disk
// whose syncs take some time, so that several are under way. The power fails at a random moment.
// Every key then holds what was acknowledged last, or something sent later, and both
// keys of a pair hold the same.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	const writers = 16
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	fs := vfs.NewCrashableMem()
	open := func(fs vfs.FS) *pebble.Store {
		s, err := pebble.Open(pebble.Options{Dir: "d", FS: fs, Sync: pebble.Always, CacheBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		return s
	}
	var sent, acknowledged [writers]atomic.Int64
	total := int64(0)
	for range cycles(t) {
		s := open(slowSyncs(fs))
		e := executor.Open(executor.Options{Store: s, MaxCommits: 4})
		var stop atomic.Bool
		var left *vfs.MemFS
		var then [writers]int64
		cutAt := int64(r.IntN(400))
		cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 10, 50, 90, 100}[r.IntN(5)], RNG: r}
		var count atomic.Int64
		var cut sync.Once
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				done := make(chan struct{}, 1)
				task := &dispatch.Task{Write: true, Done: func(*dispatch.Task) { done <- struct{}{} }}
				for !stop.Load() {
					n := sent[w].Add(1)
					op := countUp(w, n)
					task.Payload = op
					e.Run([]*dispatch.Task{task}, func(t *dispatch.Task) { t.Done(t) })
					<-done
					if op.Err != nil {
						t.Errorf("write %d of %d: %v", n, w, op.Err)
						return
					}
					acknowledged[w].Store(n)
					if count.Add(1) > cutAt {
						cut.Do(func() {
							stop.Store(true)
							for w := range writers {
								then[w] = acknowledged[w].Load()
							}
							left = fs.CrashClone(cfg)
						})
					}
				}
			})
		}
		group.Wait()
		e.Close()
		require.NoError(t, s.Close())
		require.NotNil(t, left)
		total += count.Load()
		fs = left
		again := open(fs)
		for w := range writers {
			got := counted(t, again, fmt.Sprint("a", w))
			require.GreaterOrEqual(t, got, then[w], "writer %d: what was acknowledged is there", w)
			require.LessOrEqual(t, got, sent[w].Load(), "writer %d", w)
			if isPair(w) {
				require.Equal(t, got, counted(t, again, fmt.Sprint("b", w)), "writer %d: both keys of a pair", w)
			}
			sent[w].Store(got)
			acknowledged[w].Store(got)
		}
		require.NoError(t, again.Close())
	}
	t.Logf("%d writes acknowledged", total)
}

// cycles is how often the power fails.
func cycles(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("SPILLWAY_TORTURE_CYCLES"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	return 10
}

func isPair(w int) bool { return w%3 == 0 }

// countUp is what writer w does as its nth write.
func countUp(w int, n int64) *executor.Op {
	key, value := fmt.Append(nil, "a", w), strconv.AppendInt(nil, n, 10)
	if !isPair(w) {
		return &executor.Op{Kind: executor.Put, Key: key, Value: value}
	}
	return &executor.Op{Kind: executor.Batch, Steps: &executor.Steps{
		Ops: []executor.Step{
			{Kind: executor.Put, Key: key, Value: value},
			{Kind: executor.Put, Key: fmt.Append(nil, "b", w), Value: value},
		},
		Encode: func(dst []byte, _ int, _ executor.Result) []byte { return dst },
	}}
}

func counted(t *testing.T, s store.Store, key string) int64 {
	t.Helper()
	value, _, err := s.Get(nil, []byte(key))
	if err != nil {
		require.ErrorIs(t, err, store.ErrNotFound)
		return 0
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	require.NoError(t, err)
	return n
}

// slowSyncs has each sync take some time.
func slowSyncs(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
			time.Sleep(200 * time.Microsecond)
		}
		return nil
	}))
}
