package executor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/concurrency"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// remoteFake is a fake on another machine, which notes the terms.
type remoteFake struct {
	*fake
	terms []store.Terms
}

var _ store.Remote = (*remoteFake)(nil)

func (f *remoteFake) GetUnder(t store.Terms, dst, key []byte) ([]byte, store.Meta, error) {
	f.terms = append(f.terms, t)
	value, m, err := f.Get(dst, key)
	if f.applyErr != nil {
		return append(dst, "part of a value"...), m, f.applyErr
	}
	return value, m, err
}

func (f *remoteFake) ApplyUnder(t store.Terms, writes []store.Write) error {
	f.terms = append(f.terms, t)
	_, err := f.Apply(writes)
	return err
}

func (*remoteFake) Range(_, _ []byte, _ bool) (store.Iterator, error) {
	return nil, errors.ErrUnsupported
}

func openRemote(t *testing.T, epoch time.Time, events Events) (*Executor, *remoteFake) {
	f := &remoteFake{fake: newFake(false)}
	e := Open(Options{Store: f, Epoch: epoch, Events: events})
	t.Cleanup(e.Close)
	return e, f
}

func TestRemote_RunsTasks(t *testing.T) {
	t.Parallel()
	var operations []string
	committed := 0
	e, f := openRemote(t, time.Time{}, Events{
		Operated:  func(operation string, _ time.Duration) { operations = append(operations, operation) },
		Committed: func(string, int) { committed++ },
	})

	// Writes of different keys are not one batch.
	for _, c := range run(e, putOp("a", "1"), putOp("b", "2"), delOp("b")) {
		require.NoError(t, c.wait(t).Err)
	}
	require.Len(t, f.batches, 3)
	require.Equal(t, 3, committed)
	// A value is appended to the submitter's buffer.
	op := getOp("a")
	op.Buf = []byte("head:")
	got := run1(e, op).wait(t)
	require.NoError(t, got.Err)
	require.Equal(t, "head:1", string(got.Buf))
	require.ErrorIs(t, run1(e, getOp("b")).wait(t).Err, store.ErrNotFound)
	// A range says that there is none, and leaves nothing open.
	ranged := run1(e, rangeOp("a", "")).wait(t)
	require.ErrorIs(t, ranged.Err, errors.ErrUnsupported)
	require.False(t, ranged.More)
	require.Equal(t, []string{"commit", "commit", "commit", "get", "get", "range"}, operations)
}

func TestRemote_PassesTheTermsOn(t *testing.T) {
	t.Parallel()
	epoch := time.Unix(1000, 0)
	e, f := openRemote(t, epoch, Events{})
	for _, op := range []Op{getOp("a"), putOp("a", "1"), delOp("a")} {
		for _, tt := range []struct {
			deadline int64
			want     time.Time
		}{
			{0, time.Time{}}, // the client did not say
			{5e9, time.Unix(1005, 0)},
		} {
			for c := range store.ConsistencyAll + 1 {
				op.Consistency = c
				call := newCall(op)
				call.task.Deadline = tt.deadline
				f.terms = nil
				e.Run([]*dispatch.Task{&call.task}, finish)
				call.wait(t)
				require.Equal(t, []store.Terms{{Consistency: c, Deadline: tt.want}}, f.terms)
			}
		}
	}
}

// A write in doubt does not put reads in doubt, since the store answers each for
// itself.
func TestRemote_FailuresAreOfOneOperation(t *testing.T) {
	t.Parallel()
	e, f := openRemote(t, time.Time{}, Events{})
	require.NoError(t, run1(e, putOp("a", "1")).wait(t).Err)
	f.applyErr = store.ErrUnknownOutcome
	require.ErrorIs(t, run1(e, putOp("a", "2")).wait(t).Err, store.ErrUnknownOutcome)
	op := getOp("a")
	op.Buf = []byte("head:")
	got := run1(e, op).wait(t)
	require.ErrorIs(t, got.Err, store.ErrUnknownOutcome)
	require.Equal(t, "head:", string(got.Buf), "nothing of a value that did not arrive")
	f.applyErr = nil
	require.Equal(t, "1", string(run1(e, getOp("a")).wait(t).Buf))

	// A panic in the store takes no worker with it.
	f.panics = true
	require.ErrorContains(t, run1(e, getOp("a")).wait(t).Err, "panicked")
	require.ErrorIs(t, run1(e, putOp("a", "3")).wait(t).Err, store.ErrUnknownOutcome)
	f.panics = false
	require.Equal(t, "1", string(run1(e, getOp("a")).wait(t).Buf))
}

// What is answered counts as good, also if it says no.
func TestRemote_TellsHowTasksEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		op      Op
		err     error
		dropped uint64
	}{
		{"a value", getOp("a"), nil, 0},
		{"none", getOp("b"), nil, 0},
		{"a condition that does not hold", putOp("a", "2"), &store.ConditionError{}, 0},
		{"unavailable", putOp("a", "2"), store.ErrUnavailable, 1},
		{"late", getOp("a"), store.ErrTimeout, 1},
		{"in doubt", putOp("a", "2"), store.ErrUnknownOutcome, 1},
		{"closed", getOp("a"), store.ErrClosed, 0},
		{"a range", rangeOp("a", "b"), nil, 0},
		{"a batch", Op{Kind: Batch}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, f := openRemote(t, time.Time{}, Events{})
			require.NoError(t, run1(e, putOp("a", "1")).wait(t).Err)
			f.applyErr = tt.err
			d, err := dispatch.Open(dispatch.Options{Strategy: "fifo", MaxBatch: 1, Run: e.Run, Learn: &concurrency.Options{}})
			require.NoError(t, err)
			c := newCall(tt.op)
			d.Submit(&c.task)
			c.wait(t)
			d.Close() // the turn is over
			require.Equal(t, tt.dropped, d.Gauge().Learned.Dropped)
		})
	}
}
