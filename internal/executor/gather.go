package executor

import (
	"sync"

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
	// underWay counts the batches that were pushed and whose sync has not ended, the
	// one that is being applied by the completer included.
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
// call. It returns false once closed and empty.
func (h *handed) popAll() ([]*batch, bool) {
	for {
		h.mu.Lock()
		all, closed := h.batches, h.closed
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

// applyGathered is called by the completer when a sync has ended, and applies what has
// gathered meanwhile.
func (e *Executor) applyGathered() {
	for b := e.handed.ended(e.now()); b != nil; b = e.handed.ended(e.now()) {
		if e.apply(b, false) {
			e.handed.follow(b)
			return
		}
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

// follow is push for what ended has returned.
func (h *handed) follow(b *batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches = append(h.batches, b)
}
