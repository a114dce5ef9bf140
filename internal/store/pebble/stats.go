package pebble

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/spillway-go/spillway/internal/values"
)

// Stats is a snapshot of the store's figures. Those called totals only grow
// while the store is open.
type Stats struct {
	// Compactions is the total of compactions.
	Compactions uint64
	// Levels are the tables by level, L0 first.
	Levels [7]Level
	// ReadAmplification is how many places a point read may have to look at.
	ReadAmplification int
	// CacheHits and CacheMisses are the totals of the block cache.
	CacheHits, CacheMisses uint64
	// Values are those of the cache of values.
	Values values.Stats
	// DiskBytes is the space that the store takes, log included.
	DiskBytes uint64
	// DiskFreeBytes is the space that is left for it on its file system.
	DiskFreeBytes uint64
	// WriteStalls is the total of times that writes had to wait for flushes or
	// compactions.
	WriteStalls uint64
	// WriteStallTime is the total of the time for which they had to, the present
	// stall included.
	WriteStallTime time.Duration
	// MemTableBytes is the memory of all memtables.
	MemTableBytes uint64
	// CompactionDebtBytes estimates what compactions have to rewrite until the
	// tree is in shape.
	CompactionDebtBytes uint64
}

// Level is one level of the tree.
type Level struct {
	Bytes uint64
	Files uint64
}

// answer is the latest answer to a question that the disk may hang on. One is asked at a
// time, and who asks meanwhile waits for it, but for no longer than his patience.
type answer[T any] struct {
	mu    sync.Mutex
	last  T
	ready chan struct{} // closed when the question is answered; nil if none is asked
	hangs bool          // somebody has lost his patience over it
}

// get returns what ask says, or what was said last if that takes too long or until failed is
// closed, or ask is nil.
func (a *answer[T]) get(ask func() (T, bool), patience time.Duration, failed <-chan struct{}) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ask == nil {
		return a.last
	}
	if a.ready == nil {
		ready := make(chan struct{})
		a.ready, a.hangs = ready, false
		go func() {
			said, ok := ask()
			a.mu.Lock()
			defer a.mu.Unlock()
			if ok && !a.hangs { // what was said late may be old
				a.last = said
			}
			a.ready = nil
			close(ready)
		}()
	}
	if ready := a.ready; !a.hangs {
		a.mu.Unlock()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late := false
		select {
		case <-ready:
		case <-failed:
			late = true
		case <-timer.C:
			late = true
		}
		a.mu.Lock()
		a.hangs = a.hangs || late && a.ready == ready
	}
	return a.last
}

// ask returns Pebble's figures, or nil if they are not to be had at the moment:
// Pebble waits for a change of its manifest to give them, and while the disk
// fails that may take as long as the failure.
func (s *Store) ask() *pebble.Metrics {
	failed, reason := s.health.watch()
	if reason != nil {
		return nil
	}
	return s.askUntil(failed)
}

// askUntil is ask, but only gives up when failed is closed.
func (s *Store) askUntil(failed <-chan struct{}) *pebble.Metrics {
	inst, err := s.acquire()
	if err != nil {
		return nil
	}
	answer := make(chan *pebble.Metrics, 1)
	go func() {
		defer inst.release()
		answer <- inst.db.Metrics()
	}()
	select {
	case m := <-answer:
		return m
	case <-failed:
		return nil
	}
}

// Stats returns the store's figures. While the store cannot write, while the disk hangs
// and after Close, those of Pebble and of the space that is left are of before.
func (s *Store) Stats() Stats {
	// It matters most while Pebble cannot be asked because the disk is full.
	free := s.free.get(func() (uint64, bool) {
		usage, err := s.opts.FS.GetDiskUsage(s.opts.Dir)
		return usage.AvailBytes, err == nil
	}, s.opts.statsPatience, nil)
	ask := s.askPebble
	failed, reason := s.health.watch()
	if reason != nil {
		ask = nil
	}
	stats := s.figures.get(ask, s.opts.statsPatience, failed)
	stats.DiskFreeBytes, stats.Values = free, s.values.Stats()
	return stats
}

// askPebble returns those figures that are Pebble's, or false if it is not to be asked.
func (s *Store) askPebble() (Stats, bool) {
	inst, err := s.acquire()
	if err != nil {
		return Stats{}, false
	}
	defer inst.release()
	m := inst.db.Metrics()
	stats := Stats{
		Compactions:         inst.compactions + uint64(m.Compact.Count),
		ReadAmplification:   m.ReadAmp(),
		CacheHits:           uint64(m.BlockCache.Hits),
		CacheMisses:         uint64(m.BlockCache.Misses),
		DiskBytes:           m.DiskSpaceUsage(),
		WriteStalls:         uint64(s.stall.count.Load()),
		WriteStallTime:      s.stall.lasted(time.Now()),
		MemTableBytes:       m.MemTable.Size,
		CompactionDebtBytes: m.Compact.EstimatedDebt,
	}
	for i, l := range m.Levels {
		stats.Levels[i] = Level{Bytes: uint64(l.TablesSize), Files: uint64(l.TablesCount)}
	}
	return stats, true
}
