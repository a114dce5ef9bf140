package main

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeaveSockets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var sockets, limit atomic.Int64
		limit.Store(900)
		go leaveSockets(ctx, 900, sockets.Load, limit.Store)
		for _, row := range []struct{ sockets, want int64 }{
			{0, 900}, {10, 900}, {66, 834}, {70, 834}, {300, 600}, {10_000, 450}, {0, 900},
		} {
			sockets.Store(row.sockets)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, row.want, limit.Load(), "with %d in sockets", row.sockets)
		}
		stop()
	})
}
