package pebble

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// cycles is how often the power fails: 10 times, or as often as the variable
// says.
func cycles(t *testing.T) int {
	t.Helper()
	const name = "SPILLWAY_TORTURE_CYCLES"
	n := 10
	if text := os.Getenv(name); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, name)
	}
	return n
}

// register is what is known of one key, which one goroutine writes. The empty
// string stands for absent.
type register struct {
	durable string   // must be there, unless
	later   []string // one of these is, written since in this order
	done    int      // how many of later are acknowledged
}

// may reports whether the key may have a value after a power cut.
func (r *register) may(value string) bool {
	return value == r.durable || slices.Contains(r.later, value)
}

// acknowledged returns the value that was acknowledged last.
func (r *register) acknowledged() string {
	if r.done == 0 {
		return r.durable
	}
	return r.later[r.done-1]
}

// keep notes that the first n of later are on the disk.
func (r *register) keep(n int) {
	if n > 0 {
		r.durable, r.later, r.done = r.later[n-1], r.later[n:], r.done-n
	}
}

// TestStore_PowerCuts cuts the power at random moments, in the midst of writes
// and deletes, flushes, compactions, changes of the log, and of the start that
// follows, which is cut off as well, again and again. Some of what was not synced
// is on the disk then and some is not. Under Always every key holds what was
// acknowledged last, or something written later; under Interval, what was
// acknowledged before the last finished sync began, or something written later;
// under Never, something that was written. A store that was closed holds exactly
// what was acknowledged last under any mode.
func TestStore_PowerCuts(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			const writers, keys = 4, 20
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			percent := func() int { return []int{0, 10, 50, 90, 100}[r.IntN(5)] }
			fs := vfs.NewCrashableMem()
			cut := func() *vfs.MemFS {
				return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent(), RNG: r})
			}
			options := func() Options { return Options{Dir: "d", FS: fs, Sync: mode, memTableBytes: 32 << 10} }
			all := make([]register, writers*keys)
			acknowledged := 0
			for cycle := range cycles(t) {
				// The power fails again during the start, after so many changes.
				for range r.IntN(3) {
					var left *vfs.MemFS
					after := r.IntN(60)
					o := options()
					o.FS = counting(fs, after, func() { left = cut() })
					require.NoError(t, openOnly(t, o).Close()) // at the latest now
					if left != nil {
						fs = left
					}
				}
				s := openOnly(t, options())
				for i := range all {
					got := get(t, s, fmt.Sprint(i))
					if got == "absent" {
						got = ""
					}
					require.True(t, all[i].may(got), "cycle %d, key %d holds %.20q, and held %.20q", cycle, i, got, all[i].durable)
					all[i] = register{durable: got}
				}

				var wg sync.WaitGroup
				var mu sync.Mutex
				stop := false
				cutAt, count := r.IntN(400), 0
				var left *vfs.MemFS
				var then []register
				for w := range writers {
					rng := rand.New(rand.NewPCG(seed, uint64(1+cycle*writers+w)))
					wg.Go(func() {
						for n := 0; ; n++ {
							k := w*keys + rng.IntN(keys)
							value, change := "", del(fmt.Sprint(k))
							if rng.IntN(4) > 0 {
								value = strings.Repeat(fmt.Sprintf("%d-%d-%d.", cycle, w, n), 1+rng.IntN(100))
								change = put(fmt.Sprint(k), value)
							}
							mu.Lock()
							if stop {
								mu.Unlock()
								return
							}
							all[k].later = append(all[k].later, value)
							mu.Unlock()
							err := apply(s, change)
							mu.Lock()
							if err != nil {
								stop = true
								mu.Unlock()
								t.Errorf("write of %d: %v", k, err)
								return
							}
							all[k].done++
							if mode == Always {
								all[k].keep(1)
							}
							acknowledged++
							if count++; count == cutAt+1 {
								stop = true
								// What is acknowledged is so before the cut.
								then = slices.Clone(all)
								left = cut()
							}
							mu.Unlock()
							if mode == Interval && w == 0 && n%5 == 0 {
								syncAll(s, &mu, all)
							}
						}
					})
				}
				wg.Wait()
				require.NoError(t, s.Close())
				if r.IntN(4) == 0 {
					// It was closed, and then the power failed.
					left = fs.CrashClone(vfs.CrashCloneCfg{})
					again := openOnly(t, Options{Dir: "d", FS: left, Sync: mode, memTableBytes: 32 << 10})
					for i := range all {
						got := get(t, again, fmt.Sprint(i))
						if got == "absent" {
							got = ""
						}
						require.True(t, got == all[i].acknowledged(), "closed in cycle %d, key %d", cycle, i)
						all[i] = register{durable: got}
					}
					require.NoError(t, again.Close())
				} else {
					copy(all, then)
				}
				fs = left
			}
			t.Logf("%d acknowledged writes and deletes", acknowledged)
		})
	}
}

// syncAll does what an interval does, and notes what is on the disk then.
func syncAll(s *Store, mu *sync.Mutex, all []register) {
	done := make([]int, len(all))
	mu.Lock()
	for i := range all {
		done[i] = all[i].done
	}
	mu.Unlock()
	_ = s.Sync()
	mu.Lock()
	defer mu.Unlock()
	for i := range all {
		all[i].keep(done[i])
	}
}

// counting calls f once, after so many changes of a file system.
func counting(fs vfs.FS, after int, f func()) vfs.FS {
	var changes atomic.Int64
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && changes.Add(1) == int64(after+1) {
			f()
		}
		return nil
	}))
}
