package executor

import "spillway/internal/store"

// Kind tells what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Get Kind = iota
	Put
	Delete
	Range
)

// Op is one operation on the store, the payload of a task. Its owner is the
// owner of the task.
type Op struct {
	Kind Kind
	// Key is the key, of a range the first key.
	Key []byte
	// Value is the value to put.
	Value []byte
	// End is the key before which a range ends, empty for none.
	End []byte
	// Limit is the largest number of entries of a range, 0 for no limit.
	Limit int
	// Encode appends an entry of a range to dst, in the form that its reader
	// wants.
	Encode func(dst, key, value []byte) []byte

	// Buf receives the result: the value of a Get, or the next entries of a
	// Range, is appended to it. The submitter provides it and keeps it.
	Buf []byte
	// More says of a Range that entries are left: the submitter, having used
	// Buf, submits the task again as a continuation, or calls Close.
	More bool
	// Err is nil, store.ErrNotFound, or the error of the store.
	Err error

	iter     store.Iterator // open between the turns of a range
	entries  int            // entries of a range delivered so far
	deferred *Op            // reserved for the executor
}
