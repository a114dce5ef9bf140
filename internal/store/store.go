// Package store defines what Spillway asks of the engine that keeps the data.
//
// Keys and values are arbitrary bytes; keys are ordered bytewise. The engines
// are sub-packages: pebble, which is embedded, cassandra, which is distributed,
// and wrappers such as delay.
package store

import (
	"errors"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/etag"
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
	// ErrCondition is returned for a write whose condition does not hold, and which has
	// had no effect.
	ErrCondition = errors.New("the condition does not hold")
	// ErrLeftOut is returned by the View of a Transact for a value that was not kept.
	ErrLeftOut = errors.New("the value was left out")
	// ErrClosed is returned by every operation after Close.
	ErrClosed = errors.New("the store is closed")
)

// Write is one change: Value replaces what Key held, or Key is deleted.
type Write struct {
	Key    []byte
	Value  []byte
	Delete bool
	// TTL is after how many seconds the value is gone, 0 for never.
	TTL uint32
	// Tag is that of Value, zero if it is not known.
	Tag etag.Tag
	// If is what must hold. Only a Remote looks at it.
	If Condition
}

// Meta is what is known of a value beside its bytes.
type Meta struct {
	// Tag is the value's, zero if it is not stored with it.
	Tag etag.Tag
	// TTL is in how many seconds the value is gone, rounded up, 0 for never.
	TTL uint32
}

// Condition is what must hold for a key at the moment of a write. Its zero value
// always does.
type Condition struct {
	// Absent: the key has no value. Present: it has one.
	Absent, Present bool
	// Tags, if not nil, are those of which the value has one.
	Tags []etag.Tag
}

// IsZero reports whether the condition always holds.
func (c *Condition) IsZero() bool { return !c.Absent && !c.Present && c.Tags == nil }

// Holds reports whether the condition holds for a key with a value of that tag, or
// for one without a value.
func (c *Condition) Holds(found bool, tag etag.Tag) bool {
	if !found {
		return !c.Present && c.Tags == nil
	}
	return !c.Absent && (c.Tags == nil || slices.Contains(c.Tags, tag))
}

// Look is a key that a Transact looks at.
type Look struct {
	Key []byte
	// Room is nil if the value is not wanted, but its Meta. Otherwise it is how many bytes
	// of values are of use, and shared by many: Transact takes those off that it keeps. To
	// Get a value for which there was no room is ErrLeftOut.
	Room *int
}

// View reads what keys hold at one moment. It is for one goroutine, and for the time
// of the call that it is handed to.
type View interface {
	// Get returns the value of key, which is valid until the next call, or ErrNotFound.
	// It copies nothing: who holds up others may want to know of large values.
	Get(key []byte) ([]byte, Meta, error)
	// Stat is Get for who wants to know no more than the Tag, which is always told: the
	// TTL may be missing.
	Stat(key []byte) (Meta, error)
}

// Store keeps the data. All methods are safe for concurrent use. No method
// keeps a reference to an argument after it has returned.
type Store interface {
	// Get appends the value of key to dst and returns the extended slice, in a
	// buffer from bufpool if it has to be a new one. It returns dst unchanged and
	// ErrNotFound if the key has no value.
	Get(dst, key []byte) ([]byte, Meta, error)
	// Apply makes the writes visible at once, as one atomic batch, in order.
	// If the returned Commit is not nil, the batch is visible but not yet as
	// durable as the store was opened for: it may be acknowledged only after
	// Wait has returned nil, and Wait must be called exactly once.
	Apply(writes []Write) (Commit, error)
	// View calls read with what is stored at this moment, and returns its error.
	View(read func(View) error) error
	// Transact is Apply for writes that decide returns, having seen what is stored. No
	// other write takes effect in between: so decide must not wait for anything, and is
	// not called while another one is. All that it looks at is in looks, and is read
	// before, while that holds up nobody. An error of decide is returned, and nothing is
	// written then.
	Transact(looks []Look, decide func(View) ([]Write, error)) (Commit, error)
	// Range opens an iterator over a consistent snapshot of the keys from start
	// (included) to end (excluded), in ascending order of the keys or descending.
	// An empty end means no upper bound. A store that has no such snapshot returns
	// an error that wraps errors.ErrUnsupported; so do its View and Transact.
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
	GetUnder(t Terms, dst, key []byte) ([]byte, Meta, error)
	// ApplyUnder is Apply under the terms t. A write whose condition does not hold fails
	// with a *ConditionError.
	ApplyUnder(t Terms, writes []Write) error
}

// ConditionError is an ErrCondition that tells what the key holds instead.
type ConditionError struct {
	// Tag is that of the value, zero if there is none.
	Tag etag.Tag
}

func (*ConditionError) Error() string { return ErrCondition.Error() }

// Is makes it an ErrCondition.
func (*ConditionError) Is(target error) bool { return target == ErrCondition }

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
	// Next or Close. The error is ErrNotFound if the value is gone though it still
	// takes up space: who has to stop for others meets such entries as well.
	Entry() (key, value []byte, err error)
	// Err returns the error, if any, that ended the iteration.
	Err() error
	// Close releases the snapshot.
	Close() error
}

// ExpiringIterator is an Iterator that tells when entries expire.
type ExpiringIterator interface {
	Iterator
	// Expires returns when the current entry is gone, the zero time for never.
	Expires() time.Time
}
