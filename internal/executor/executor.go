// Package executor runs tasks against a store.
//
// Reads run on the worker that brings them. Writes that a worker takes together
// become one store batch. If the store hands the batch back before it is
// durable, the worker does not sleep through the sync: it hands the batch on to
// the completer, one goroutine that waits for the batches one after the other
// and completes their tasks, and takes more work. So a few workers keep many
// writes in flight, which then share syncs. The hand-on is bounded; a worker
// that would exceed the bound waits.
//
// A read of something that is not durable yet is held back until it is, without
// holding up a worker: see table.
//
// With a store on other machines none of this is needed, and a worker waits for
// its operation: see remote.go.
package executor

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"spillway/internal/bufpool"
	"spillway/internal/store"
	"spillway/strategies"
)

const (
	// maxBatchBytes bounds the keys and values of one store batch, unless one
	// write alone is larger: a larger one saves nothing, and makes everybody
	// else's sync longer.
	maxBatchBytes = 4 << 20
	// maxTurnBytes is how much a range fills into its buffer in one turn, unless
	// one entry alone is larger. With the head of its answer it fits into a buffer
	// of 256 KiB.
	maxTurnBytes = 252 << 10
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
	// MaxCommits is how many batches may have been handed on to the completer
	// and not yet be durable, beyond the one it waits for. Less than 1 means 1.
	MaxCommits int
	// Epoch is the zero of the clock of Task.Started. The zero value means that
	// tasks do not tell when they were started.
	Epoch  time.Time
	Events Events
}

// Executor runs tasks whose payload is an *Op.
type Executor struct {
	store   store.Store
	remote  store.Remote // the store, if it is one, or else nil
	events  Events
	epoch   time.Time
	started bool // tasks tell when they were started, on the same clock
	table   table
	batches sync.Pool
	handed  chan *batch
	stopped chan struct{} // closed when the completer has returned
}

// Open starts an executor.
func Open(o Options) *Executor {
	o.Events.setDefaults()
	e := &Executor{
		store:   o.Store,
		events:  o.Events,
		epoch:   o.Epoch,
		started: !o.Epoch.IsZero(),
		handed:  make(chan *batch, max(1, o.MaxCommits)),
		stopped: make(chan struct{}),
	}
	e.remote, _ = o.Store.(store.Remote)
	if !e.started {
		e.epoch = time.Now()
	}
	e.batches.New = func() any { return new(batch) }
	e.table.init()
	go e.complete()
	return e
}

// Close waits until all that was handed on is completed. Run must not be called
// any more.
func (e *Executor) Close() {
	close(e.handed)
	<-e.stopped
}

// Run runs the tasks, in order, and calls done for each when it is completed:
// before Run returns or later, on another goroutine. The slice is not kept.
// Neighbouring writes become one batch.
func (e *Executor) Run(tasks []*strategies.Task, done func(*strategies.Task)) {
	for len(tasks) > 0 {
		op := tasks[0].Payload.(*Op)
		switch {
		case op.Kind == Range:
			e.scan(tasks[0], op, done)
		case e.remote != nil:
			e.ask(tasks[0], op, done)
		case op.Kind == Get:
			e.get(tasks[0], op, done)
		default:
			tasks = e.write(tasks, done)
			continue
		}
		tasks = tasks[1:]
	}
}

// now is the time in nanoseconds since the epoch.
func (e *Executor) now() int64 { return int64(time.Since(e.epoch)) }

// began returns when t began to run, which is now. A task that was started at
// the beginning of this turn says so, which spares a look at the clock.
func (e *Executor) began(t *strategies.Task) int64 {
	if e.started {
		return t.Started
	}
	return e.now()
}

func (e *Executor) operated(operation string, start int64) {
	e.events.Operated(operation, time.Duration(e.now()-start))
}

func (e *Executor) get(t *strategies.Task, op *Op, done func(*strategies.Task)) {
	start := e.began(t)
	head := len(op.Buf)
	slot := e.table.slot(op.Key)
	for {
		generation := e.table.generation.Load()
		op.Buf, op.Err = e.storeGet(op.Buf[:head], op.Key)
		if op.Err != nil && !errors.Is(op.Err, store.ErrNotFound) {
			break
		}
		switch e.table.judgeGet(op, slot, generation, e.store, deferred{task: t, done: done}) {
		case wait:
			e.operated("get", start)
			return
		case again:
			continue
		case fail:
			op.Buf, op.Err = op.Buf[:head], inDoubt(store.ErrUnknownOutcome)
		case answer:
		}
		break
	}
	e.operated("get", start)
	done(t)
}

// write takes the first of the tasks, all that are writes and fit together, and
// returns the others.
func (e *Executor) write(tasks []*strategies.Task, done func(*strategies.Task)) (rest []*strategies.Task) {
	b := e.batches.Get().(*batch)
	b.done = done
	size := 0
	for _, t := range tasks {
		op := t.Payload.(*Op)
		size += len(op.Key) + len(op.Value)
		if op.Kind != Put && op.Kind != Delete || len(b.tasks) > 0 && size > maxBatchBytes {
			break
		}
		b.tasks = append(b.tasks, t)
		b.writes = append(b.writes, store.Write{Key: op.Key, Value: op.Value, Delete: op.Kind == Delete})
	}
	n := len(b.tasks)

	e.table.enter(b)
	start := e.now()
	commit, err := e.storeApply(b.writes)
	b.applied = e.now()
	e.events.Operated("commit", time.Duration(b.applied-start))
	if err == nil {
		e.events.Committed(b.tasks[0].Strategy, n)
	}
	if commit == nil {
		e.finish(b, err)
	} else {
		// From here on b is the completer's.
		b.commit = commit
		e.handed <- b
	}
	return tasks[n:]
}

// complete waits for the batches that were handed on.
func (e *Executor) complete() {
	defer close(e.stopped)
	for b := range e.handed {
		err := storeWait(b.commit)
		e.operated("sync", b.applied)
		e.finish(b, err)
	}
}

// finish completes the tasks of b, and the reads that waited for it alone.
func (e *Executor) finish(b *batch, err error) {
	ready := e.table.leave(b, err)
	for _, t := range b.tasks {
		t.Payload.(*Op).Err = err
		b.done(t)
	}
	ready.complete()
	b.reset()
	e.batches.Put(b)
}

// scan runs a turn of a range.
func (e *Executor) scan(t *strategies.Task, op *Op, done func(*strategies.Task)) {
	start := e.now()
	head := len(op.Buf)
	op.Err, op.More = nil, false
	if op.scan.iter != nil {
		// The first turn has waited for all that the snapshot may hold.
		op.Err = fill(op)
	} else if e.firstTurn(t, op, done) == wait {
		e.operated("range", start)
		return
	}
	if op.Err != nil {
		op.Buf = op.Buf[:head]
	}
	e.operated("range", start)
	done(t)
}

// firstTurn opens the snapshot of a range and fills its first buffer. If the
// verdict is wait, the task has been given away.
func (e *Executor) firstTurn(t *strategies.Task, op *Op, done func(*strategies.Task)) verdict {
	failures, barrier := e.table.barrier(op, e.store)
	op.scan.barrier = barrier
	if op.scan.iter, op.Err = e.storeRange(op.Key, op.End); op.Err != nil {
		op.Close()
		return fail
	}
	if op.Err = fill(op); op.Err != nil {
		return fail
	}
	v := e.table.judgeRange(op, failures, deferred{task: t, done: done})
	if v == fail {
		op.Close()
		op.Err = inDoubt(store.ErrUnknownOutcome)
	}
	return v
}

// fill appends entries to op.Buf until it is full, the limit is reached or none
// is left. It sets More, or else closes the iterator.
func fill(op *Op) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
		if !op.More {
			op.Close()
		}
	}()
	s := &op.scan
	head := len(op.Buf)
	for s.pending || s.iter.Next() {
		s.pending = false
		key, value, err := s.iter.Entry()
		if err != nil {
			return err
		}
		if s.barrier != nil && bytes.Compare(key, s.barrier) >= 0 {
			return inDoubt(store.ErrUnknownOutcome)
		}
		before := len(op.Buf)
		// The first condition spares growing the buffer for an entry that cannot
		// fit.
		if first := before == head; first || before-head+len(key)+len(value) <= maxTurnBytes {
			// Encoded it is a little larger, or by a third in base64.
			if need := 64 + (len(key)+len(value))*3/2; cap(op.Buf)-before < need {
				op.Buf = bufpool.Grow(op.Buf, max(need, maxTurnBytes-(before-head)))
			}
			op.Buf = op.Encode(op.Buf, key, value)
			if first || len(op.Buf)-head <= maxTurnBytes {
				if s.entries++; s.entries == op.Limit {
					return nil
				}
				continue
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

func (e *Executor) storeGet(dst, key []byte) (value []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			value, err = dst, panicked(r)
		}
	}()
	return e.store.Get(dst, key)
}

func (e *Executor) storeApply(writes []store.Write) (c store.Commit, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, panicked(r))
		}
	}()
	return e.store.Apply(writes)
}

func storeWait(c store.Commit) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, panicked(r))
		}
	}()
	return c.Wait()
}

func (e *Executor) storeRange(start, end []byte) (it store.Iterator, err error) {
	defer func() {
		if r := recover(); r != nil {
			it, err = nil, panicked(r)
		}
	}()
	return e.store.Range(start, end)
}

func panicked(r any) error { return fmt.Errorf("the store panicked: %v", r) }
