package pebble

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler lets as many compactions run as Pebble allows, as Pebble's own does. It
// differs in two things. Where one has failed, the place of one that ends then is not
// given on at once: Pebble repeats what fails without a pause, for ever if a table
// cannot be read. And it can be stopped by who has made it, since Pebble does not
// when it fails to open.
type scheduler struct {
	rest time.Duration // after a failure

	db   pebble.DBForCompaction
	poke chan struct{} // holds a token while there may be something to grant
	stop chan struct{} // closed by Unregister
	once sync.Once
	loop sync.WaitGroup

	mu      sync.Mutex
	running int
	failed  time.Time // the latest failure
	stopped bool
}

var (
	_ pebble.CompactionScheduler   = (*scheduler)(nil)
	_ pebble.CompactionGrantHandle = (*scheduler)(nil)
)

func newScheduler(rest time.Duration) *scheduler {
	return &scheduler{rest: rest, poke: make(chan struct{}, 1), stop: make(chan struct{})}
}

// fail notes that background work has failed.
func (s *scheduler) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = time.Now()
}

// Register is called by Pebble once it is nearly open.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) {
	s.db = db
	s.loop.Go(s.grantLoop)
}

// Unregister ends all calls of Pebble. It may be called again.
func (s *scheduler) Unregister() {
	s.once.Do(func() {
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		close(s.stop)
	})
	s.loop.Wait()
}

// TrySchedule is called with Pebble's locks held.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	return s.take(), s
}

// take takes a place, if one is free.
func (s *scheduler) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.running >= s.db.GetAllowedWithoutPermission() {
		return false
	}
	s.running++
	return true
}

func (s *scheduler) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// UpdateGetAllowedWithoutPermission is called with Pebble's locks held.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// grantLoop grants what has to wait. It looks again now and then, as what Pebble
// allows changes without its saying so.
func (s *scheduler) grantLoop() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.poke:
		case <-tick.C:
		case <-s.stop:
			return
		}
		for s.take() {
			if waits, _ := s.db.GetWaitingCompaction(); !waits || !s.db.Schedule(s) {
				s.giveBack()
				break
			}
		}
	}
}

// Done is called at the end of each compaction, without locks.
func (s *scheduler) Done() {
	s.mu.Lock()
	wait := time.Until(s.failed.Add(s.rest))
	s.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.stop:
		}
	}
	s.giveBack()
	s.UpdateGetAllowedWithoutPermission()
}

// Started is of no interest.
func (*scheduler) Started() {}

// MeasureCPU is of no interest.
func (*scheduler) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats is of no interest.
func (*scheduler) CumulativeStats(pebble.CompactionGrantHandleStats) {}
