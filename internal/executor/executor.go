// Package executor runs tasks against a store.
//
// Reads run on the worker that brings them. Writes that a worker takes together
// become one store batch. If the store hands the batch back before it is
// durable, the worker does not sleep through the sync: it hands the batch on to
// the completer, one goroutine that waits for the batches one after the other
// and completes their tasks, and takes more work. So a few workers keep many
// writes in flight, which then share syncs. The hand-on is bounded: beyond the
// bound, and while the store stalls, Blocked reports that no write should begin, so
// that no worker waits for the disk.
//
// A read of something that is not durable yet is held back until it is, without
// holding up a worker: see inFlight.
//
// With a store on other machines none of this is needed, and a worker waits for
// its operation: see remote.go.
package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

const (
	// MaxBatchBytes is how many bytes of keys and values the writes of one turn
	// should have together, unless one has more alone: a larger batch saves nothing,
	// and makes everybody else's sync longer.
	MaxBatchBytes = 4 << 20
	// maxTurnBytes is how much a range fills into its buffer in one turn, unless
	// one entry alone is larger. With the head of its answer it fits into a buffer
	// of 256 KiB.
	maxTurnBytes = 252 << 10
	// maxTurnGone is how many entries that have expired a range passes over in one
	// turn.
	maxTurnGone = 4096
)

// Events are called as things happen. Each must be fast and safe for concurrent
// use; nil means that nobody wants to know.
type Events struct {
	// Committed is called when a batch of so many writes was applied, with the
	// strategy of its first task.
	Committed func(strategy string, writes int)
	// Operated is called after each call of the store, with its duration: get;
	// commit, the applying of a batch; sync, from then until the batch was durable;
	// range, a turn of a range.
	Operated func(operation string, d time.Duration)
}

func (e *Events) setDefaults() {
	if e.Committed == nil {
		e.Committed = func(string, int) {}
	}
	if e.Operated == nil {
		e.Operated = func(string, time.Duration) {}
	}
}

// Options configure an Executor.
type Options struct {
	// Store is used by the executor, which does not close it.
	Store store.Store
	// MaxCommits is how many batches may be handed on and not yet durable before
	// Blocked returns true. Less than 1 means 1. A worker that called Blocked just
	// before may exceed it by one.
	MaxCommits int
	// Unblocked is called when Blocked(false) has become false because a batch is
	// durable. It must not block. Nil means that nobody wants to know.
	Unblocked func()
	// Logger gets panics of the store, with the stack, at most one a second. Nil means
	// slog.Default.
	Logger *slog.Logger
	// Epoch is the zero of the clock of Task.Started. The zero value means that
	// tasks do not say when they were started.
	Epoch  time.Time
	Events Events
}

// Executor runs tasks whose payload is an *Op.
type Executor struct {
	store    store.Store
	remote   store.Remote // the store, if it is one, or else nil
	events   Events
	epoch    time.Time
	started  bool // tasks say when they were started, on the same clock
	inFlight inFlight
	batches  sync.Pool
	handed   handed
	stopped  chan struct{} // closed when the completer has returned

	maxCommits atomic.Int64
	unblocked  func()
	log        *slog.Logger
	panicked   atomic.Int64 // when that was logged last, in nanoseconds since the epoch
	// commits counts the batches that were handed on and are not yet durable.
	commits atomic.Int64
}

// Open starts an executor.
func Open(o Options) *Executor {
	o.Events.setDefaults()
	e := &Executor{
		store:   o.Store,
		events:  o.Events,
		epoch:   o.Epoch,
		started: !o.Epoch.IsZero(),
		stopped: make(chan struct{}),

		unblocked: o.Unblocked,
		log:       o.Logger,
	}
	e.maxCommits.Store(int64(max(1, o.MaxCommits)))
	if e.log == nil {
		e.log = slog.Default()
	}
	e.panicked.Store(math.MinInt64 / 2)
	if e.unblocked == nil {
		e.unblocked = func() {}
	}
	e.handed.init()
	e.remote, _ = o.Store.(store.Remote)
	if !e.started {
		e.epoch = time.Now()
	}
	e.batches.New = func() any { return new(batch) }
	e.inFlight.init()
	go e.complete()
	return e
}

// Close waits until all that was handed on is completed. Run must not be called
// any more.
func (e *Executor) Close() {
	e.handed.close()
	<-e.stopped
}

// SetMaxCommits changes Options.MaxCommits.
func (e *Executor) SetMaxCommits(n int) {
	e.maxCommits.Store(int64(max(1, n)))
	e.unblocked() // what was too many may be no more
}

// Blocked reports whether no write should be begun for now: because the store
// stalls or, unless inline is set, because MaxCommits batches wait for their sync.
// A write that is run inline holds up nobody else while it waits for its sync.
func (e *Executor) Blocked(inline bool) bool {
	return !inline && e.commits.Load() >= e.maxCommits.Load() || e.store.Stalled()
}

// Run runs a task, or several writes as one batch, and calls done for each when it
// is completed: before Run returns or later, on another goroutine. The slice is
// not kept.
func (e *Executor) Run(tasks []*dispatch.Task, done func(*dispatch.Task)) {
	t := tasks[0]
	switch op := t.Payload.(*Op); {
	case op.Kind == Range:
		e.scan(t, op, done)
	case e.remote != nil:
		for _, t := range tasks {
			e.ask(t, t.Payload.(*Op), done)
		}
	case op.Kind == Get, op.Kind == Batch && !t.Write:
		e.read(t, op, done)
	default:
		e.write(tasks, done)
	}
}

// now is the time in nanoseconds since the epoch.
func (e *Executor) now() int64 { return int64(time.Since(e.epoch)) }

// began returns when t began to run: now, or the beginning of this turn, which t
// knows and which spares a look at the clock.
func (e *Executor) began(t *dispatch.Task) int64 {
	if e.started {
		return t.Started
	}
	return e.now()
}

func (e *Executor) operated(operation string, start int64) {
	e.events.Operated(operation, time.Duration(e.now()-start))
}

// read runs a Get, or a Batch that only reads, until what it has read may be answered.
func (e *Executor) read(t *dispatch.Task, op *Op, done func(*dispatch.Task)) {
	start := e.began(t)
	head := len(op.Buf)
	v := again
	for v == again {
		generation := e.inFlight.generation.Load()
		op.Buf = op.Buf[:head]
		if op.Kind == Get {
			e.storeGet(op)
		} else {
			e.storeView(op)
		}
		if v = answer; op.Err == nil || errors.Is(op.Err, store.ErrNotFound) {
			v = e.inFlight.judge(op, generation, e.store, deferred{task: t, done: done})
		}
	}
	e.operated("get", start)
	if v == wait {
		return // it is inFlight's
	}
	if v == fail {
		op.Err = inDoubt(store.ErrUnknownOutcome)
	}
	if op.Err != nil {
		op.Buf = op.Buf[:head]
	}
	done(t)
}

// write applies the writes as one batch.
func (e *Executor) write(tasks []*dispatch.Task, done func(*dispatch.Task)) {
	b := e.batches.Get().(*batch)
	b.done = done
	looks, mayWriteNothing := false, false
	for _, t := range tasks {
		op := t.Payload.(*Op)
		op.readOnly = false
		op.tag()
		b.tasks = append(b.tasks, t)
		if op.Kind == Batch {
			b.keys = op.Steps.appendKeys(b.keys)
			mayWriteNothing = true
		} else {
			b.keys = append(b.keys, op.Key)
		}
		looks = looks || op.looks()
	}
	e.inFlight.enter(b)
	start := e.now()
	var commit store.Commit
	var err error
	if looks {
		commit, err = e.storeTransact(b)
	} else if b.fill(nil); len(b.writes) > 0 {
		commit, err = e.storeApply(b.writes)
	}
	b.applied = e.now()
	e.events.Operated("commit", time.Duration(b.applied-start))
	b.commit = commit
	// Operations that wrote nothing do not wait for the sync of this batch.
	if happened := err == nil || errors.Is(err, store.ErrUnknownOutcome); happened && (looks || mayWriteNothing) {
		for _, t := range e.inFlight.dismiss(b, e.store) {
			done(t)
		}
	}
	if err == nil && len(b.tasks) > 0 {
		e.events.Committed(b.tasks[0].Strategy, len(b.writes))
	}
	if commit == nil {
		e.finish(b, err)
		return
	}
	e.commits.Add(1)
	e.handed.push(b) // from here on b is the completer's
}

// complete waits for the batches that were handed on.
func (e *Executor) complete() {
	defer close(e.stopped)
	for {
		batches, ok := e.handed.popAll()
		if !ok {
			return
		}
		for i, b := range batches {
			batches[i] = nil
			err := e.storeWait(b.commit)
			e.operated("sync", b.applied)
			e.finish(b, err)
			if e.commits.Add(-1) == e.maxCommits.Load()-1 {
				e.unblocked()
			}
		}
	}
}

// handed are the batches on their way to the completer. To push one never blocks:
// Blocked keeps their number near Options.MaxCommits.
type handed struct {
	some chan struct{} // of capacity 1: there are some, or it is closed

	mu      sync.Mutex
	batches []*batch
	spare   []*batch // the memory of those popped before
	closed  bool
}

func (h *handed) init() { h.some = make(chan struct{}, 1) }

func (h *handed) push(b *batch) {
	h.mu.Lock()
	h.batches = append(h.batches, b)
	h.mu.Unlock()
	h.signal()
}

func (h *handed) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.signal()
}

func (h *handed) signal() {
	select {
	case h.some <- struct{}{}:
	default:
	}
}

// popAll waits for batches and returns all that there are, in order, until the next
// call. It returns false once closed and empty.
func (h *handed) popAll() ([]*batch, bool) {
	for {
		h.mu.Lock()
		all, closed := h.batches, h.closed
		h.batches, h.spare = h.spare[:0], all
		h.mu.Unlock()
		if len(all) > 0 {
			return all, true
		}
		if closed {
			return nil, false
		}
		<-h.some
	}
}

// finish completes the tasks of b, and the reads that waited for it alone.
func (e *Executor) finish(b *batch, err error) {
	ready := e.inFlight.leave(b, err)
	for _, t := range b.tasks {
		t.Payload.(*Op).Err = err
		b.done(t)
	}
	ready.complete()
	b.reset()
	e.batches.Put(b)
}

// scan runs a turn of a range.
func (e *Executor) scan(t *dispatch.Task, op *Op, done func(*dispatch.Task)) {
	start := e.now()
	head := len(op.Buf)
	op.Err, op.More = nil, false
	if op.scan.iter != nil {
		// The first turn has waited for all that the snapshot may hold.
		op.Err = e.fill(op)
	} else if e.firstTurn(t, op, done) == wait {
		e.operated("range", start)
		return
	}
	if op.Err != nil {
		op.Buf = op.Buf[:head]
	}
	e.operated("range", start)
	if e.remote != nil {
		answered(t, op.Err)
	}
	done(t)
}

// firstTurn opens the snapshot of a range and fills its first buffer. If the
// verdict is wait, the task has been given away.
func (e *Executor) firstTurn(t *dispatch.Task, op *Op, done func(*dispatch.Task)) verdict {
	failures, barrier := e.inFlight.barrier(op, e.store)
	op.scan.barrier = barrier
	if op.scan.iter, op.Err = e.storeRange(op); op.Err != nil {
		op.Close()
		return fail
	}
	if op.Err = e.fill(op); op.Err != nil {
		return fail
	}
	v := e.inFlight.judgeRange(op, failures, deferred{task: t, done: done})
	if v == fail {
		op.Close()
		op.Err = inDoubt(store.ErrUnknownOutcome)
	}
	return v
}

// fill appends entries to op.Buf until it is full, the limit is reached or none
// is left. It sets More, or else closes the iterator.
func (e *Executor) fill(op *Op) (err error) {
	defer e.rescue(&err) // also of the Close
	defer func() {
		if !op.More {
			op.Close()
		}
	}()
	s := &op.scan
	head, gone := len(op.Buf), 0
	for s.pending || s.iter.Next() {
		s.pending = false
		key, value, err := s.iter.Entry()
		if errors.Is(err, store.ErrNotFound) {
			if gone++; gone == maxTurnGone {
				op.More = true
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		if s.barrier != nil && !op.isBefore(key, s.barrier) {
			return inDoubt(store.ErrUnknownOutcome)
		}
		if op.KeysOnly {
			value = nil
		}
		before := len(op.Buf)
		// The first condition spares growing the buffer for an entry that cannot
		// fit.
		if first := before == head; first || before-head+len(key)+len(value) <= maxTurnBytes {
			// Encoded it is a little larger, or by a third in base64, and the key may
			// be written once more.
			if need := 128 + (2*len(key)+len(value))*3/2; cap(op.Buf)-before < need {
				op.Buf = bufpool.Grow(op.Buf, max(need, maxTurnBytes-(before-head)))
			}
			op.Buf = op.Encode(op.Buf, key, value)
			whole, last := len(op.Buf), s.entries+1 == op.Limit
			if last && op.Next != nil {
				op.Buf = op.Next(op.Buf, key)
			}
			if first || len(op.Buf)-head <= maxTurnBytes {
				s.entries++
				if !last {
					continue
				}
				// Next may be wanted only if there is more. What is in doubt may be.
				if len(op.Buf) > whole && !s.iter.Next() && s.barrier == nil {
					op.Buf = op.Buf[:whole]
				}
				return s.iter.Err()
			}
			op.Buf = op.Buf[:before]
		}
		s.pending, op.More = true, true
		return nil
	}
	if err := s.iter.Err(); err != nil {
		return err
	}
	if s.barrier != nil {
		// What is in doubt may be the last entry, deleted.
		return inDoubt(store.ErrUnknownOutcome)
	}
	return nil
}

// The calls of the store follow. A panic in there must not take the worker with
// it.

func (e *Executor) storeGet(op *Op) {
	defer e.rescue(&op.Err)
	op.Buf, op.Meta, op.Err = e.store.Get(op.Buf, op.Key)
}

func (e *Executor) storeView(op *Op) {
	defer e.rescue(&op.Err)
	op.Err = e.store.View(func(v store.View) error {
		p := present{view: v}
		return p.take(op)
	})
}

func (e *Executor) storeTransact(b *batch) (c store.Commit, err error) {
	defer e.rescueWrite(&err)
	return e.store.Transact(b.looks(), func(v store.View) ([]store.Write, error) {
		e.inFlight.doubts(b, e.store)
		b.fill(v)
		return b.writes, nil
	})
}

func (e *Executor) storeApply(writes []store.Write) (c store.Commit, err error) {
	defer e.rescueWrite(&err)
	return e.store.Apply(writes)
}

func (e *Executor) storeWait(c store.Commit) (err error) {
	defer e.rescueWrite(&err)
	return c.Wait()
}

func (e *Executor) storeRange(op *Op) (it store.Iterator, err error) {
	defer e.rescue(&err)
	return e.store.Range(op.Key, op.End, op.Descending)
}

// rescue turns a panic into an error.
func (e *Executor) rescue(err *error) {
	if r := recover(); r != nil {
		e.logPanic(r)
		*err = fmt.Errorf("the store panicked: %v", r)
	}
}

// rescueWrite is rescue for a write, whose outcome is unknown then.
func (e *Executor) rescueWrite(err *error) {
	if r := recover(); r != nil {
		e.logPanic(r)
		*err = fmt.Errorf("%w: the store panicked: %v", store.ErrUnknownOutcome, r)
	}
}

// logPanic logs a panic with the stack on which it came. Others of the same second, each with
// its error, are as a rule the same.
func (e *Executor) logPanic(panicked any) {
	now, last := e.now(), e.panicked.Load()
	if now-last >= int64(time.Second) && e.panicked.CompareAndSwap(last, now) {
		e.log.Error("a call of the store panicked", "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	}
}
