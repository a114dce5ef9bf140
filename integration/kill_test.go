//go:build integration

package integration

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// A process that is killed with SIGKILL in the midst of writes and deletes, over
// and over and while strategies are switched, has kept of what it acknowledged
// what SPILLWAY_SYNC promises:
//
//   - always: all of it;
//   - interval: what was acknowledged before the last but one fsync ended;
//   - never: it may lose any of it.
//
// What is lost is the newest: nothing is there that was sent after something lost
// had been acknowledged. A write that was cut off is there or not. No value is
// torn or invented. And a graceful stop, now and then, loses nothing under any
// mode.
func TestKill_KeepsWhatItPromised(t *testing.T) {
	t.Parallel()
	cycles := longer(t, "SPILLWAY_TORTURE_CYCLES", 20)
	for _, sync := range []string{"always", "interval:5ms", "never"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			seed := seedOr(t, rand.Uint64())
			t.Logf("run again with SPILLWAY_TORTURE_SEED=%d", seed)
			k := killing{sync: sync, rng: rand.New(rand.NewPCG(seed, 0)), folder: filepath.Join(t.TempDir(), "data")}
			for i := range 8 {
				k.writers = append(k.writers, newWriter(i, k.rng.Uint64()))
			}
			kept := int64(0)
			stops := cycles / 5
			for number := range cycles + stops {
				by := syscall.SIGKILL
				if number%6 == 5 {
					by = syscall.SIGTERM
				}
				kept = k.live(t, number, kept, by)
			}
			s := start(t, raced, "SPILLWAY_DATA_DIR="+k.folder)
			k.verify(t, s, kept)
			s.stop()
			t.Logf("%d writes acknowledged over %d kills and %d graceful stops; %d of them lost", k.acknowledged, cycles, stops, k.lost)
		})
	}
}

// killing is one test of a mode of durability.
type killing struct {
	sync    string
	rng     *rand.Rand
	folder  string
	writers []*writer
	// stamps orders what the test sends and receives, without a clock.
	stamps       atomic.Int64
	acknowledged int
	lost         int
}

// live starts the service, checks what is left of the life before, and writes
// until that signal has ended it. It returns the stamp up to which everything
// that was acknowledged must be found in the next life.
func (k *killing) live(t *testing.T, number int, kept int64, by syscall.Signal) int64 {
	names := strategies.Names()
	binary := plain
	if number%4 == 1 {
		binary = raced
	}
	s := start(t, binary, "SPILLWAY_DATA_DIR="+k.folder, "SPILLWAY_SYNC="+k.sync,
		"SPILLWAY_STRATEGY="+names[number%len(names)], "SPILLWAY_QUEUE_CAPACITY=4",
		"SPILLWAY_POOLS="+[]string{"shared", "split"}[number/len(names)%2], cacheSizes[number%len(cacheSizes)])
	k.verify(t, s, kept)

	var synced atomic.Int64 // the stamp up to which everything has been synced
	interval := strings.HasPrefix(k.sync, "interval")
	var beside sync.WaitGroup // which ends when the service does
	if interval {
		beside.Go(func() { k.watch(s, &synced) })
	}
	if number%3 == 2 {
		beside.Go(func() {
			for i := number; s.trySwitch(names[i%len(names)]) == nil; i++ {
			}
		})
	}
	// The signal comes at a number of acknowledgements, not at a time, and from
	// whoever receives that one, while the other writers are on their way.
	last := k.rng.Int64N(600)
	var acknowledged atomic.Int64
	var ended atomic.Bool
	written := func() {
		if acknowledged.Add(1) >= last && (!interval || synced.Load() > 0) && ended.CompareAndSwap(false, true) {
			_ = s.cmd.Process.Signal(by)
		}
	}
	require.NoError(t, concurrently(len(k.writers), func(i int) error { return k.writers[i].write(s, &k.stamps, written) }))
	code := s.wait()
	beside.Wait() // or it might meet another service at the address
	require.True(t, ended.Load(), "the service has ended by itself:\n%s", s.stderr)
	k.acknowledged += int(acknowledged.Load())
	switch {
	case by == syscall.SIGTERM:
		require.Equal(t, 0, code, "exit code after SIGTERM")
		return math.MaxInt64
	case k.sync == "always":
		return math.MaxInt64
	default:
		return synced.Load()
	}
}

// watch follows the fsyncs until the service has ended. One may be on its way
// already when a write is acknowledged; the next one has it.
func (k *killing) watch(s *service, synced *atomic.Int64) {
	const count = "spillway_store_wal_fsync_duration_seconds_count"
	for {
		stamp := k.stamps.Add(1)
		before, err := s.tryMetrics()
		if err != nil {
			return
		}
		for after := before; after[count] < before[count]+2; {
			if after, err = s.tryMetrics(); err != nil {
				return
			}
		}
		synced.Store(stamp)
	}
}

// verify reads the keys of all writers.
func (k *killing) verify(t *testing.T, s *service, kept int64) {
	t.Helper()
	founds := make([]found, len(k.writers))
	require.NoError(t, concurrently(len(k.writers), func(i int) (err error) {
		founds[i], err = k.writers[i].verify(s, kept)
		return err
	}))
	all := found{oldestLost: math.MaxInt64}
	for _, f := range founds {
		all.newest = max(all.newest, f.newest)
		all.oldestLost = min(all.oldestLost, f.oldestLost)
		k.lost += f.lost
	}
	require.Less(t, all.newest, all.oldestLost, "there is a write that was sent (at %d) after one that is lost had been acknowledged (at %d)",
		all.newest, all.oldestLost)
}

// never is the stamp of what has not come.
const never = math.MaxInt64

// version is a value that a key has been given.
type version struct {
	value string // "" for none
	// sent and acknowledged are stamps; acknowledged is never if the write was cut
	// off.
	sent, acknowledged int64
}

// writer writes keys of its own, one request at a time, so that it knows what
// they must hold.
type writer struct {
	name string
	rng  *rand.Rand
	n    int
	// versions are what a key was given in this life of the service, in order; the
	// first is what it was found to hold at its start.
	versions map[string][]version
}

func newWriter(i int, seed uint64) *writer {
	w := &writer{
		name:     fmt.Sprintf("writer%d", i),
		rng:      rand.New(rand.NewPCG(seed, 1)),
		versions: make(map[string][]version),
	}
	for n := range 24 {
		w.versions[fmt.Sprintf("%s-%d", w.name, n)] = []version{{}}
	}
	return w
}

// write writes until the service is gone.
func (w *writer) write(s *service, stamps *atomic.Int64, acknowledged func()) error {
	c, err := dial(s.data)
	if err != nil {
		return nil
	}
	defer c.close()
	for {
		key := fmt.Sprintf("%s-%d", w.name, w.rng.IntN(24))
		method, v, done := http.MethodDelete, version{acknowledged: never}, http.StatusAccepted
		if w.rng.IntN(4) > 0 {
			w.n++
			unique := fmt.Sprintf("%s-%d.", w.name, w.n)
			v.value = strings.Repeat(unique, 1+w.rng.IntN(200))
			method, done = http.MethodPut, http.StatusCreated
		}
		v.sent = stamps.Add(1)
		a, err := c.do(method, entity(key), v.value)
		switch {
		case err != nil:
			w.versions[key] = append(w.versions[key], v)
			return nil
		case a.status == done:
			v.acknowledged = stamps.Add(1)
			w.versions[key] = append(w.versions[key], v)
			acknowledged()
		case a.status == http.StatusServiceUnavailable && a.shed() != "":
			// It has had no effect.
		default:
			return fmt.Errorf("%s of %s: status %d: %s", method, key, a.status, a.body)
		}
		if a.close {
			return nil
		}
	}
}

// found is what a writer has found of its writes in the next life.
type found struct {
	newest     int64 // when the last of those that are there was sent
	oldestLost int64 // when the first of those that are lost was acknowledged
	lost       int
}

// verify reads all keys of the writer, which must hold what was acknowledged up
// to the stamp kept, or something later.
func (w *writer) verify(s *service, kept int64) (found, error) {
	f := found{oldestLost: never}
	c, err := dial(s.data)
	if err != nil {
		return f, err
	}
	defer c.close()
	for key, versions := range w.versions {
		a, err := c.do(http.MethodGet, entity(key), "")
		for begun := time.Now(); err == nil && a.shed() != "" && time.Since(begun) < patience; {
			a, err = c.do(http.MethodGet, entity(key), "")
		}
		if err != nil {
			return f, fmt.Errorf("read of %s: %w", key, err)
		}
		if a.status == http.StatusNotFound {
			a.body = ""
		} else if a.status != http.StatusOK {
			return f, fmt.Errorf("read of %s: status %d: %s", key, a.status, a.body)
		}
		// Several versions may look alike, if they are deletes.
		first, last := -1, -1
		for i, v := range versions {
			if v.value == a.body {
				if first < 0 {
					first = i
				}
				last = i
			}
		}
		if first < 0 {
			return f, fmt.Errorf("%s holds %s, which it was never given; last %s", key, brief(a.body), brief(versions[len(versions)-1].value))
		}
		f.newest = max(f.newest, versions[first].sent)
		for _, v := range versions[last+1:] {
			if v.acknowledged == never {
				continue
			}
			if v.acknowledged <= kept {
				return f, fmt.Errorf("%s holds %s and has lost %s, acknowledged at %d of %d", key, brief(a.body), brief(v.value), v.acknowledged, kept)
			}
			f.lost++
			f.oldestLost = min(f.oldestLost, v.acknowledged)
		}
		w.versions[key] = []version{{value: a.body}}
	}
	return f, nil
}

// brief describes a value by its unique part and its length.
func brief(value string) string {
	unique, _, _ := strings.Cut(value, ".")
	return fmt.Sprintf("%q (%d bytes)", unique, len(value))
}
