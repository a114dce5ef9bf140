package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A simulation of any length ends when it is told to.
func TestRun_Stop(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	served := 0
	err := Run(Config{
		Strategy: "fifo", Service: Constant(time.Millisecond),
		Duration: 1000 * time.Hour, Stop: stop,
		Observe: func(Record) {
			if served++; served == 100 {
				close(stop)
			}
		},
	}.asked(poisson(4000)))
	require.ErrorIs(t, err, ErrStopped)
	require.Less(t, served, 100+stepsPerLook)
}
