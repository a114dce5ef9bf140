package executor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
)

func putIf(k, v string, c store.Condition) Op {
	op := putOp(k, v)
	op.If = c
	return op
}

func hasTag(value string) store.Condition {
	return store.Condition{Tags: []etag.Tag{etag.Of([]byte(value))}}
}

// encodeResult writes what tests compare.
func encodeResult(dst []byte, i int, r Result) []byte {
	return fmt.Appendf(dst, "%d:%t:%s;", i, r.Found, r.Value)
}

func stepsOp(steps ...Step) Op {
	return Op{Kind: Batch, Steps: &Steps{Ops: steps, Encode: encodeResult, MaxBytes: 100}}
}

func stepPut(k, v string) Step { return Step{Kind: Put, Key: []byte(k), Value: []byte(v)} }
func stepGet(k string) Step    { return Step{Kind: Get, Key: []byte(k)} }

// runSteps runs a Batch as the task that it is: one that reads alone is no write.
func runSteps(e *Executor, op Op) *call {
	c := newCall(op)
	c.task.Write = op.Steps.Writes()
	e.Run(tasksOf(c), finish)
	return c
}

// Within one shared commit each operation sees those before it, and one whose condition
// does not hold does not hinder the others.
func TestWrite_ConditionsWithinASharedCommit(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		e, f := openFake(t, durable, 8)
		calls := run(e,
			putOp("a", "1"),
			putIf("a", "2", hasTag("1")),
			putIf("a", "3", hasTag("1")),
			putIf("b", "1", store.Condition{Absent: true}),
			putIf("b", "2", store.Condition{Absent: true}),
			Op{Kind: Delete, Key: []byte("a"), If: hasTag("2")},
			putIf("a", "4", store.Condition{Present: true}),
			putOp("c", "1"))
		if durable {
			for _, c := range calls {
				require.True(t, c.pending(), "what is told of a value that was written here waits for its sync")
			}
			f.end(0, nil)
		}
		for i, want := range []error{nil, nil, store.ErrCondition, nil, store.ErrCondition, nil, store.ErrCondition, nil} {
			require.ErrorIs(t, calls[i].wait(t).Err, want, i)
		}
		require.Equal(t, etag.Of([]byte("2")), calls[2].op.Meta.Tag)
		require.Equal(t, etag.Of([]byte("1")), calls[4].op.Meta.Tag)
		require.Zero(t, calls[6].op.Meta.Tag)
		require.Equal(t, map[string]string{"b": "1", "c": "1"}, f.data)
	}
}

// Who is refused has read, and is answered as a read is: after the sync of what it has
// seen, and of nothing else.
func TestWrite_RefusalWaitsForTheSyncOfItsKey(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	other := otherBucket(e, "a")
	w := run1(e, putOp("a", "1"))
	refused := run1(e, putIf("a", "2", store.Condition{Absent: true}))
	require.True(t, refused.pending())
	require.ErrorIs(t, run1(e, putIf(other, "2", store.Condition{Present: true})).wait(t).Err, store.ErrCondition, "other keys do not wait")
	// Nor does one that shares its commit with a write of another key.
	calls := run(e, putOp(other, "1"), putIf("b", "1", store.Condition{Present: true}))
	require.ErrorIs(t, calls[1].wait(t).Err, store.ErrCondition)
	require.True(t, calls[0].pending())
	f.end(0, nil)
	require.NoError(t, w.wait(t).Err)
	require.ErrorIs(t, refused.wait(t).Err, store.ErrCondition)
	f.end(1, nil)
	require.NoError(t, calls[0].wait(t).Err)
}

// A write whose condition would look at a key in doubt fails, with no effect; so does a
// refusal that has seen what is in doubt by now.
func TestWrite_ConditionsInDoubt(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	w := run1(e, putOp("a", "1"))
	refused := run1(e, putIf("a", "2", store.Condition{Absent: true}))
	f.set(func() { f.unwritable = store.ErrUnwritable })
	f.end(0, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, store.ErrUnwritable))
	require.ErrorIs(t, w.wait(t).Err, store.ErrUnknownOutcome)
	require.ErrorIs(t, refused.wait(t).Err, ErrInDoubt)
	require.NotErrorIs(t, refused.op.Err, store.ErrCondition)
	require.ErrorIs(t, run1(e, putIf("a", "2", hasTag("1"))).wait(t).Err, ErrInDoubt)
	require.ErrorIs(t, runSteps(e, stepsOp(stepGet("a"))).wait(t).Err, ErrInDoubt)
	require.ErrorIs(t, runSteps(e, stepsOp(stepGet("a"), stepPut("b", "1"))).wait(t).Err, ErrInDoubt)
	require.Len(t, f.batches, 1)
	f.set(func() { f.unwritable = nil })
	again := run1(e, putIf("a", "2", hasTag("1")))
	f.end(1, nil)
	require.NoError(t, again.wait(t).Err)
}

// One key that cannot be read hinders nobody else in a shared commit.
func TestWrite_UnreadableKeyHindersNobodyElse(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 8)
	broken := errors.New("broken")
	f.getErr = map[string]error{"bad": broken}
	calls := run(e, putOp("a", "1"), putIf("bad", "2", store.Condition{Present: true}))
	require.NoError(t, calls[0].wait(t).Err)
	require.ErrorIs(t, calls[1].wait(t).Err, broken)
	require.Equal(t, map[string]string{"a": "1"}, f.data)
}

// A batch takes effect as a whole or not at all, and sees itself, with few writes and
// with many.
func TestBatch_AllOrNothing(t *testing.T) {
	t.Parallel()
	for _, many := range []bool{false, true} {
		e, f := openFake(t, false, 8)
		var before []Op
		for i := range 2 * manyWrites {
			if many {
				before = append(before, putOp(fmt.Sprint("x", i%40), "x"))
			}
		}
		steps := func(last Step) Op {
			return stepsOp(stepPut("a", "1"), stepGet("a"), Step{Kind: Put, Key: []byte("a"), Value: []byte("2"), If: hasTag("1")},
				Step{Kind: Delete, Key: []byte("x1")}, stepGet("x1"), stepGet("a"), last)
		}
		if many {
			run(e, before...)
		}
		before = append(before, putOp("a", "0"))
		refused := steps(Step{Kind: Delete, Key: []byte("b"), If: store.Condition{Present: true}})
		calls := make([]*call, 0, len(before)+3)
		for _, op := range append(before, refused, putIf("a", "kept", hasTag("0")), steps(stepGet("none"))) {
			c := newCall(op)
			c.task.Write = true
			calls = append(calls, c)
		}
		e.Run(tasksOf(calls...), finish)
		n := len(before)
		require.ErrorIs(t, calls[n].wait(t).Err, store.ErrCondition)
		require.Equal(t, []Refusal{{Index: 6}}, calls[n].op.Steps.Refused)
		require.Empty(t, calls[n].op.Buf)
		require.NoError(t, calls[n+1].wait(t).Err, "it sees what was there before the batch that was refused")
		require.NoError(t, calls[n+2].wait(t).Err)
		require.Equal(t, "0:true:;1:true:1;2:true:;3:false:;4:false:;5:true:2;6:false:;", string(calls[n+2].op.Buf))
		require.Equal(t, "2", f.data["a"])
		require.NotContains(t, f.data, "x1")
		require.Equal(t, many, f.data["x2"] == "x")
	}
}

func TestBatch_TooLargeResults(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, false, 8)
	run1(e, putOp("a", "0123456789")).wait(t)
	for _, op := range []Op{
		stepsOp(stepPut("b", "1"), stepGet("a"), stepGet("a"), stepGet("a"), stepGet("a"), stepGet("a"), stepGet("a")),
		stepsOp(stepGet("a"), stepGet("a"), stepGet("a"), stepGet("a"), stepGet("a"), stepGet("a")),
	} {
		op.Buf = []byte("head")
		c := runSteps(e, op)
		require.ErrorIs(t, c.wait(t).Err, ErrTooLarge)
		require.Equal(t, "head", string(c.op.Buf))
	}
	require.NotContains(t, f.data, "b")
}

// A batch that reads waits for the sync of each key that it has read, and for no other.
func TestBatch_ReadsWaitForTheSyncsOfTheirKeys(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	first := runSteps(e, stepsOp(stepPut("a", "1"), stepPut("b", "1")))
	second := run1(e, putOp("c", "1"))
	both := runSteps(e, stepsOp(stepGet("b"), stepGet("c")))
	one := runSteps(e, stepsOp(stepGet("a"), stepGet("none")))
	require.NoError(t, checkAnswered(runSteps(e, stepsOp(stepGet("none"), stepGet("nothing")))))
	f.end(0, nil)
	require.NoError(t, first.wait(t).Err)
	require.Equal(t, "0:true:1;1:false:;", string(one.wait(t).Buf))
	require.True(t, both.pending())
	f.end(1, nil)
	require.NoError(t, second.wait(t).Err)
	require.Equal(t, "0:true:1;1:true:1;", string(both.wait(t).Buf))
}

// checkAnswered returns the error of a call that is answered already, or one that it is
// not.
func checkAnswered(c *call) error {
	if c.pending() {
		return errors.New("it waits")
	}
	return c.op.Err
}

// Who is refused because of a write in the same commit is not, if that has had no effect.
func TestWrite_NobodyIsRefusedForAWriteThatFails(t *testing.T) {
	t.Parallel()
	e, f := openFake(t, true, 8)
	f.applyErr = store.ErrUnwritable
	for i, c := range run(e, putOp("a", "1"), putIf("a", "2", store.Condition{Absent: true}), putIf("b", "1", store.Condition{Present: true})) {
		require.ErrorIs(t, c.wait(t).Err, store.ErrUnwritable, i)
	}
	c := runSteps(e, stepsOp(stepPut("a", "1"), Step{Kind: Put, Key: []byte("a"), If: store.Condition{Absent: true}}))
	require.ErrorIs(t, c.wait(t).Err, store.ErrCondition, "a batch that is refused alone writes nothing that could fail")
}
