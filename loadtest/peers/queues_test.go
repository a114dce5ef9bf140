package peers

import (
	"testing"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/strategytest"
)

// BenchmarkPushPop is the benchmark of the same name in github.com/spillway-go/spillway/strategies,
// over queues of other libraries, with Spillway's ring and its simplest queue
// for comparison.
func BenchmarkPushPop(b *testing.B) {
	strategytest.Benchmark(b, strategies.Spec{Name: "xsync", New: newXsync})
	for _, name := range []string{"mpmc", "fifo"} {
		spec, err := strategies.Lookup(name)
		if err != nil {
			b.Fatal(err)
		}
		strategytest.Benchmark(b, spec)
	}
}

// xsyncQueue is xsync's MPMCQueue as a discipline. It is one for this
// benchmark's sake alone: its capacity is rounded up to a power of two, `full`
// may also mean that a race was lost, and a task cannot be removed.
type xsyncQueue struct {
	*xsync.MPMCQueue[*strategies.Task]
	capacity int
}

func newXsync(c strategies.Config) strategies.Discipline {
	return xsyncQueue{xsync.NewMPMCQueue[*strategies.Task](c.Capacity), c.Capacity}
}

func (q xsyncQueue) Push(t *strategies.Task, _ int64) strategies.Verdict {
	if q.TryEnqueue(t) {
		return strategies.Verdict{Outcome: strategies.Queued}
	}
	return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
}

func (q xsyncQueue) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if t, ok := q.TryDequeue(); ok {
		return t, strategies.Run, strategies.ReasonNone
	}
	return nil, strategies.Empty, strategies.ReasonNone
}

// Len is not known.
func (q xsyncQueue) Len() int { return 0 }

func (q xsyncQueue) Cap() int { return q.capacity }
