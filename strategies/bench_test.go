package strategies_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/strategytest"
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

// BenchmarkDepth takes a task out of a queue in which so many wait, and puts one
// in: what a request costs should not depend on how long the queue is. The tasks
// differ in their deadlines, priorities and clients. A queue that keeps itself
// shorter tells, in the metric waiting.
func BenchmarkDepth(b *testing.B) {
	for _, m := range models {
		for _, depth := range []int{0, 100, 10_000, 100_000} {
			b.Run(fmt.Sprintf("strategy=%s/depth=%d", m.name, depth), func(b *testing.B) {
				q := lookup(b, m.name).New(strategies.Config{Capacity: 1 << 17, Workers: 4})
				tasks := make([]strategies.Task, depth+1)
				for i := range tasks {
					scattered := uint32(i) * 2654435761
					tasks[i] = strategies.Task{
						Deadline: 1e12 + int64(scattered), Priority: strategies.Urgency(int(scattered >> 29)),
						Client: fmt.Sprint(scattered % 100),
					}
				}
				for i := range depth {
					q.Push(&tasks[i], 1)
				}
				waiting, next := q.Len(), &tasks[depth]
				r := rand.New(rand.NewPCG(1, 2))
				b.ReportAllocs()
				for b.Loop() {
					next.Deadline = 1e12 + int64(r.Uint32())
					if v := q.Push(next, 1); v.Displaced != nil {
						next = v.Displaced
						continue
					}
					if t, _, _ := q.Pop(1); t != nil {
						next = t
					}
				}
				b.ReportMetric(float64(waiting), "waiting")
			})
		}
	}
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

func (q channel) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	select {
	case t := <-q:
		return t, strategies.Run, strategies.ReasonNone
	default:
		return nil, strategies.Empty, strategies.ReasonNone
	}
}

func (q channel) Len() int { return len(q) }

func (q channel) Cap() int { return cap(q) }
