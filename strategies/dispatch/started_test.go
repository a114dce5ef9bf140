package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A task tells its submitter when it was started, so that the time that it
// waited and the time that it ran can be told apart.
func TestTask_Started(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Capacity: 2})
		defer s.close()
		time.Sleep(time.Second)
		first := s.submit("slow") // handed to a worker
		second := s.submit("b")
		expiring := s.submit("c", within(time.Minute))
		turnedAway := s.submit("d")
		time.Sleep(time.Hour)
		s.end("slow")
		require.Equal(t, int64(time.Second), first.Started)
		require.Equal(t, int64(time.Second+time.Hour), second.Started)
		require.Zero(t, expiring.Started, "expired")
		require.Zero(t, turnedAway.Started, "turned away")

		// Used again, it says nothing of its former life.
		second.Deadline = s.Now()
		s.Submit(second)
		synctest.Wait()
		require.Zero(t, second.Started)

		require.NoError(t, s.Switch("sync"))
		inline := s.submit("e")
		require.Equal(t, inline.Submitted, inline.Started, "run by its submitter")
	})
}
