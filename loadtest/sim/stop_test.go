//go:build !race

package sim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A simulation of any length ends when it is told to.
func TestRun_Stop(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	served := 0
	err := Run(ctx, Config{
		Strategy: "fifo", Service: Constant(time.Millisecond),
		Duration: 1000 * time.Hour,
		Observe: func(Record) {
			if served++; served == 100 {
				stop()
			}
		},
	}.asked(poisson(4000)))
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, served, 100+stepsPerLook)
}
