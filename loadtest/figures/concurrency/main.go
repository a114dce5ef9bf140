// Command concurrency judges the law that learns how many requests run at once, on
// random resources in virtual time, and shows where it does worst:
//
//	go run ./loadtest/figures/concurrency -from 1 -to 40
//	go run ./loadtest/figures/concurrency -steps 200
//	go run ./loadtest/figures/concurrency -from 1 -to 200 -below 0.8
//	go run ./loadtest/figures/concurrency -from 1 -to 20 -slow
//	go run ./loadtest/figures/concurrency -from 1 -to 40 -told
//	go run ./loadtest/figures/concurrency -from 1 -to 40 -class all
//	go run ./loadtest/figures/concurrency -from 1 -to 20 -shared
//
// The comparison with the laws of other libraries is in the module of loadtest/peers:
// learned.
package main

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

func main() {
	from := flag.Uint64("from", 1, "the first seed")
	to := flag.Uint64("to", 40, "the last seed")
	worst := flag.Int("worst", 20, "how many of the worst are shown")
	steps := flag.Int("steps", 0, "show how steps of the capacity are followed, in the mean of so many runs")
	below := flag.Float64("below", 0, "compare the mean latency with that without a limit, at this part of what can be done")
	slow := flag.Bool("slow", false, "show the first 30 s of a cold start with work of 2 s")
	told := flag.Bool("told", false, "show what one who knows the resource comes to, instead of one who learns it")
	class := flag.String("class", "plain", "the class of experiments, or all for what real clients do")
	shared := flag.Bool("shared", false, "have 2, 4 and 8 learners share each resource")
	flag.Parse()
	limiter := func() sim.Limiter { return judge.NewLearned() }
	if *told {
		limiter = func() sim.Limiter { return &sim.Told{} }
	}
	switch {
	case *steps > 0:
		for _, s := range judge.AllSteps() {
			fmt.Printf("%s, %vx: %.2f\n", s.Name, s.Load, s.Settled(*steps, limiter))
		}
	case *below > 0:
		r := judge.Latencies(*from, *to, *below, limiter)
		good, _ := slices.BinarySearch(r, 1.05)
		fmt.Printf("%vx: in %d of %d the mean latency is under 1.05 of that without a limit; median %.3f, worst %.3f\n",
			*below, good, len(r), r[len(r)/2], r[len(r)-1])
	case *slow:
		for _, work := range []sim.Distribution{sim.Constant(2 * time.Second), sim.Exponential(2 * time.Second)} {
			for _, hands := range []int{20, 50, 100} {
				for seed := *from; seed <= *to; seed++ {
					fmt.Printf("%v, %d hands: %.2f of what could be served in 30 s\n", work, hands, judge.Slow(hands, work, seed, limiter))
				}
			}
		}
	case *shared:
		share(*from, *to, limiter)
	default:
		compare(*class, *from, *to, *worst, limiter)
	}
}

// compare prints what a limiter comes to in a class of experiments, beside the best fixed numbers.
func compare(class string, from, to uint64, worst int, limiter func() sim.Limiter) {
	var bests judge.Bests
	for _, c := range append(judge.Classes(), judge.Plain()) {
		if class != c.Name && (class != "all" || c.Name == "plain") {
			continue
		}
		runs := judge.Runs(c, from, to, judge.Loads, runtime.GOMAXPROCS(0), &bests, limiter)
		for _, r := range runs[:min(worst, len(runs))] {
			u := c.Unknown(r.Seed, r.Load)
			u.Limiter = sim.Fixed(r.Best.N)
			fmt.Printf("%5d %.1fx %.3f of the best fixed, %d, of which %.1f%% are dropped; mean limit %.0f, %.1f%%: %v\n",
				r.Seed, r.Load, r.Ratio, r.Best.N, 100*u.Run().Dropped, r.Result.Limit, 100*r.Result.Dropped, u.Resource)
		}
		s := judge.Sum(runs)
		fmt.Printf("%s: %d runs: %d at 0.95 or more, %d under 0.85; mean %.3f, median %.3f\n", c.Name, s.Runs, s.Good, s.Bad, s.Mean, s.Median)
	}
}

// share prints what learners before one resource come to.
func share(from, to uint64, limiter func() sim.Limiter) {
	for _, s := range judge.AllShared() {
		var ratios, jains []float64
		good := 0
		for seed := from; seed <= to; seed++ {
			for _, load := range judge.Loads {
				r := s.Run(seed, load, limiter)
				ratios, jains = append(ratios, r.Ratio), append(jains, r.Jain)
				if r.Ratio >= 0.85 && r.Jain >= 0.9 {
					good++
				}
			}
		}
		slices.Sort(ratios)
		slices.Sort(jains)
		n := len(ratios)
		fmt.Printf("%+v: %d of %d good; in all, worst tenth %.3f, median %.3f; Jain's index, worst tenth %.3f, median %.3f\n",
			s, good, n, ratios[n/10], ratios[n/2], jains[n/10], jains[n/2])
	}
}
