// Package judge compares what decides how many requests run at once, on random resources
// of which it does not know what they can do: each against the best fixed number, which
// a search finds for the same resource, load and seed.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// Loads are the multiples of what a resource can do that laws are judged at.
var Loads = []float64{1.2, 2, 5}

// Learned is Spillway's law as a limiter.
type Learned struct {
	*concurrency.Law
	objective *time.Duration
}

// NewLearned returns it without bounds.
func NewLearned() Learned {
	l := Learned{objective: new(time.Duration)}
	law, err := concurrency.New(concurrency.Options{Objective: func() time.Duration { return *l.objective }})
	if err != nil {
		panic(err) // there are no bounds that could cross
	}
	l.Law = law
	return l
}

// Aim tells the law of the objective.
func (l Learned) Aim(objective time.Duration) { *l.objective = objective }

// Ended tells the law of a request that has ended.
func (l Learned) Ended(e sim.Ended) {
	l.Completed(concurrency.Sample(e))
}

// Best is the best fixed number for an experiment, and its goodput.
type Best struct {
	N       int
	Goodput float64
}

// Bests remembers what searches have found, which takes longer than all else. The zero value
// is ready for use, by several goroutines at once.
type Bests struct{ of sync.Map } // Best by what fmt says of an experiment

// Of returns the best fixed number for an experiment.
func (b *Bests) Of(u sim.Unknown) Best {
	key := fmt.Sprint(u.Resource, u.Load, u.Seed, u.Warmup, u.Length, u.Clients, u.Phases)
	if best, ok := b.of.Load(key); ok {
		return best.(Best)
	}
	n, r := u.BestFixed()
	best := Best{n, r.Goodput}
	b.of.Store(key, best)
	return best
}

// Run is one experiment with one limiter.
type Run struct {
	Seed   uint64
	Load   float64
	Best   Best
	Ratio  float64 // of the best fixed number's goodput
	Result sim.UnknownResult
}

// Runs runs a limiter on the experiments of a class and of seeds, at the loads, on so many
// CPUs. The result is ordered, the worst first.
func Runs(c Class, from, to uint64, loads []float64, cpus int, bests *Bests, limiter func() sim.Limiter) []Run {
	var (
		mu   sync.Mutex
		runs []Run
		wg   sync.WaitGroup
	)
	work := make(chan sim.Unknown)
	for range max(1, cpus) {
		wg.Go(func() {
			for u := range work {
				r := Run{Seed: u.Seed, Load: u.Load, Best: bests.Of(u)}
				u.Limiter = limiter()
				r.Result = u.Run()
				r.Ratio = ratio(r.Result.Goodput, r.Best.Goodput)
				mu.Lock()
				runs = append(runs, r)
				mu.Unlock()
			}
		})
	}
	for seed := from; seed <= to; seed++ {
		for _, load := range loads {
			work <- c.Unknown(seed, load)
		}
	}
	close(work)
	wg.Wait()
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Ratio, b.Ratio), cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Load, b.Load))
	})
	return runs
}

// ratio returns what part of a goodput another is: 1 if nothing can be good.
func ratio(goodput, of float64) float64 {
	if of == 0 {
		return 1
	}
	return goodput / of
}

// Latencies returns the mean latency under a limiter, in parts of that without a limit, on
// the resources of seeds at a load below what they can do. The least comes first. It is 0
// where less is good without a limit, so that the latency is of few.
func Latencies(from, to uint64, load float64, limiter func() sim.Limiter) (all []float64) {
	for seed := from; seed <= to; seed++ {
		u := Plain().Unknown(seed, load)
		u.Limiter = sim.Fixed(1 << 20)
		free := u.Run()
		u.Limiter = limiter()
		limited := u.Run()
		if free.Latency == 0 || free.Goodput <= 0.95*limited.Goodput {
			all = append(all, 0)
		} else {
			all = append(all, float64(limited.Latency)/float64(free.Latency))
		}
	}
	slices.Sort(all)
	return all
}

// Summary is what runs came to.
type Summary struct {
	Runs, Good, Bad int     // at least 0.95 of the best fixed number, and less than 0.85
	Mean, Median    float64 // of the ratio
}

// Sum sums up runs, which are ordered as those of Runs.
func Sum(runs []Run) Summary {
	s := Summary{Runs: len(runs)}
	for i := range runs {
		r := &runs[i]
		s.Mean += r.Ratio / float64(len(runs))
		if r.Ratio >= 0.95 {
			s.Good++
		}
		if r.Ratio < 0.85 {
			s.Bad++
		}
	}
	if len(runs) > 0 {
		s.Median = runs[len(runs)/2].Ratio
	}
	return s
}
