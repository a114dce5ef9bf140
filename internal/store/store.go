// Package store defines what Spillway asks of the engine that keeps the data.
//
// Keys and values are arbitrary bytes; keys are ordered bytewise. The engines
// are sub-packages: pebble, which is embedded, cassandra, which is distributed,
// and wrappers such as delay.
package store

import (
	"errors"
	"time"
)

var (
	// ErrNotFound is returned when a key has no value.
	ErrNotFound = errors.New("key not found")
	// ErrUnwritable is returned, wrapped with the cause, when the store can no
	// longer write. A write that fails with it before it was handed on has had
	// no effect. Reads go on.
	ErrUnwritable = errors.New("the store cannot write")
	// ErrUnknownOutcome is returned, wrapped with the cause, when a write was
	// handed to the log but could not be made durable: it may or may not be
	// there after the store has recovered.
	ErrUnknownOutcome = errors.New("the outcome of the write is unknown")
	// ErrUnavailable is returned, wrapped with the cause, when too few replicas
	// of a key can be reached for what was asked. A write that fails with it has
	// had no effect.
	ErrUnavailable = errors.New("too few replicas can be reached")
	// ErrTimeout is returned, wrapped with the cause, when other machines did not
	// answer in time. A write that fails with it has had no effect, unless the
	// error wraps ErrUnknownOutcome as well.
	ErrTimeout = errors.New("no answer in time")
	// ErrClosed is returned by every operation after Close.
	ErrClosed = errors.New("the store is closed")
)

// Write is one change: Value replaces what Key held, or Key is deleted.
type Write struct {
	Key    []byte
	Value  []byte
	Delete bool
}

// Store keeps the data. All methods are safe for concurrent use. No method
// keeps a reference to an argument after it has returned.
type Store interface {
	// Get appends the value of key to dst and returns the extended slice, in a
	// buffer from bufpool if it has to be a new one. It returns dst unchanged and
	// ErrNotFound if the key has no value.
	Get(dst, key []byte) ([]byte, error)
	// Apply makes the writes visible at once, as one atomic batch, in order.
	// If the returned Commit is not nil, the batch is visible but not yet as
	// durable as the store was opened for: it may be acknowledged only after
	// Wait has returned nil, and Wait must be called exactly once.
	Apply(writes []Write) (Commit, error)
	// Range opens an iterator over a consistent snapshot of the keys from start
	// (included) to end (excluded), in ascending order of the keys or descending.
	// An empty end means no upper bound. A store that has no such snapshot returns
	// an error that wraps errors.ErrUnsupported.
	Range(start, end []byte, descending bool) (Iterator, error)
	// Stalled reports whether the store has fallen behind, so that for now no write
	// should be brought to it: it takes one all the same, and its memory grows by it.
	// It is cheap.
	Stalled() bool
	// Writable returns nil, or the reason (wrapping ErrUnwritable) why the
	// store cannot write at the moment.
	Writable() error
	// Close makes all acknowledged writes durable and closes the store. It must
	// not be called before every Commit has been waited for and every Iterator
	// has been closed.
	Close() error
}

// Remote is a Store that asks other machines, so that an operation may take long
// and a request may say how long, and how many replicas have to answer. Get and
// Apply are the same under the zero Terms.
//
// What it has applied is as durable as it will be: Apply returns no Commit, and
// reads need not be held back. Only the writes of one key are atomic and in order.
type Remote interface {
	Store
	// GetUnder is Get under the terms t.
	GetUnder(t Terms, dst, key []byte) ([]byte, error)
	// ApplyUnder is Apply under the terms t.
	ApplyUnder(t Terms, writes []Write) error
}

// Terms are what a request asks of a Remote store beside the operation itself.
type Terms struct {
	Consistency Consistency
	// Deadline is when nobody waits for the result any more, the zero time for
	// no deadline. The operation ends before, with ErrTimeout if need be.
	Deadline time.Time
}

// Consistency says how many replicas of a key must have answered.
type Consistency uint8

// The consistencies that a request may ask for.
const (
	// ConsistencyDefault is what the store was opened for.
	ConsistencyDefault Consistency = iota
	ConsistencyOne
	ConsistencyQuorum
	ConsistencyAll
)

// Commit is a batch on its way to the disk.
type Commit interface {
	// Wait blocks until the batch is durable, or returns an error that wraps
	// ErrUnknownOutcome.
	Wait() error
}

// Iterator walks a snapshot in the order that was asked for. It starts before the
// first entry. It is for one goroutine at a time.
type Iterator interface {
	// Next moves to the next entry and reports whether there is one.
	Next() bool
	// Entry returns the current key and value, valid until the next call of
	// Next or Close.
	Entry() (key, value []byte, err error)
	// Err returns the error, if any, that ended the iteration.
	Err() error
	// Close releases the snapshot.
	Close() error
}
