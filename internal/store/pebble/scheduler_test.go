package pebble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"
)

// compacting is a Pebble that always has a compaction to run, and is allowed two.
type compacting struct{ granted int }

func (*compacting) GetAllowedWithoutPermission() int { return 2 }

func (*compacting) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	return true, pebble.WaitingCompaction{}
}

func (c *compacting) Schedule(pebble.CompactionGrantHandle) bool {
	c.granted++
	return true
}

// What fails is not repeated at once, what succeeds is followed at once, and a stop
// waits for nobody who rests.
func TestScheduler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, db := newScheduler(time.Second), new(compacting)
		s.Register(2, db)
		s.UpdateGetAllowedWithoutPermission()
		synctest.Wait()
		require.Equal(t, 2, db.granted)
		ok, _ := s.TrySchedule()
		require.False(t, ok, "no more than is allowed")

		start := time.Now()
		s.Done()
		synctest.Wait()
		require.Equal(t, 3, db.granted)
		require.Zero(t, time.Since(start))

		s.fail()
		s.Done()
		synctest.Wait()
		require.Equal(t, 4, db.granted)
		require.Equal(t, time.Second, time.Since(start))

		s.fail()
		go s.Unregister()
		s.Done()
		s.Unregister()
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, 4, db.granted)
		ok, _ = s.TrySchedule()
		require.False(t, ok)
	})
}
