package executor

import (
	"bytes"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Kind says what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Get Kind = iota
	Put
	Delete
	Range
	Batch
)

// Op is one operation on the store, the payload of a task. Its owner is the
// owner of the task.
type Op struct {
	Kind Kind
	// Key is the key, of a range the least that it may have.
	Key []byte
	// Value is the value to put.
	Value []byte
	// TTL is after how many seconds the value that is put is gone, 0 for never.
	TTL uint32
	// If is what must hold for a Put or a Delete. If it does not, Err is
	// store.ErrCondition, and Meta.Tag that of the value that is there instead.
	If store.Condition
	// End is the key before which a range ends, empty for none.
	End []byte
	// Descending says that a range goes from the largest key down.
	Descending bool
	// KeysOnly says that Encode gets no values.
	KeysOnly bool
	// Limit is the largest number of entries of a range, 0 for no limit.
	Limit int
	// Encode appends an entry of a range to dst, in the form that its reader
	// wants.
	Encode func(dst, key, value []byte) []byte
	// Next, if it is not nil, is called after the last entry of a range that its
	// limit ends while more entries may follow, and appends how to go on after that
	// key.
	Next func(dst, last []byte) []byte

	// Steps are the operations of a Batch. Its Task.Write says whether one of them
	// writes.
	Steps *Steps

	// Consistency is what the operation asks of a distributed store.
	Consistency store.Consistency

	// Buf receives the result: the value of a Get, the next entries of a Range, or the
	// results of a Batch, are appended to it. The submitter provides it and keeps it. What was
	// appended means nothing if Err is set.
	Buf []byte
	// Meta is what is known of the value that a Get has found, or of the one that was
	// put, beside its bytes.
	Meta store.Meta
	// More says of a Range that entries are left: the submitter, having used
	// Buf, submits the task again as a continuation, or calls Close.
	More bool
	// Err is nil, store.ErrNotFound, or the error of the store. A Range is
	// closed by its error.
	Err error

	// readOnly says that a write has written nothing, and is answered as a read.
	readOnly bool
	scan     scan     // of a range between its turns
	deferred deferred // of a read that waits for a sync
}

// Close ends a range whose reader has stopped early, and releases its snapshot.
// It may be called by the owner at any time and more than once, and does nothing
// to other operations.
func (o *Op) Close() {
	it := o.scan.iter
	o.scan, o.More = scan{}, false // first, as one that is broken may panic
	if it != nil {
		_ = it.Close() // nobody reads on
	}
}

// covers reports whether a key is within the bounds of a range.
func (o *Op) covers(key []byte) bool {
	return bytes.Compare(key, o.Key) >= 0 && (len(o.End) == 0 || bytes.Compare(key, o.End) < 0)
}

// isBefore reports whether a range comes to a before it comes to b.
func (o *Op) isBefore(a, b []byte) bool {
	if o.Descending {
		a, b = b, a
	}
	return bytes.Compare(a, b) < 0
}

// scan is where a range stands.
type scan struct {
	iter store.Iterator
	// pending says that the iterator's entry did not fit into the last buffer.
	pending bool
	// entries counts those delivered.
	entries int
	// barrier is the first key on the way of the range whose last write has an
	// unknown outcome, nil if there is none: see inFlight.barrier.
	barrier []byte
}

// deferred is what it takes to complete a read later. It belongs to the
// executor's inFlight and is guarded by its lock.
type deferred struct {
	next *Op
	task *dispatch.Task
	done func(*dispatch.Task)
}
