package executor

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// inFlight are the batches that are not durable yet, which keep reads from running ahead of
// durability.
//
// A batch that the store has applied is visible at once and durable only when
// its Commit has been waited for. Who reads in between sees what a crash could
// take back, so the answer to such a read is held until the batch is durable.
// No goroutine waits for that: the read is attached to a batch in flight, and
// whoever completes the batch completes the read.
//
// The rules:
//
//	W1  A batch marks the buckets of its keys, and is added to the young end of
//	    the list of batches in flight, before it is given to the store.
//	W2  When it is durable, or is known to have had no effect, it takes its
//	    marks off and leaves the list.
//	R1  A read first reads, then looks at its key's bucket. Without a mark it is
//	    answered at once.
//	R2  With a mark it is attached to the youngest batch of the list that writes
//	    its key, or answered at once if none does.
//	R3  When a batch leaves the list, the reads attached to it are answered if it
//	    was the oldest, and otherwise attached to the next older batch.
//
// Why no answer is early. Say that a read saw the effect of batch B. B was given
// to the store before that, and had marked its buckets and entered the list even
// earlier (W1). If the read finds no mark, B has taken its own off, so B is
// durable (W2). If it finds one, and B is no longer in the list, B is durable
// too. If B is in the list, then the youngest that writes the key is B or one that
// is younger, and by R3 a read is only ever answered when no batch is left that is
// as old as the one it was attached to, or older; B is among those.
//
// Why none starves. A read never waits for a batch that entered the list after
// it was attached, so it waits for at most those in flight at one moment; and for
// none if none writes what it reads, so that a sync that hangs holds up nobody
// else.
//
// A bucket may be shared by keys: then the list is searched for no need. And the
// batch may be younger than what was read: then a read waits for no need.
//
// A range works like a read of every key in it: when it has opened its snapshot
// it is attached to the youngest batch that writes any of them, whatever the marks
// say.
//
// Failed batches. If a batch's outcome is unknown its marks stay, it leaves the
// list, and its keys are noted as in doubt: reads of those keys fail, those
// attached included, until the store can write again. The store promises that by
// then it has decided what became of the batch. Ranges fail where they would
// pass such a key. That a store is writable is seen by the next read of a key
// with a mark, which then forgets all doubts, and reads again, as what it had
// read is from before the decision. The same holds for a read that others
// overtake in this: so generation is compared around every read.
type inFlight struct {
	seed  maphash.Seed
	marks [buckets]atomic.Int32
	// generation counts how often doubts were forgotten.
	generation atomic.Uint64

	mu struct {
		sync.Mutex
		oldest, youngest *batch
		doubts           map[string]uint32 // keys in doubt, and how many marks they left
		failures         uint64            // batches that failed so far
	}
}

// buckets is the size of the table of marks: with 64 writes in flight, one read in
// 128 meets a foreign mark.
const buckets = 1 << 13

func (t *inFlight) init() {
	t.seed = maphash.MakeSeed()
	t.mu.doubts = make(map[string]uint32)
}

func (t *inFlight) bucket(key []byte) *atomic.Int32 {
	return &t.marks[maphash.Bytes(t.seed, key)%buckets]
}

// enter is W1.
func (t *inFlight) enter(b *batch) {
	for _, key := range b.keys {
		bucket := t.bucket(key)
		b.buckets = append(b.buckets, bucket)
		bucket.Add(1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.older = t.mu.youngest; b.older == nil {
		t.mu.oldest = b
	} else {
		b.older.younger = b
	}
	t.mu.youngest = b
}

// leave is W2, or notes a failure if err says that the outcome is unknown. It
// returns the reads that can be answered.
func (t *inFlight) leave(b *batch, err error) (ready reads) {
	unknown := errors.Is(err, store.ErrUnknownOutcome)
	if !unknown {
		for _, bucket := range b.buckets {
			bucket.Add(-1)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if unknown {
		t.failLocked(b, err)
	}
	if b.younger == nil {
		t.mu.youngest = b.older
	} else {
		b.younger.older = b.older
	}
	if b.older == nil {
		t.mu.oldest = b.younger
		ready = b.reads
	} else {
		b.older.younger = b.younger
		b.older.reads.append(b.reads)
	}
	b.older, b.younger, b.reads = nil, nil, reads{}
	return ready
}

// failLocked puts the keys of b in doubt, and lets the reads fail that may have
// seen them.
func (t *inFlight) failLocked(b *batch, err error) {
	t.mu.failures++
	for _, key := range b.keys {
		t.mu.doubts[string(key)]++
	}
	for f := t.mu.oldest; f != nil; f = f.younger {
		for op := f.reads.first; op != nil; op = op.deferred.next {
			if b.writesWhat(op) {
				op.Err = inDoubt(err)
			}
		}
	}
}

// ErrInDoubt is the error of an operation that looks at a key of which it is not known
// what it holds: a write of it was not made durable, and the store has not recovered
// yet. The operation has had no effect.
var ErrInDoubt = errors.New("what would be read is in doubt")

func inDoubt(cause error) error {
	return fmt.Errorf("%w: %w: %w", ErrInDoubt, store.ErrUnwritable, cause)
}

// verdict says what becomes of a read.
type verdict uint8

const (
	answer verdict = iota
	wait           // it has been attached and is inFlight's
	again          // read again
	fail
)

// judge is R1 and R2, for a Get, or a Batch of reads, that has read since generation was
// loaded.
func (t *inFlight) judge(op *Op, generation uint64, s store.Store, d deferred) verdict {
	bucket, marked := t.look(op)
	if !marked && t.generation.Load() == generation {
		return answer
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(s)
	if t.generation.Load() != generation {
		return again
	}
	if t.doubtfulLocked(op) {
		return fail
	}
	return t.attachLocked(op, bucket, d)
}

// look returns whether a key that op looks at is being written, and the bucket of that key. A
// Batch has several: it marks its Steps, and the bucket is nil.
func (t *inFlight) look(op *Op) (bucket *atomic.Int32, marked bool) {
	if op.Kind == Batch {
		op.Steps.mark(t)
		return nil, len(op.Steps.marked) > 0
	}
	bucket = t.bucket(op.Key)
	return bucket, bucket.Load() != 0
}

// doubtfulLocked reports whether a key of op is in doubt, whose Steps are marked if it
// is a Batch.
func (t *inFlight) doubtfulLocked(op *Op) bool {
	if len(t.mu.doubts) == 0 {
		return false
	}
	if op.Kind == Batch {
		return slices.ContainsFunc(op.Steps.marked, func(key []byte) bool {
			_, doubtful := t.mu.doubts[string(key)]
			return doubtful
		})
	}
	_, doubtful := t.mu.doubts[string(op.Key)]
	return doubtful
}

// doubts is called before the operations of b look at what is stored. It makes readOnly
// those that would look at a key in doubt.
func (t *inFlight) doubts(b *batch, s store.Store) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(s)
	if len(t.mu.doubts) == 0 {
		return
	}
	for _, task := range b.tasks {
		op := task.Payload.(*Op)
		if !op.looks() {
			continue
		}
		t.look(op)
		if t.doubtfulLocked(op) {
			op.readOnly, op.Err = true, inDoubt(store.ErrUnknownOutcome)
		}
	}
}

// dismiss takes out of b the operations that have written nothing, before what b has
// written is answered. Those that answer what they have seen are attached to the youngest
// batch that writes what they have looked at. It returns those that can be answered.
func (t *inFlight) dismiss(b *batch, s store.Store) (ready []*dispatch.Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(s)
	readers := b.tasks[:0:0]
	tasks, keys, n := b.tasks[:0], b.keys[:0], 0
	buckets := b.buckets[:0]
	for _, task := range b.tasks {
		op := task.Payload.(*Op)
		own := n + op.writes()
		if op.readOnly {
			readers = append(readers, task)
			for _, bucket := range b.buckets[n:own] {
				bucket.Add(-1)
			}
		} else {
			tasks = append(tasks, task)
			keys = append(keys, b.keys[n:own]...)
			buckets = append(buckets, b.buckets[n:own]...)
		}
		n = own
	}
	b.tasks, b.keys, b.buckets = tasks, keys, buckets
	for _, task := range readers {
		op := task.Payload.(*Op)
		bucket, _ := t.look(op)
		switch {
		case t.doubtfulLocked(op):
			op.Err = inDoubt(store.ErrUnknownOutcome)
		case t.attachLocked(op, bucket, deferred{task: task, done: b.done}) == wait:
			continue
		}
		ready = append(ready, task)
	}
	return ready
}

// judgeRange is R2 for the first turn of a range, whose snapshot was opened
// since failures and generation were loaded.
func (t *inFlight) judgeRange(op *Op, failures uint64, d deferred) verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.failures != failures {
		return fail
	}
	return t.attachLocked(op, nil, d)
}

// attachLocked attaches a read to the youngest batch that writes what it reads. The
// bucket is that of its key, nil for a range and a Batch.
func (t *inFlight) attachLocked(op *Op, bucket *atomic.Int32, d deferred) verdict {
	for b := t.mu.youngest; b != nil; b = b.older {
		if (bucket == nil || slices.Contains(b.buckets, bucket)) && b.writesWhat(op) {
			op.deferred = d
			b.reads.append(reads{op, op})
			return wait
		}
	}
	return answer
}

// writesWhat reports whether b writes what op reads.
func (b *batch) writesWhat(op *Op) bool {
	return slices.ContainsFunc(b.keys, func(key []byte) bool {
		switch op.Kind {
		case Range:
			return op.covers(key)
		case Batch:
			_, found := slices.BinarySearchFunc(op.Steps.marked, key, bytes.Compare)
			return found
		}
		return bytes.Equal(key, op.Key)
	})
}

// barrier is called before a range opens its snapshot. It returns how many
// batches have failed so far, for judgeRange, and the first key on the way of the
// range that is in doubt because of one of them, or nil.
func (t *inFlight) barrier(op *Op, s store.Store) (failures uint64, first []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(s)
	for key := range t.mu.doubts {
		k := []byte(key)
		if op.covers(k) && (first == nil || op.isBefore(k, first)) {
			first = k
		}
	}
	return t.mu.failures, first
}

// forgetLocked forgets all doubts if the store can write again.
func (t *inFlight) forgetLocked(s store.Store) {
	if len(t.mu.doubts) == 0 || s.Writable() != nil {
		return
	}
	// The generation moves before the marks do, so that a read that finds no
	// mark any more sees that it has moved.
	t.generation.Add(1)
	for key, n := range t.mu.doubts {
		t.bucket([]byte(key)).Add(-int32(n))
	}
	clear(t.mu.doubts)
}

// reads is a chain of deferred reads. Appending one chain to another takes
// constant time.
type reads struct {
	first, last *Op
}

func (r *reads) append(more reads) {
	switch {
	case more.first == nil:
	case r.first == nil:
		*r = more
	default:
		r.last.deferred.next = more.first
		r.last = more.last
	}
}

// complete answers the reads.
func (r reads) complete() {
	for op := r.first; op != nil; {
		d := op.deferred
		op.deferred = deferred{}
		if op.Err != nil && op.Kind == Range {
			op.Close()
		}
		d.done(d.task) // gives op away
		op = d.next
	}
}

// batch is a store batch with its tasks, from when it is filled until they are
// completed.
type batch struct {
	tasks []*dispatch.Task
	// writes are what is given to the store, in order of the tasks.
	writes []store.Write
	// keys are those that the tasks write, or may write, in the same order.
	keys   [][]byte
	done   func(*dispatch.Task)
	commit store.Commit
	// applied is when the store had applied the batch, on the executor's clock.
	applied int64

	// The rest belongs to inFlight.

	buckets        []*atomic.Int32
	older, younger *batch
	reads          reads
}

// reset keeps the memory of the slices, and nothing of a request.
func (b *batch) reset() {
	clear(b.tasks[:cap(b.tasks)]) // some were dismissed
	clear(b.writes)
	clear(b.keys[:cap(b.keys)])
	*b = batch{tasks: b.tasks[:0], writes: b.writes[:0], keys: b.keys[:0], buckets: b.buckets[:0]}
}
