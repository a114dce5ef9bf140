package executor

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// sameBucket returns a key other than key that shares its bucket.
func sameBucket(e *Executor, key string) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint("other", i); k != key && e.inFlight.bucket([]byte(k)) == e.inFlight.bucket([]byte(key)) {
			return k
		}
	}
}

// otherBucket returns a key that does not share key's bucket.
func otherBucket(e *Executor, key string) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint("other", i); e.inFlight.bucket([]byte(k)) != e.inFlight.bucket([]byte(key)) {
			return k
		}
	}
}

func TestInFlight_ReadWaitsForTheSyncOfItsKey(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	w := run1(e, putOp("a", "1"))
	r := run1(e, getOp("a"))
	require.True(t, r.pending(), "the write is visible but not durable")
	require.ErrorIs(t, run1(e, getOp(otherBucket(e, "a"))).wait(t).Err, store.ErrNotFound, "other keys do not wait")
	f.end(0, nil)
	w.wait(t)
	require.Equal(t, "1", string(r.wait(t).Buf))
	require.Equal(t, "1", string(run1(e, getOp("a")).wait(t).Buf))
}

// What is not there because of a deletion is no less in need of durability.
func TestInFlight_AbsenceWaitsToo(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	run1(e, delOp("a"))
	r := run1(e, getOp("a"))
	require.True(t, r.pending())
	f.end(0, nil)
	require.ErrorIs(t, r.wait(t).Err, store.ErrNotFound)
}

// A read waits for the batches that were in flight when it came, whichever of
// them ends first, and for no later one.
func TestInFlight_ReadWaitsForAllOlderBatchesOnly(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		f := newFake(true)
		e := Open(Options{Store: f, MaxCommits: 8})
		// The completer ends batches in order. Here the order is the test's.
		batches := make([]*batch, 4)
		enter := func(i int, key string) {
			c := newCall(putOp(key, "1"))
			batches[i] = &batch{tasks: []*dispatch.Task{&c.task}, keys: [][]byte{[]byte(key)}, done: finish}
			e.inFlight.enter(batches[i])
		}
		enter(0, "a")
		enter(1, "b")
		enter(2, "a")
		r := run1(e, getOp("a"))
		enter(3, "a") // later than the read
		for _, i := range order {
			require.True(t, r.pending())
			e.finish(batches[i], nil)
		}
		require.False(t, r.pending(), "order %v", order)
		e.finish(batches[3], nil)
		require.Nil(t, e.inFlight.mu.oldest)
		require.Nil(t, e.inFlight.mu.youngest)
		e.Close()
	}
}

// A key that only shares the bucket does not wait.
func TestInFlight_SharedBucket(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	run1(e, putOp("a", "1"))
	require.ErrorIs(t, run1(e, getOp(sameBucket(e, "a"))).wait(t).Err, store.ErrNotFound)
	f.end(0, nil)
}

func TestInFlight_FailedBatchLeavesItsKeysInDoubt(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	run1(e, putOp("x", "0"))
	f.end(0, nil)
	run1(e, getOp("x")).wait(t)

	failed, other, shared := run1(e, putOp("m", "1")), otherBucket(e, "m"), sameBucket(e, "m")
	attached, scan := run1(e, getOp("m")), run1(e, rangeOp("m", "n"))
	require.True(t, attached.pending())
	require.True(t, scan.pending())
	require.ErrorIs(t, run1(e, getOp(shared)).wait(t).Err, store.ErrNotFound, "it shares only the bucket")
	require.Empty(t, run1(e, rangeOp("n", "o")).wait(t).Buf, "what is in flight is not in it")
	f.set(func() { f.unwritable = store.ErrUnwritable })
	f.end(1, fmt.Errorf("%w: sync failed", store.ErrUnknownOutcome))

	require.ErrorIs(t, failed.wait(t).Err, store.ErrUnknownOutcome)
	require.ErrorIs(t, attached.wait(t).Err, store.ErrUnwritable)
	require.ErrorIs(t, scan.wait(t).Err, store.ErrUnwritable)

	// Later reads: of the key, and of others.
	r := run1(e, getOp("m")).wait(t)
	require.ErrorIs(t, r.Err, store.ErrUnwritable)
	require.ErrorIs(t, r.Err, store.ErrUnknownOutcome)
	require.Empty(t, r.Buf)
	require.ErrorIs(t, run1(e, getOp(other)).wait(t).Err, store.ErrNotFound)
	require.ErrorIs(t, run1(e, getOp(shared)).wait(t).Err, store.ErrNotFound)
	require.Equal(t, "0", string(run1(e, getOp("x")).wait(t).Buf))
	// Ranges: around the key, and across it.
	require.Equal(t, "x=0;", string(run1(e, rangeOp("n", "")).wait(t).Buf))
	require.Empty(t, run1(e, rangeOp("a", "m")).wait(t).Buf)
	require.ErrorIs(t, run1(e, rangeOp("a", "")).wait(t).Err, store.ErrUnwritable)
	require.ErrorIs(t, run1(e, rangeOp("m", "n")).wait(t).Err, store.ErrUnwritable)

	// The store has been reopened, and has decided against the write.
	f.set(func() { f.unwritable = nil; delete(f.data, "m") })
	require.ErrorIs(t, run1(e, getOp("m")).wait(t).Err, store.ErrNotFound)
	require.Equal(t, "x=0;", string(run1(e, rangeOp("a", "")).wait(t).Buf))
	require.Zero(t, e.inFlight.bucket([]byte("m")).Load())
	require.Zero(t, f.iterators())
}

// A deletion in doubt hides an entry, so a range must not end beyond it in
// silence, but may end before it.
func TestInFlight_RangeStopsAtADoubt(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 8)
	for _, k := range []string{"a", "b", "c"} {
		run1(e, putOp(k, "1")).wait(t)
	}
	f.set(func() { f.durable = true })
	d := run1(e, delOp("c"))
	f.set(func() { f.unwritable = store.ErrUnwritable })
	f.end(0, store.ErrUnknownOutcome)
	d.wait(t)
	require.ErrorIs(t, run1(e, rangeOp("a", "")).wait(t).Err, store.ErrUnwritable)
	op := rangeOp("a", "")
	op.Limit = 2
	require.Equal(t, "a=1;b=1;", string(run1(e, op).wait(t).Buf))
	op.Next = next
	require.Equal(t, "a=1;b=1;after b", string(run1(e, op).wait(t).Buf), "c may follow")
	require.Zero(t, f.iterators())
}

// Downwards the first doubt is the greatest.
func TestInFlight_DescendingRangeStopsAtADoubt(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 8)
	for _, k := range []string{"a", "b", "c", "d"} {
		run1(e, putOp(k, "1")).wait(t)
	}
	f.set(func() { f.durable = true })
	d := run(e, delOp("a"), delOp("b"))
	f.set(func() { f.unwritable = store.ErrUnwritable })
	f.end(0, store.ErrUnknownOutcome)
	d[0].wait(t)
	d[1].wait(t)
	op := rangeOp("a", "")
	op.Descending = true
	require.ErrorIs(t, run1(e, op).wait(t).Err, store.ErrUnwritable)
	op.Limit = 2
	require.Equal(t, "d=1;c=1;", string(run1(e, op).wait(t).Buf))
	op.Limit = 3
	require.ErrorIs(t, run1(e, op).wait(t).Err, store.ErrUnwritable)
	require.Zero(t, f.iterators())
}

// A Get that read before the store had decided, and looks at its key's bucket
// after others have forgotten their doubts, reads again.
func TestInFlight_ReadAcrossARecovery(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	w := run1(e, putOp("m", "doubtful"))
	f.set(func() { f.unwritable = store.ErrUnwritable })
	f.end(0, store.ErrUnknownOutcome)
	w.wait(t)

	f.set(func() {
		f.onGet = func() { // after the first Get has read
			f.set(func() { f.onGet, f.unwritable, f.data["m"] = nil, nil, "decided" })
			require.Equal(t, "decided", string(run1(e, getOp("m")).wait(t).Buf))
		}
	})
	require.Equal(t, "decided", string(run1(e, getOp("m")).wait(t).Buf))
}

func TestInFlight_RangeWaitsInItsFirstTurnOnly(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 8)
	big := string(make([]byte, 200<<10))
	for _, k := range []string{"a", "b", "c"} {
		run1(e, putOp(k, big)).wait(t)
	}
	f.set(func() { f.durable = true })
	run1(e, putOp("d", "1"))
	r := run1(e, rangeOp("a", ""))
	require.True(t, r.pending())
	run1(e, putOp("e", "1")) // not in the snapshot
	f.end(0, nil)
	require.True(t, r.wait(t).More)
	e.Run([]*dispatch.Task{&r.task}, finish)
	require.False(t, r.pending(), "a later turn does not wait")
	r.op.Close()
	f.end(1, nil)
}

// Against a model: no read is answered with a value that is not yet durable,
// and every read is answered.
func TestInFlight_NoReadIsEarly(t *testing.T) {
	t.Parallel()
	const keys, workers = 8, 8
	rounds := 2000
	if testing.Short() {
		rounds = 400
	}
	f := newFake(true)
	e := Open(Options{Store: f, MaxCommits: 4 * workers})

	// durable[k] is the newest version of k that is durable. A version is
	// durable from before its commit's Wait returns.
	var mu sync.Mutex
	durable := make(map[string]int)

	stop := make(chan struct{})
	var ender sync.WaitGroup
	ender.Go(func() { // ends commits in order, in bursts
		next := 0
		for {
			f.mu.Lock()
			n := len(f.commits)
			f.mu.Unlock()
			for ; next < n; next++ {
				f.mu.Lock()
				batch, c := f.batches[next], f.commits[next]
				f.mu.Unlock()
				mu.Lock()
				for _, w := range batch {
					var v int
					_, _ = fmt.Sscan(string(w.Value), &v)
					durable[string(w.Key)] = max(durable[string(w.Key)], v)
				}
				mu.Unlock()
				c.result <- nil
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})

	var versions sync.Mutex
	version := 0
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for range rounds {
				key := fmt.Sprint(r.IntN(keys))
				if r.IntN(2) == 0 {
					// Versions grow in the order in which they are applied.
					versions.Lock()
					version++
					c := newCall(putOp(key, fmt.Sprint(version)))
					e.Run([]*dispatch.Task{&c.task}, finish)
					versions.Unlock()
					continue
				}
				got := run1(e, getOp(key)).wait(t)
				if got.Err == nil {
					var v int
					_, _ = fmt.Sscan(string(got.Buf), &v)
					mu.Lock()
					if v > durable[key] {
						t.Errorf("read version %d of key %s, durable is %d", v, key, durable[key])
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	// The rest becomes durable before the ender stops.
	last := run1(e, putOp("last", "0"))
	last.wait(t)
	close(stop)
	ender.Wait()
	e.Close()
	require.Nil(t, e.inFlight.mu.oldest)
	for i := range e.inFlight.marks {
		require.Zero(t, e.inFlight.marks[i].Load())
	}
}
