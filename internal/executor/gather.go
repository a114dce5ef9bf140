package executor

import (
	"sync"
	"time"

	"github.com/spillway-go/spillway/strategies/dispatch"
)

const (
	// maxGathered and maxGatheredBytes bound the writes that gather during a sync.
	// Those beyond are applied as if none was under way.
	maxGathered      = 512
	maxGatheredBytes = 256 << 10
)

// handed are the batches on their way to the completer, and the writes that gather for
// the next one. There are about as many as may be, and nobody waits who hands one on.
//
// To apply writes one by one while a sync is under way costs more than to apply them
// together when it has ended, and makes none durable sooner: the next sync has them all.
// So they gather. What has gathered has begun, and is not in the store: nobody sees it.
//
// Writes gather only while a batch is under way, so the completer is going to wait for
// one, and then comes for them: next is nil while underWay is 0.
type handed struct {
	wake chan struct{} // of capacity 1: tells the completer that is asleep to look

	mu      sync.Mutex
	batches []*batch
	spare   []*batch // the memory of those popped before
	// underWay counts the batches that were pushed and whose sync has not ended, those
	// that were gathered and are being applied included.
	underWay int
	since    int64  // when the sync of the first of them began, on the executor's clock
	next     *batch // has the tasks that have gathered, or is nil
	bytes    int    // that these write
	asleep   bool   // the completer is
	closed   bool
}

func (h *handed) init() { h.wake = make(chan struct{}, 1) }

// push hands on b, which has been applied.
func (h *handed) push(b *batch) {
	h.mu.Lock()
	if h.underWay++; h.underWay == 1 {
		h.since = b.applied
	}
	h.batches = append(h.batches, b)
	h.wakeAndUnlock()
}

func (h *handed) close() {
	h.mu.Lock()
	h.closed = true
	h.wakeAndUnlock()
}

func (h *handed) wakeAndUnlock() {
	slept := h.asleep
	h.asleep = false
	h.mu.Unlock()
	if slept {
		h.wake <- struct{}{}
	}
}

// popAll waits for batches and returns all that there are, in order, until the next
// call. It returns false once closed and no batch is under way.
func (h *handed) popAll() ([]*batch, bool) {
	for {
		h.mu.Lock()
		all, closed := h.batches, h.closed && h.underWay == 0
		h.batches, h.spare = h.spare[:0], all
		h.asleep = len(all) == 0 && !closed
		h.mu.Unlock()
		if len(all) > 0 {
			return all, true
		}
		if closed {
			return nil, false
		}
		<-h.wake
	}
}

// gather keeps the tasks, which depend on nothing that is stored, for the end of the
// sync under way. It returns false if none is, if it takes too long, or if too much has
// gathered.
func (e *Executor) gather(tasks []*dispatch.Task, done func(*dispatch.Task)) bool {
	bytes := 0
	for _, t := range tasks {
		bytes += t.Payload.(*Op).bytes()
	}
	now := e.now()
	h := &e.handed
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.underWay == 0 || now-h.since >= e.patience || h.bytes+bytes > maxGatheredBytes {
		return false
	}
	if h.next == nil {
		h.next = e.batches.Get().(*batch)
		h.next.done = done
	} else if len(h.next.tasks)+len(tasks) > maxGathered {
		return false
	}
	h.next.tasks = append(h.next.tasks, tasks...)
	h.bytes += bytes
	return true
}

// applyGathered is called by the completer when the sync of b has ended, with err, and
// applies what has gathered meanwhile. It returns false if that took too long: another
// goroutine is the completer then, and goes on with b and with the rest.
func (e *Executor) applyGathered(b *batch, err error, rest []*batch) bool {
	next := e.handed.ended(e.now())
	if next == nil {
		return true
	}
	turn := e.relief.begin(synced{b, err, rest})
	for next != nil && !e.apply(next, false) {
		next = e.handed.ended(e.now())
	}
	inTime := e.relief.end(turn)
	e.handed.follow(next)
	return inTime
}

// relief sees to it that those are answered whose syncs have ended while the completer
// applies what has gathered, however long the store takes for that.
type relief struct {
	timer    *time.Timer // calls Executor.relieve
	patience time.Duration

	mu       sync.Mutex
	applying bool
	turn     uint64 // counts what was begun
	synced   synced // what the one who applies has left
}

// synced is a batch whose sync has ended, with err, and those behind it.
type synced struct {
	batch *batch
	err   error
	rest  []*batch
}

func (r *relief) init(patience time.Duration, relieve func()) {
	r.patience = patience
	r.timer = time.AfterFunc(patience, relieve)
	r.timer.Stop()
}

// begin leaves s to another if end is not called in time.
func (r *relief) begin(s synced) (turn uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applying, r.synced = true, s
	r.turn++
	r.timer.Reset(r.patience)
	return r.turn
}

// end reports whether nobody else has taken over.
func (r *relief) end(turn uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.applying || r.turn != turn {
		return false
	}
	r.timer.Stop()
	r.applying, r.synced = false, synced{}
	return true
}

// relieve takes over from a completer that has been applying for long. It may do so early,
// from one that has begun while the timer rang for the one before.
func (e *Executor) relieve() {
	r := &e.relief
	r.mu.Lock()
	applying, s := r.applying, r.synced
	r.applying, r.synced = false, synced{}
	r.mu.Unlock()
	if applying {
		e.synced(s.batch, s.err)
		e.complete(s.rest)
	}
}

// ended returns what has gathered, which takes the place of the batch whose sync has
// ended, or nil.
func (h *handed) ended(now int64) *batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
	b := h.next
	if b == nil {
		h.underWay--
	}
	h.next, h.bytes = nil, 0
	return b
}

// follow is push for what ended has returned, or nil.
func (h *handed) follow(b *batch) {
	h.mu.Lock()
	if b != nil {
		h.batches = append(h.batches, b)
	}
	h.wakeAndUnlock() // somebody else may be the completer by now
}
