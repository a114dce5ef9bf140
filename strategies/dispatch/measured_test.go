package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The gauges tell what a strategy decides by, if it has measured anything.
func TestGauges_Measured(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "auto", Capacity: 100})
		defer s.close()
		g := s.Gauges()[0]
		require.Equal(t, 64, g.Limit)
		require.Zero(t, g.Pace, "nothing has waited yet")

		s.submit("slow")
		s.submit("slow-2")
		time.Sleep(4 * time.Millisecond)
		s.end("slow")
		require.Equal(t, 4*time.Millisecond, s.Gauges()[0].Pace)

		require.NoError(t, s.Switch("fifo"))
		for _, g := range s.Gauges() {
			if g.Strategy == "fifo" {
				require.Zero(t, g.Limit)
				require.Zero(t, g.Pace)
			}
		}
	})
}
