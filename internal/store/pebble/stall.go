package pebble

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// stall tells when writes should be held back, because flushes or compactions are
// behind.
//
// Pebble does that too, but with its commit lock held: when the disk is full,
// the flush that they wait for never succeeds, and everyone who writes, and
// soon every worker, is stuck. So Pebble is kept from it, and whoever writes asks
// Stalled first, and waits where it holds up nobody. The measure is taken in the
// background when the number of memtables or tables has changed. If that takes its
// time, writes wait for it.
type stall struct {
	count   atomic.Int64  // how often writes were stalled
	changed chan struct{} // of capacity 1: take the measure again
	ended   func()        // is called when a stall has ended
	on      atomic.Bool   // written under mu
	// unmeasured counts the memtables that were filled since the last measure.
	unmeasured atomic.Int64
	// failed is the last compaction that failed.
	failed atomic.Pointer[failedCompaction]

	mu struct {
		sync.Mutex
		since time.Time     // when the present one began
		past  time.Duration // how long those before it lasted, together
	}
}

func (s *stall) init(ended func()) {
	s.changed, s.ended = make(chan struct{}, 1), ended
}

// check asks for a new measure. It never blocks.
func (s *stall) check() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// filled is called when a memtable has been filled.
func (s *stall) filled() {
	if s.unmeasured.Add(1) >= stallMemTables {
		s.set(true, time.Now())
	}
	s.check()
}

// set begins or ends a stall, unless that has been done.
func (s *stall) set(on bool, now time.Time) {
	s.mu.Lock()
	was := s.on.Swap(on)
	switch {
	case on && !was:
		s.mu.since = now
		s.count.Add(1)
	case !on && was:
		s.mu.past += now.Sub(s.mu.since)
	}
	s.mu.Unlock()
	if was && !on {
		s.ended()
	}
}

// lasted returns how long all stalls have lasted, the present one so far.
func (s *stall) lasted(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on.Load() {
		return s.mu.past
	}
	return s.mu.past + now.Sub(s.mu.since)
}

// stallLoop takes the measure.
func (s *Store) stallLoop() {
	for {
		select {
		case <-s.stall.changed:
			s.stall.unmeasured.Store(0)
			if m := s.ask(); m != nil {
				on := s.stalled(m)
				if on && !s.stall.on.Load() {
					s.opts.Logger.Warn("writes stall until the store has caught up",
						"memtableBytes", m.MemTable.Size, "sublevels", m.Levels[0].Sublevels)
				}
				s.stall.set(on, time.Now())
				if err := s.stuck(m); err != nil {
					s.health.fail(err)
				}
			}
		case <-s.closing:
			return
		}
	}
}

// stalled reports whether flushes or compactions are behind. Memtables count by
// their bytes, as they do for Pebble, not by their number: the first ones are
// small, and Pebble does not flush until half of a full one waits, so that a
// stall on their number would wait for a flush that never comes.
func (s *Store) stalled(m *pebble.Metrics) bool {
	return m.MemTable.Size > stallMemTables*s.opts.memTableBytes || m.Levels[0].Sublevels >= stallL0Sublevels
}

// failedCompaction is a compaction that has failed, and when.
type failedCompaction struct {
	at  time.Time
	err error
}

// compacted notes how a compaction has ended.
func (s *stall) compacted(err error) {
	if err != nil && !errors.Is(err, pebble.ErrCancelledCompaction) {
		s.failed.Store(&failedCompaction{time.Now(), err})
	}
	s.check()
}

// stuck returns nil, or why a stall is not going to end: compactions are behind,
// and fail because they cannot read. Writes that waited would take all workers
// with them, and reads could not go on.
func (s *Store) stuck(m *pebble.Metrics) error {
	failed := s.stall.failed.Load()
	if failed == nil || m.Levels[0].Sublevels < stallL0Sublevels {
		return nil
	}
	// Pebble leaves alone what it could not read, for five minutes if it is
	// corrupt and for 30 seconds otherwise.
	lasts := 40 * time.Second
	if pebble.IsCorruptionError(failed.err) {
		lasts = 6 * time.Minute
	}
	if time.Since(failed.at) > lasts {
		return nil
	}
	return fmt.Errorf("too many tables wait for compactions, which fail: %w%s", failed.err, advice(failed.err))
}

// stillStuck is stuck for a store that tries to come back. One that is being closed
// needs no compactions.
func (s *Store) stillStuck() error {
	select {
	case <-s.closing:
		return nil
	default:
	}
	failed, _ := s.health.watch()
	if m := s.askUntil(failed); m != nil {
		return s.stuck(m)
	}
	return nil // the other failure tells
}

// gate is open until it is halted, and again when told to proceed.
type gate struct {
	mu   sync.Mutex
	wait chan struct{} // nil while open; closed by proceed
}

func (g *gate) halt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wait == nil {
		g.wait = make(chan struct{})
	}
}

func (g *gate) proceed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wait != nil {
		close(g.wait)
		g.wait = nil
	}
}

// halted returns nil if the gate is open, or what proceed will close.
func (g *gate) halted() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wait
}
