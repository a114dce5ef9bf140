package pebble

import (
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

// totals are the totals of instances that were replaced.
type totals struct {
	compactions uint64
}

func (t *totals) add(m *pebble.Metrics) { t.compactions += uint64(m.Compact.Count) }

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
	select {
	case m := <-s.request():
		return m
	case <-failed:
		return nil
	}
}

// request asks Pebble for its figures. What it returns will hold them, or nil if the store
// is closed.
func (s *Store) request() <-chan *pebble.Metrics {
	answer := make(chan *pebble.Metrics, 1)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		answer <- nil
		return answer
	}
	inst := s.cur
	inst.acquire()
	s.asking.Add(1)
	go func() {
		defer s.asking.Done()
		defer inst.release()
		answer <- inst.db.Metrics()
	}()
	return answer
}

// Stats returns the store's figures. While the store cannot write, while the disk hangs
// and after Close, they are those of the last call before, but for the space that is left.
func (s *Store) Stats() Stats {
	// The lock is held throughout, so that no instance is counted twice.
	s.figures.Lock()
	defer s.figures.Unlock()
	if m := s.askBriefly(); m != nil {
		free := s.figures.last.DiskFreeBytes
		s.figures.last = s.stats(m)
		s.figures.last.DiskFreeBytes = free
	}
	s.figures.last.Values = s.values.Stats()
	// It matters most while the store cannot be asked because the disk is full.
	if usage, err := s.opts.FS.GetDiskUsage(s.opts.Dir); err == nil {
		s.figures.last.DiskFreeBytes = usage.AvailBytes
	}
	return s.figures.last
}

// askBriefly is ask for those who must not hang with the disk. A request that gets no
// answer in time stays the only one until it does. It needs the lock of figures.
func (s *Store) askBriefly() *pebble.Metrics {
	failed, reason := s.health.watch()
	if reason != nil {
		return nil
	}
	if s.figures.hangs != nil {
		select {
		case <-s.figures.hangs: // the disk goes on; what it has answered may be old
			s.figures.hangs = nil
		default:
			return nil
		}
	}
	answer := s.request()
	timer := time.NewTimer(s.opts.statsPatience)
	defer timer.Stop()
	select {
	case m := <-answer:
		return m
	case <-failed:
	case <-timer.C:
		s.figures.hangs = answer
	}
	return nil
}

// stats needs the lock of figures.
func (s *Store) stats(m *pebble.Metrics) Stats {
	stats := Stats{
		Compactions:         s.figures.retired.compactions + uint64(m.Compact.Count),
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
	return stats
}
