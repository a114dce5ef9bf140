// Command learned compares laws that learn how many requests run at once: Spillway's, those
// of platinummonkey/go-concurrency-limits with their defaults, and numbers that nobody
// learns. All get the same random resources, with auto in front, in virtual time:
//
//	go run ./cmd/learned -from 3001 -to 3200
//
// It writes a Markdown table.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

// passive is a limit of go-concurrency-limits.
type passive struct{ of core.Limit }

func (p passive) Limit() int { return max(1, p.of.EstimatedLimit()) }

func (p passive) Ended(e sim.Ended) {
	p.of.OnSample(e.Began, max(1, e.Now-e.Began), e.Running, e.Dropped)
}

// peers are what is compared, in the order of the table.
var peers = []struct {
	name string
	make func() sim.Limiter
}{
	{"Spillway", func() sim.Limiter { return judge.NewLearned() }},
	{"gradient2", func() sim.Limiter {
		return passive{of: limit.NewDefaultGradient2Limit("", nil, core.EmptyMetricRegistryInstance)}
	}},
	{"Vegas", func() sim.Limiter {
		return passive{of: limit.NewDefaultVegasLimit("", nil, core.EmptyMetricRegistryInstance)}
	}},
	{"AIMD", func() sim.Limiter {
		return passive{of: limit.NewDefaultAIMDLimit("", core.EmptyMetricRegistryInstance)}
	}},
	{"fixed: 2 × 2 CPUs", func() sim.Limiter { return sim.Fixed(4) }},
	{"fixed: 100", func() sim.Limiter { return sim.Fixed(100) }},
}

func main() {
	from := flag.Uint64("from", 1, "the first seed")
	to := flag.Uint64("to", 40, "the last seed")
	cpus := flag.Int("cpus", runtime.GOMAXPROCS(0), "how many experiments run at once")
	file := flag.String("bests", "", "a file to remember the best fixed numbers in")
	flag.Parse()
	bests, err := judge.OpenBests(*file)
	if err != nil {
		fail(err)
	}
	fmt.Println("| law | ≥ 0.95 of the best fixed | < 0.85 | mean | median |\n|---|---|---|---|---|")
	for _, p := range peers {
		s := judge.Sum(judge.Runs(judge.Plain(), *from, *to, judge.Loads, *cpus, bests, p.make))
		fmt.Printf("| %s | %d of %d | %d | %.3f | %.3f |\n", p.name, s.Good, s.Runs, s.Bad, s.Mean, s.Median)
	}
	if err := bests.Save(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
