package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The gauge tells what a strategy decides by, if it has measured anything.
func TestGauge_Measured(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "auto", Capacity: 100})
		defer s.close()
		g := s.Gauge()
		require.Zero(t, g.Limit, "nothing has waited yet")
		require.Zero(t, g.Pace)

		s.submit("slow")
		s.submit("slow-2")
		time.Sleep(4 * time.Millisecond)
		s.end("slow")
		g = s.Gauge()
		require.Equal(t, 4*time.Millisecond, g.Pace)
		require.Equal(t, 3*24, g.Limit, "100 ms less the work are 24 such, of which not much is known")

		require.NoError(t, s.Switch("fifo"))
		g = s.Gauge()
		require.Zero(t, g.Limit)
		require.Zero(t, g.Pace)
	})
}
