package main

import (
	"context"
	"math"
	"runtime/debug"
	"time"

	"github.com/spillway-go/spillway/internal/values"
)

// limitMemory tells the garbage collector how much memory it may let the
// process use, unless GOMEMLIMIT does. A tenth of the memory is left for what
// the collector does not see: stacks of threads, the kernel's buffers. With
// cgo, Pebble keeps its cache and the memtables that count towards it outside
// of the Go heap, so that they come off as well, and twice: blocks in use that
// were evicted and what malloc does not give back take as much again. The cache of
// values is outside in any case where it is mapped, and takes what it may and no more.
//
// It returns the limit, 0 if there is GOMEMLIMIT.
func limitMemory(memory, cache int64) int64 {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return 0
	}
	limit := memory / 10 * 9
	blocks, kept := shareCache(cache)
	outside := int64(0)
	if cacheOutsideHeap {
		outside += 2 * blocks
	}
	if values.OutsideHeap {
		outside += kept
	}
	if outside > 0 {
		limit = max(limit-outside, memory/4)
	}
	debug.SetMemoryLimit(limit)
	return limit
}

// leaveSockets lowers the collector's limit by what lies in sockets, which the kernel
// charges to the same group, each second until ctx ends, but to no less than a half.
func leaveSockets(ctx context.Context, limit int64, inSockets func() int64, set func(limit int64)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := limit; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := max(limit-inSockets(), limit/2)
		if change := now - last; change > limit/64 || -change > limit/64 { // each stops the world for a moment
			set(now)
			last = now
		}
	}
}
