package strategies_test

import (
	"testing"

	"spillway/strategies"
	"spillway/strategies/strategytest"
)

// BenchmarkPushPop compares all strategies that have a queue with each other
// and with a Go channel. The module in loadtest/peers does the same with queues
// of other libraries.
func BenchmarkPushPop(b *testing.B) {
	for _, m := range models {
		strategytest.Benchmark(b, lookup(b, m.name))
	}
	strategytest.Benchmark(b, strategies.Spec{Name: "channel", New: newChannel})
}

// channel is a Go channel as a discipline. It does not keep all rules: it
// cannot remove a task.
type channel chan *strategies.Task

func newChannel(c strategies.Config) strategies.Discipline {
	return make(channel, c.Capacity)
}

func (q channel) Push(t *strategies.Task, _ int64) strategies.Verdict {
	select {
	case q <- t:
		return strategies.Verdict{Outcome: strategies.Queued}
	default:
		return turnedAway
	}
}

func (q channel) Pop(int64) (*strategies.Task, strategies.Popped, strategies.Reason) {
	select {
	case t := <-q:
		return t, strategies.Run, strategies.ReasonNone
	default:
		return nil, strategies.Empty, strategies.ReasonNone
	}
}

func (q channel) Len() int { return len(q) }

func (q channel) Cap() int { return cap(q) }
