package executor

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

func openFake(t testing.TB, durable bool, maxCommits int) (*Executor, *fake) {
	f := newFake(durable)
	e := Open(Options{Store: f, MaxCommits: maxCommits, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(e.Close)
	return e, f
}

func TestExecutor_RunsTasks(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 1)

	// Absent.
	require.ErrorIs(t, run1(e, getOp("a")).wait(t).Err, store.ErrNotFound)
	// Writes that are taken together are one batch, in order.
	for _, c := range run(e, putOp("a", "1"), putOp("b", "2"), delOp("b"), putOp("a", "3")) {
		require.NoError(t, c.wait(t).Err)
	}
	require.Len(t, f.batches, 1)
	require.Len(t, f.batches[0], 4)
	// A value is appended to the submitter's buffer.
	op := getOp("a")
	op.Buf = []byte("head:")
	got := run1(e, op).wait(t)
	require.NoError(t, got.Err)
	require.Equal(t, "head:3", string(got.Buf))
	require.ErrorIs(t, run1(e, getOp("b")).wait(t).Err, store.ErrNotFound)
	// A pooled operation does not remember its last error.
	op = getOp("a")
	op.Err = errors.New("old")
	require.NoError(t, run1(e, op).wait(t).Err)
	op = putOp("c", "")
	op.Err = errors.New("old")
	require.NoError(t, run1(e, op).wait(t).Err)
}

func TestExecutor_CompletesWritesWhenDurable(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 4)
	a := run1(e, putOp("a", "1")) // returns although it is not durable
	b := run1(e, putOp("b", "1"))
	require.True(t, a.pending())
	f.end(0, nil)
	require.NoError(t, a.wait(t).Err)
	require.True(t, b.pending())
	f.end(1, nil)
	require.NoError(t, b.wait(t).Err)
}

// As many batches as MaxCommits may be on their way to the disk before Blocked tells
// that no worker should begin another. Who begins one all the same does not wait.
func TestExecutor_BlockedByCommits(t *testing.T) {
	t.Parallel()
	const maxCommits = 3
	f := newFake(true)
	unblocked := make(chan bool, 10)
	var e *Executor
	e = Open(Options{Store: f, MaxCommits: maxCommits, Unblocked: func() { unblocked <- e.Blocked(false) }})
	t.Cleanup(e.Close)
	var calls []*call
	for i := range maxCommits {
		require.False(t, e.Blocked(false))
		calls = append(calls, run1(e, putOp(fmt.Sprint(i), "1")))
	}
	require.True(t, e.Blocked(false))
	require.False(t, e.Blocked(true), "who writes inline waits for himself alone")
	calls = append(calls, run1(e, putOp("one more", "1")))
	require.ErrorIs(t, run1(e, getOp("other")).wait(t).Err, store.ErrNotFound)
	require.Empty(t, run1(e, rangeOp("p", "q")).wait(t).Buf)

	f.end(0, nil)
	calls[0].wait(t)
	f.end(1, nil)
	require.False(t, <-unblocked)
	for i := range 2 {
		f.end(2+i, nil)
	}
	for _, c := range calls[1:] {
		require.NoError(t, c.wait(t).Err)
	}
	require.Empty(t, unblocked, "it is told once")
}

// A store that stalls blocks writes, whoever would run them.
func TestExecutor_BlockedByAStall(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 1)
	require.False(t, e.Blocked(false))
	f.set(func() { f.stalled = true })
	require.True(t, e.Blocked(false))
	require.True(t, e.Blocked(true))
}

func TestExecutor_CloseWaits(t *testing.T) {
	t.Parallel()
	f := newFake(true)
	e := Open(Options{Store: f, MaxCommits: 8})
	a, b := run1(e, putOp("a", "1")), run1(e, putOp("b", "1"))
	closed := make(chan struct{})
	go func() { e.Close(); close(closed) }()
	f.end(0, nil)
	a.wait(t)
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	default:
	}
	f.end(1, nil)
	<-closed
	require.False(t, b.pending())
}

func TestExecutor_StoreErrors(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 1)
	f.set(func() { f.applyErr = store.ErrUnwritable })
	for _, c := range run(e, putOp("a", "1"), putOp("b", "1")) {
		require.ErrorIs(t, c.wait(t).Err, store.ErrUnwritable)
	}
	// It had no effect, so nothing is held back because of it.
	require.ErrorIs(t, run1(e, getOp("a")).wait(t).Err, store.ErrNotFound)
}

func TestExecutor_SurvivesPanics(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 1)
	require.NoError(t, run1(e, putOp("a", "1")).wait(t).Err)
	f.set(func() { f.panics = true })
	op := getOp("a")
	op.Buf = []byte("mine")
	got := run1(e, op).wait(t)
	require.ErrorContains(t, got.Err, "panicked: get")
	require.Equal(t, "mine", string(got.Buf))
	require.ErrorContains(t, run1(e, rangeOp("a", "")).wait(t).Err, "panicked: range")
	w := run1(e, putOp("a", "1")).wait(t)
	require.ErrorContains(t, w.Err, "panicked: apply")
	require.ErrorIs(t, w.Err, store.ErrUnknownOutcome)
	f.set(func() { f.panics = false })
	require.Equal(t, "1", string(run1(e, getOp("a")).wait(t).Buf))

	bad := rangeOp("a", "")
	bad.Encode = func(_, _, _ []byte) []byte { panic("encode") }
	require.ErrorContains(t, run1(e, bad).wait(t).Err, "panicked: encode")
	require.Zero(t, f.iterators())
	// An iterator that has panicked may do so again when it is closed, and is not closed twice.
	f.set(func() { f.badEnd = true })
	again := run1(e, bad).wait(t)
	require.ErrorContains(t, again.Err, "panicked: close")
	again.Close()
}

// Where the store has panicked is in the log, in one line a second.
func TestExecutor_LogsPanics(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		op   func() Op
		part string // of the stack
	}{
		"get":   {func() Op { return getOp("a") }, "executor.(*fake).Get("},
		"put":   {func() Op { return putOp("a", "1") }, "executor.(*fake).Apply("},
		"range": {func() Op { return rangeOp("a", "") }, "executor.(*fake).Range("},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				f := newFake(false)
				f.panics = true
				e := Open(Options{Store: f, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				defer e.Close()
				lines := func() int { return strings.Count(log.String(), "a call of the store panicked") }
				require.Error(t, run1(e, row.op()).wait(t).Err)
				require.Contains(t, log.String(), row.part)
				require.Equal(t, 1, lines())
				require.Error(t, run1(e, row.op()).wait(t).Err)
				require.Equal(t, 1, lines())
				time.Sleep(time.Second)
				require.Error(t, run1(e, row.op()).wait(t).Err)
				require.Equal(t, 2, lines())
			})
		})
	}
}

func TestExecutor_Events(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, s)
	}
	f := newFake(true)
	e := Open(Options{Store: f, Events: Events{
		Committed: func(strategy string, writes int) { note(fmt.Sprint(strategy, writes)) },
		Operated:  func(op string, d time.Duration) { require.GreaterOrEqual(t, d, time.Duration(0)); note(op) },
	}})
	w := run(e, putOp("a", "1"), putOp("b", "1"))
	f.end(0, nil)
	w[1].wait(t)
	run1(e, getOp("a")).wait(t)
	run1(e, rangeOp("a", "")).wait(t)
	e.Close()
	require.Equal(t, []string{"commit", "fifo2", "sync", "get", "range"}, got)
}

func TestExecutor_Range(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 1)
	for i := range 5 {
		run1(e, putOp(fmt.Sprint(i), fmt.Sprint("v", i))).wait(t)
	}
	for _, row := range []struct {
		start, end string
		limit      int
		want       string
	}{
		{"0", "", 0, "0=v0;1=v1;2=v2;3=v3;4=v4;"},
		{"1", "3", 0, "1=v1;2=v2;"},
		{"1", "", 2, "1=v1;2=v2;"},
		{"1", "3", 2, "1=v1;2=v2;"},
		{"1", "", 100, "1=v1;2=v2;3=v3;4=v4;"},
		{"7", "", 0, ""},
	} {
		op := rangeOp(row.start, row.end)
		op.Limit = row.limit
		got := run1(e, op).wait(t)
		require.NoError(t, got.Err)
		require.Equal(t, row.want, string(got.Buf), "%+v", row)
		require.False(t, got.More)
		require.Zero(t, f.iterators())
	}
}

func TestExecutor_RangeAsAsked(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 1)
	for i := range 5 {
		run1(e, putOp(fmt.Sprint(i), fmt.Sprint("v", i))).wait(t)
	}
	for _, row := range []struct {
		start, end           string
		limit                int
		descending, keysOnly bool
		want                 string
	}{
		{"0", "", 0, true, false, "4=v4;3=v3;2=v2;1=v1;0=v0;"},
		{"1", "3", 0, true, false, "2=v2;1=v1;"},
		{"1", "3", 0, false, true, "1=;2=;"},
		// There is more behind the limit, or not.
		{"1", "4", 2, false, true, "1=;2=;after 2"},
		{"1", "3", 2, false, true, "1=;2=;"},
		{"1", "3", 1, true, true, "2=;after 2"},
		{"1", "3", 2, true, true, "2=;1=;"},
		{"1", "3", 3, true, true, "2=;1=;"},
	} {
		op := rangeOp(row.start, row.end)
		op.Limit, op.Descending, op.KeysOnly, op.Next = row.limit, row.descending, row.keysOnly, next
		got := run1(e, op).wait(t)
		require.NoError(t, got.Err)
		require.Equal(t, row.want, string(got.Buf), "%+v", row)
		require.False(t, got.More)
		require.Zero(t, f.iterators())
	}
}

func next(dst, last []byte) []byte { return append(append(dst, "after "...), last...) }

// What tells how to go on is part of the last turn's buffer, which has its bound.
func TestExecutor_RangeNextFits(t *testing.T) {
	t.Parallel()
	e, _ := openFake(t, false, 1)
	run1(e, putOp("a", strings.Repeat("v", 200<<10))).wait(t)
	run1(e, putOp("b", "")).wait(t)
	run1(e, putOp("c", "")).wait(t)
	op := rangeOp("a", "")
	op.Limit = 2
	op.Next = func(dst, _ []byte) []byte { return append(dst, make([]byte, 60<<10)...) }
	c := run1(e, op)
	require.True(t, c.wait(t).More)
	require.Less(t, len(c.op.Buf), 201<<10)
	c.op.Buf = c.op.Buf[:0]
	e.Run([]*dispatch.Task{&c.task}, finish)
	require.False(t, c.wait(t).More)
	require.Len(t, c.op.Buf, len("b=;")+60<<10)
}

// With values left out, a turn takes as many keys as it has room for.
func TestExecutor_RangeOfKeysIsShort(t *testing.T) {
	t.Parallel()
	e, _ := openFake(t, false, 1)
	for _, k := range []string{"a", "b", "c"} {
		run1(e, putOp(k, strings.Repeat("v", 200<<10))).wait(t)
	}
	op := rangeOp("a", "")
	op.KeysOnly = true
	got := run1(e, op).wait(t)
	require.Equal(t, "a=;b=;c=;", string(got.Buf))
	require.Less(t, cap(got.Buf), 256<<10+1)
}

func TestExecutor_RangeInTurns(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 1)
	var want strings.Builder
	sizes := []int{10, 100 << 10, 100 << 10, 100 << 10, 300 << 10, 1, 255 << 10, 20 << 10, 256<<10 - 20, 1}
	for i, n := range sizes {
		v := strings.Repeat(fmt.Sprint(i), n)
		run1(e, putOp(fmt.Sprint(i), v)).wait(t)
		fmt.Fprintf(&want, "%d=%s;", i, v)
	}
	for _, limit := range []int{0, len(sizes), len(sizes) - 1} {
		op := rangeOp("0", "")
		op.Limit = limit
		c := newCall(op)
		var got strings.Builder
		var turns int
		for {
			turns++
			e.Run([]*dispatch.Task{&c.task}, finish)
			c.wait(t)
			require.NoError(t, c.op.Err)
			require.NotEmpty(t, c.op.Buf)
			require.True(t, len(c.op.Buf) <= maxTurnBytes || strings.Count(string(c.op.Buf), ";") == 1)
			got.Write(c.op.Buf)
			c.op.Buf = c.op.Buf[:0]
			if !c.op.More {
				break
			}
			require.Equal(t, 1, f.iterators())
		}
		if limit == len(sizes)-1 {
			require.Equal(t, strings.TrimSuffix(want.String(), "9=9;"), got.String())
		} else {
			require.Equal(t, want.String(), got.String())
		}
		require.Greater(t, turns, 4)
		require.Zero(t, f.iterators())
	}

	// A reader that stops early releases the snapshot, once.
	c := run1(e, rangeOp("0", ""))
	require.True(t, c.wait(t).More)
	require.Equal(t, 1, f.iterators())
	c.op.Close()
	c.op.Close()
	require.Zero(t, f.iterators())
	// The operation can be used again, for a new range.
	c.op.Buf = c.op.Buf[:0]
	e.Run([]*dispatch.Task{&c.task}, finish)
	require.True(t, strings.HasPrefix(string(c.wait(t).Buf), "0="))
	c.op.Close()
}
