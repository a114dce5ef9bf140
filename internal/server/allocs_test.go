//go:build !race

// The race detector allocates.

package server

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
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

// Bodies that are not in the reader lie in buffers which others have left: a
// request with one allocates no room for it.
func TestAllocations_Bodies(t *testing.T) {
	s := serveConstant(t, "fifo")
	const put = "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n"
	for _, request := range []string{
		put + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", 1000, strings.Repeat("v", 1000)),
		put + "Content-Length: 4500\r\n\r\n" + strings.Repeat("v", 4500),
		put + "Content-Length: 60000\r\n\r\n" + strings.Repeat("v", 60_000),
	} {
		e := newExchanger(t, s, request)
		const runs = 2000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			require.NoError(t, e.do())
		}
		runtime.ReadMemStats(&after)
		// What is lent is noted in a few bytes, and the collector empties pools now
		// and then.
		require.Less(t, (after.TotalAlloc-before.TotalAlloc)/runs, uint64(400), "%.100s", request)
	}
}
