package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/delay"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// batching is a fake before which writes gather.
type batching struct{ *fake }

func (batching) Batches() {}

var _ store.Batching = batching{}

// gathering runs a test with an executor over a store whose writes gather.
func gathering(t *testing.T, maxCommits int, test func(t *testing.T, e *Executor, f *fake)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		e := Open(Options{Store: batching{f}, MaxCommits: maxCommits})
		defer e.Close()
		test(t, e, f)
	})
}

// keys returns the keys of each batch that was applied.
func (f *fake) keys() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, writes := range f.batches {
		var keys []string
		for _, w := range writes {
			keys = append(keys, string(w.Key))
		}
		all = append(all, strings.Join(keys, " "))
	}
	return all
}

func TestGather_DuringASync(t *testing.T) {
	gathering(t, 4, func(t *testing.T, e *Executor, f *fake) {
		a := run1(e, putOp("a", "1"))
		b, c := run1(e, putOp("b", "1")), run(e, delOp("c"), putOp("d", "1"))
		synctest.Wait()
		require.Equal(t, []string{"a"}, f.keys())
		require.True(t, a.pending())
		require.True(t, b.pending())
		// Nobody sees what has gathered, or waits for it.
		require.ErrorIs(t, run1(e, getOp("b")).wait(t).Err, store.ErrNotFound)

		f.end(0, nil)
		require.NoError(t, a.wait(t).Err)
		synctest.Wait()
		require.Equal(t, []string{"a", "b c d"}, f.keys(), "one batch, in the order in which they came")
		// From here on they are seen, and not durable.
		seen := run1(e, getOp("b"))
		synctest.Wait()
		require.True(t, seen.pending())
		require.True(t, b.pending())
		require.True(t, c[1].pending())
		// The next ones gather for the next sync.
		next := run1(e, putOp("e", "1"))
		synctest.Wait()
		require.Len(t, f.keys(), 2)

		f.end(1, nil)
		for _, c := range append(c, b, seen) {
			require.NoError(t, c.wait(t).Err)
		}
		synctest.Wait()
		f.end(2, nil)
		require.NoError(t, next.wait(t).Err)
		require.Equal(t, []string{"a", "b c d", "e"}, f.keys())
		// With no sync under way, there is nothing to wait for.
		synctest.Wait()
		last := run1(e, putOp("f", "1"))
		require.Len(t, f.keys(), 4)
		f.end(3, nil)
		require.NoError(t, last.wait(t).Err)
	})
}

// The next sync begins before those are answered who waited for the one that has ended.
func TestGather_AppliedBeforeAnswers(t *testing.T) {
	gathering(t, 4, func(t *testing.T, e *Executor, f *fake) {
		a := newCall(putOp("a", "1"))
		var applied []string
		a.task.Done = func(*dispatch.Task) { applied = f.keys(); a.done <- struct{}{} }
		e.Run(tasksOf(a), finish)
		b := run1(e, putOp("b", "1"))
		f.end(0, nil)
		a.wait(t)
		require.Equal(t, []string{"a", "b"}, applied)
		f.end(1, nil)
		b.wait(t)
	})
}

// A store that takes its time for each write, as a slow one does, or one that has other
// machines write at once, gets each write as soon as a worker has it.
func TestGather_NotBeforeASlowStore(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*fake) store.Store{
		"slow":                          func(f *fake) store.Store { return delay.Wrap(batching{f}, pause(t, "4ms"), 0) },
		"slow and with few at once":     func(f *fake) store.Store { return delay.Wrap(batching{f}, pause(t, "4ms"), 2) },
		"one that does not say so":      func(f *fake) store.Store { return f },
		"one that hands nothing back":   func(f *fake) store.Store { f.durable = false; return batching{f} },
		"without a delay, but the same": func(f *fake) store.Store { return delay.Wrap(batching{f}, delay.Distribution{}, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(true)
				e := Open(Options{Store: open(f), MaxCommits: 8})
				defer e.Close()
				var calls []*call
				for i := range 3 {
					calls = append(calls, run1(e, putOp(fmt.Sprint(i), "1")))
				}
				synctest.Wait()
				require.Equal(t, []string{"0", "1", "2"}, f.keys())
				for i := range f.commits {
					f.end(i, nil)
				}
				for _, c := range calls {
					require.NoError(t, c.wait(t).Err)
				}
			})
		})
	}
}

func pause(t *testing.T, s string) delay.Distribution {
	d, err := delay.ParseDistribution(s)
	require.NoError(t, err)
	return d
}

// What does not fit any more is applied at once, as far as MaxCommits allows.
func TestGather_Bounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value string
		fit   int // so many gather
	}{
		"by their number": {"", maxGathered},
		"by their bytes":  {strings.Repeat("v", 1<<10-1), maxGatheredBytes >> 10},
		"one too large":   {strings.Repeat("v", maxGatheredBytes), 0},
	} {
		t.Run(name, func(t *testing.T) {
			gathering(t, 3, func(t *testing.T, e *Executor, f *fake) {
				calls := []*call{run1(e, putOp("a", "1"))}
				for range test.fit {
					calls = append(calls, run1(e, putOp("b", test.value)))
				}
				require.Len(t, f.keys(), 1)
				require.False(t, e.Blocked(false))
				calls = append(calls, run1(e, putOp("c", test.value)), run1(e, putOp("d", test.value)))
				require.Len(t, f.keys(), 3)
				require.True(t, e.Blocked(false))
				// A disk that hangs holds up no read of anything else.
				require.ErrorIs(t, run1(e, getOp("other")).wait(t).Err, store.ErrNotFound)
				require.ErrorIs(t, run1(e, getOp("b")).wait(t).Err, store.ErrNotFound)

				for i := 0; i < len(f.keys()); i++ {
					f.end(i, nil)
					synctest.Wait()
				}
				for _, c := range calls {
					require.NoError(t, c.wait(t).Err)
				}
				require.False(t, e.Blocked(false))
			})
		})
	}
}

// While a disk hangs, only what has come at first waits where it cannot be given up.
func TestGather_NotForADiskThatHangs(t *testing.T) {
	gathering(t, 3, func(t *testing.T, e *Executor, f *fake) {
		calls := []*call{run1(e, putOp("a", ""))}
		time.Sleep(10*time.Millisecond - 1)
		calls = append(calls, run1(e, putOp("b", "")))
		require.Equal(t, []string{"a"}, f.keys())
		time.Sleep(time.Nanosecond)
		calls = append(calls, run1(e, putOp("c", "")), run1(e, putOp("d", "")))
		require.Equal(t, []string{"a", "c", "d"}, f.keys())
		require.True(t, e.Blocked(false))
		// The next sync has its own time.
		f.end(0, nil)
		synctest.Wait()
		calls = append(calls, run1(e, putOp("e", "")))
		require.Equal(t, []string{"a", "c", "d", "b"}, f.keys())
		for i := 1; i < 5; i++ {
			f.end(i, nil)
			synctest.Wait()
		}
		require.Equal(t, []string{"a", "c", "d", "b", "e"}, f.keys())
		for _, c := range calls {
			require.NoError(t, c.wait(t).Err)
		}
		require.False(t, e.Blocked(false))
	})
}

// hanging is a store that hangs in an Apply of a key until it is released.
type hanging struct {
	batching
	keys map[string]chan struct{}
}

func (h hanging) Apply(writes []store.Write) (store.Commit, error) {
	if released := h.keys[string(writes[0].Key)]; released != nil {
		<-released
	}
	return h.batching.Apply(writes)
}

// If a store hangs that is given what has gathered, those are answered all the same whose
// syncs end.
func TestGather_ApplyThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		b, d := make(chan struct{}), make(chan struct{})
		var unblocked atomic.Int64
		e := Open(Options{
			Store: hanging{batching{f}, map[string]chan struct{}{"b": b, "d": d}}, MaxCommits: 2,
			Unblocked: func() { unblocked.Add(1) },
		})
		conditional := func(key string) Op {
			op := putOp(key, "1")
			op.If = store.Condition{Absent: true}
			return op
		}
		first, gathered, second, third := run1(e, putOp("a", "1")), run1(e, putOp("b", "1")), run1(e, conditional("c")), run1(e, conditional("e"))
		synctest.Wait()
		require.Equal(t, []string{"a", "c", "e"}, f.keys())
		f.end(0, nil)
		synctest.Wait()
		also := run1(e, putOp("d", "1")) // gathers, and hangs as well
		require.NoError(t, first.wait(t).Err)
		f.end(1, nil)
		require.NoError(t, second.wait(t).Err)
		synctest.Wait()
		require.Equal(t, int64(1), unblocked.Load())
		require.False(t, e.Blocked(false))
		f.end(2, nil)
		require.NoError(t, third.wait(t).Err)
		require.True(t, gathered.pending())
		require.True(t, also.pending())

		closed := make(chan struct{})
		go func() { e.Close(); close(closed) }()
		close(d)
		synctest.Wait()
		require.Equal(t, []string{"a", "c", "e", "d"}, f.keys())
		f.end(3, nil)
		require.NoError(t, also.wait(t).Err)
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("closed while a write is under way")
		default:
		}
		f.set(func() { f.applyErr = store.ErrUnwritable })
		close(b)
		require.ErrorIs(t, gathered.wait(t).Err, store.ErrUnwritable)
		<-closed
	})
}

// What depends on what is stored does not wait for others, nor they for what it reads.
// A batch that only writes gathers, takes effect as a whole, and may come to nothing.
func TestGather_Kinds(t *testing.T) {
	gathering(t, 8, func(t *testing.T, e *Executor, f *fake) {
		first := run1(e, putOp("first", ""))
		conditional := putOp("c", "1")
		conditional.If.Absent = true
		c := run1(e, conditional)
		looks := runSteps(e, stepsOp(stepPut("x", ""), stepGet("x")))
		require.Equal(t, []string{"first", "c", "x"}, f.keys())

		many := runSteps(e, stepsOp(Step{Kind: Put, Key: []byte("m"), TTL: 7}, Step{Kind: Delete, Key: []byte("n")}))
		large := stepsOp(stepPut("l", ""))
		large.Steps.MaxBytes = 0
		tooLarge := runSteps(e, large)
		expiring := putOp("e", "1")
		expiring.TTL = 5
		p := run1(e, expiring)
		synctest.Wait()
		require.Len(t, f.keys(), 3)
		f.end(0, nil)
		require.NoError(t, first.wait(t).Err)
		synctest.Wait()
		require.Equal(t, []string{"first", "c", "x", "m n e"}, f.keys())
		require.Equal(t, uint32(7), f.batches[3][0].TTL)
		require.Equal(t, uint32(5), f.batches[3][2].TTL)
		require.ErrorIs(t, tooLarge.wait(t).Err, ErrTooLarge)
		for i := 1; i < 4; i++ {
			f.end(i, nil)
		}
		for _, c := range []*call{c, looks, many, p} {
			require.NoError(t, c.wait(t).Err)
		}
	})
}

// If nothing comes of what has gathered, what gathered in the meantime is not left.
func TestGather_NothingToWrite(t *testing.T) {
	gathering(t, 8, func(t *testing.T, e *Executor, f *fake) {
		first := run1(e, putOp("first", ""))
		large := stepsOp(stepPut("l", ""))
		large.Steps.MaxBytes = 0
		c := newCall(large)
		var second *call
		c.task.Write = true
		c.task.Done = func(*dispatch.Task) { second = run1(e, putOp("second", "")); c.done <- struct{}{} }
		e.Run(tasksOf(c), finish)
		f.end(0, nil)
		first.wait(t)
		require.ErrorIs(t, c.wait(t).Err, ErrTooLarge)
		synctest.Wait()
		require.Equal(t, []string{"first", "second"}, f.keys())
		f.end(1, nil)
		require.NoError(t, second.wait(t).Err)
	})
}

// A sync that fails tells nothing of what has gathered meanwhile: that has had no
// effect, unless the store says otherwise.
func TestGather_AfterAFailure(t *testing.T) {
	gathering(t, 8, func(t *testing.T, e *Executor, f *fake) {
		a, b := run1(e, putOp("a", "1")), run1(e, putOp("b", "1"))
		f.set(func() { f.applyErr, f.unwritable = store.ErrUnwritable, store.ErrUnwritable })
		f.end(0, store.ErrUnknownOutcome)
		require.ErrorIs(t, a.wait(t).Err, store.ErrUnknownOutcome)
		got := b.wait(t).Err
		require.ErrorIs(t, got, store.ErrUnwritable)
		require.NotErrorIs(t, got, store.ErrUnknownOutcome)
		require.ErrorIs(t, run1(e, getOp("b")).wait(t).Err, store.ErrNotFound)
		require.ErrorIs(t, run1(e, getOp("a")).wait(t).Err, store.ErrUnwritable)

		// It goes on when the store can write again.
		f.set(func() { f.applyErr, f.unwritable = nil, nil })
		synctest.Wait()
		a, b = run1(e, putOp("a", "1")), run1(e, putOp("b", "1"))
		f.set(func() { f.panics = true })
		f.end(1, nil)
		require.NoError(t, a.wait(t).Err)
		require.ErrorIs(t, b.wait(t).Err, store.ErrUnknownOutcome)
		f.set(func() { f.panics = false })
	})
}

func TestGather_CloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		e := Open(Options{Store: batching{f}, MaxCommits: 8})
		a, b := run1(e, putOp("a", "1")), run1(e, putOp("b", "1"))
		closed := make(chan struct{})
		go func() { e.Close(); close(closed) }()
		synctest.Wait()
		f.end(0, nil)
		a.wait(t)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, f.keys())
		require.True(t, b.pending())
		f.end(1, nil)
		<-closed
		require.False(t, b.pending())
	})
}

// Whatever the order in which writes, reads and the ends of syncs come: no write is
// acknowledged before a sync that had it, none is left, each is answered once, and no
// read tells of what is not durable.
func TestGather_NothingIsAcknowledgedEarly(t *testing.T) {
	t.Parallel()
	const clients, writes = 40, 50
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { acknowledgedEarly(t, seed, clients, writes) })
		})
	}
}

func acknowledgedEarly(t *testing.T, seed uint64, clients, writes int) {
	f := &recorder{fake: newFake(true), rand: rand.New(rand.NewPCG(seed, 0)), durable: make(map[string]int)}
	e := Open(Options{Store: f, MaxCommits: 4})
	defer e.Close()
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)+1))
			key := fmt.Sprint("k", c)
			for i := 1; i <= writes; i++ {
				time.Sleep(time.Duration(r.Int64N(int64(time.Millisecond))))
				call := newCall(putOp(key, fmt.Sprint(i)))
				call.task.Write = true
				switch r.IntN(8) {
				case 0:
					call.op.If.Present = i > 1
				case 1:
					call.op = stepsOp(stepPut(key, fmt.Sprint(i)))
				}
				e.Run(tasksOf(call), finish)
				if r.IntN(2) == 0 {
					f.check(t, key, run1(e, getOp(key)))
				}
				if err := call.wait(t).Err; err != nil || f.durably(key) < i {
					t.Errorf("write %d of %s: %v, and %d was durable", i, key, err, f.durably(key))
				}
			}
		})
	}
	group.Wait()
	for c := range clients {
		require.Equal(t, writes, f.durably(fmt.Sprint("k", c)))
	}
}

// recorder is a store that notes what is durable, and whose syncs take some time.
type recorder struct {
	*fake
	rand *rand.Rand // guarded by fake.step

	mu      sync.Mutex
	durable map[string]int
}

func (*recorder) Batches() {}

func (r *recorder) Apply(writes []store.Write) (store.Commit, error) {
	r.step.Lock()
	defer r.step.Unlock()
	return r.note(r.fake.apply(writes))
}

func (r *recorder) Transact(_ [][]byte, decide func(store.View) ([]store.Write, error)) (store.Commit, error) {
	r.step.Lock()
	defer r.step.Unlock()
	writes, err := decide(fakeView{r.fake})
	if err != nil || len(writes) == 0 {
		return nil, err
	}
	return r.note(r.fake.apply(writes))
}

func (r *recorder) note(_ store.Commit, err error) (store.Commit, error) {
	if err != nil {
		return nil, err
	}
	return &recorded{r, r.batches[len(r.batches)-1], time.Duration(r.rand.Int64N(int64(time.Millisecond)))}, nil
}

type recorded struct {
	*recorder
	writes []store.Write
	takes  time.Duration
}

func (c *recorded) Wait() error {
	time.Sleep(c.takes)
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	for _, w := range c.writes {
		var n int
		if _, err := fmt.Sscan(string(w.Value), &n); err != nil {
			return err
		}
		c.durable[string(w.Key)] = max(c.durable[string(w.Key)], n)
	}
	return nil
}

func (r *recorder) durably(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.durable[key]
}

// check checks that a read has found nothing that was not durable when it was answered.
func (r *recorder) check(t *testing.T, key string, c *call) {
	op := c.wait(t)
	if errors.Is(op.Err, store.ErrNotFound) {
		return
	}
	if op.Err != nil {
		t.Error(op.Err)
		return
	}
	var n int
	_, err := fmt.Sscan(string(op.Buf), &n)
	if err != nil || n > r.durably(key) {
		t.Errorf("a read of %s was told %q, and %d was durable: %v", key, op.Buf, r.durably(key), err)
	}
}
