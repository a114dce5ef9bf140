//go:build !race

// The race detector allocates.

package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"spillway/strategies"
)

// Serving small requests allocates nothing once a connection has been used.
func TestAllocations(t *testing.T) {
	for _, strategy := range strategies.Names() {
		if strategy == "unbounded" {
			continue // its queue is linked
		}
		s := serveConstant(t, strategy)
		for name, request := range benchRequests {
			e := newExchanger(t, s, request)
			// A few in a thousand are pools that the collector has emptied.
			perRun := testing.AllocsPerRun(2000, func() {
				if err := e.do(); err != nil {
					t.Error(err)
				}
			})
			require.LessOrEqual(t, perRun, 0.0, "%s %s", strategy, name)
		}
	}
}
