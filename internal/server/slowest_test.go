package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/slowest"
)

// Slow requests are remembered with where their time went, and without their
// keys. Those that never reached the queue are not.
func TestSlowest(t *testing.T) {
	t.Parallel()
	b := serveBusy(t, "fifo")
	busySince := time.Now()
	waiter, shed := b.dial(), b.dial()
	waiter.send("PUT /v0/entity?id=abc" + host + "Content-Length: 5\n\nvalue")
	b.waiting(1)
	shed.send("GET /v0/entities?start=k" + host + "Spillway-Timeout-Ms: 1\n\n")
	require.Equal(t, 504, shed.read("GET").status)
	require.Equal(t, 400, b.dial().do(get("/nowhere")).status)
	busyFor := time.Since(busySince)
	b.free()
	require.Equal(t, 201, waiter.read("PUT").status)

	var list []slowest.Request
	eventually(t, func() bool { // an answer is counted after it was sent
		list = b.opts.Slowest.List(b.dispatcher.Now())
		return len(list) == 3
	}, "slow requests")
	for _, q := range list {
		require.Equal(t, q.Took, q.Received+q.Waited+q.Ran)
		require.Equal(t, "fifo", q.Strategy)
		switch q.Code {
		case 404: // the one that kept the worker busy
			require.GreaterOrEqual(t, q.Ran, busyFor)
		case 201:
			require.Equal(t, "PUT", q.Method)
			require.Equal(t, 3, q.KeyBytes)
			require.Equal(t, 5, q.ValueBytes)
			require.Positive(t, q.Waited)
			require.Positive(t, q.Ran)
		case 504:
			require.True(t, q.Range)
			require.Equal(t, "expired", q.Shed)
			require.Positive(t, q.Waited)
			require.Zero(t, q.Ran)
		default:
			t.Errorf("the status %d is not expected", q.Code)
		}
	}
}
