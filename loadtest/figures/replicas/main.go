// Command replicas compares one queue before several replicas with load balancers, in virtual time:
//
//	go run ./loadtest/figures/replicas -to 5
//	go run ./loadtest/figures/replicas -to 5 -scenario "one slow" -loads 0.8,1.2
//	go run ./loadtest/figures/replicas -dialogue
//
// Ten replicas do four requests at once each, in 10 ms in the mean, and an answer is good within 100 ms. It
// prints, for each load in parts of what they can do, how many answers are good of those that could be, and
// the 99th percentile of the latency of the good: medians over the seeds, and how far they go apart. With
// -dialogue it prints the published simulations of palantir/dialogue, and their figures beside.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

func main() {
	from := flag.Uint64("from", 1, "the first seed")
	to := flag.Uint64("to", 5, "the last seed")
	cpus := flag.Int("cpus", runtime.GOMAXPROCS(0), "how many experiments run at once")
	only := flag.String("scenario", "", "the scenario, all by default")
	way := flag.String("way", "", "those ways alone whose names contain this")
	at := flag.String("loads", "0.5,0.8,1.2,2,5", "multiples of what the replicas can do")
	dialogue := flag.Bool("dialogue", false, "the simulations of palantir/dialogue")
	flag.Parse()
	if *dialogue {
		printPublished(*from, *to)
		return
	}
	var loads []float64
	for s := range strings.SplitSeq(*at, ",") {
		load, err := strconv.ParseFloat(s, 64)
		if err != nil || !(load > 0 && load <= 100) {
			fmt.Fprintf(os.Stderr, "loads: %q is not a number above 0, up to 100\n", s)
			os.Exit(1)
		}
		loads = append(loads, load)
	}
	for _, s := range scenarios {
		if *only != "" && *only != s.name {
			continue
		}
		fmt.Printf("\n%s\n%-38s", s.name, "")
		for _, load := range loads {
			fmt.Printf("  %21s", fmt.Sprintf("%gx", load))
		}
		fmt.Println()
		for _, w := range ways {
			if !strings.Contains(w.name, *way) {
				continue
			}
			fmt.Printf("%-38s", w.name)
			for _, load := range loads {
				found := experiments(s, w, load, *from, *to, *cpus)
				var good, late []float64
				for _, f := range found {
					good, late = append(good, f.goodput), append(late, f.p99.Seconds()*1e3)
				}
				median, spread := middle(good), (slices.Max(good)-slices.Min(good))/2
				fmt.Printf("  %.3f ±%.3f %5.1f ms", median, spread, middle(late))
			}
			fmt.Println()
		}
	}
}

// figures are what an experiment came to.
type figures struct {
	goodput float64 // in parts of what could be good
	p99     time.Duration
}

// experiments runs a scenario with the seeds.
func experiments(s scenario, w way, load float64, from, to uint64, cpus int) []figures {
	found := make([]figures, to-from+1)
	var all sync.WaitGroup
	turns := make(chan struct{}, cpus)
	for i := range found {
		turns <- struct{}{}
		all.Go(func() {
			found[i] = s.run(w, load, from+uint64(i))
			<-turns
		})
	}
	all.Wait()
	return found
}

// middle returns the median.
func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// way is how requests come to replicas.
type way struct {
	name     string
	balance  string // none for one queue
	strategy string
	// learned says that each replica is given as many as a law finds. Otherwise it is given as many as it
	// works at or, behind a balancer, all.
	learned bool
}

// ways are one queue, and the balancers: with a queue in each replica, and with a proxy before each.
var ways = func() []way {
	all := []way{
		{"one queue, auto, learned", "", "auto", true},
		{"one queue, auto, told", "", "auto", false},
		{"one queue, fifo, learned", "", "fifo", true},
	}
	for _, b := range []string{sim.RoundRobin, sim.Random, sim.LeastOutstanding, sim.PowerOfTwo, sim.Prequal} {
		all = append(all, way{b, b, "unbounded", false}, way{b + ", a learned auto each", b, "auto", true})
	}
	return all
}()

// Times of an experiment.
const (
	warmup = 10 * time.Second
	length = 30 * time.Second
	change = warmup + 5*time.Second // when something happens
	mean   = 10 * time.Millisecond
)

// replica is what a scenario says of one. Times are since the begin of the experiment.
type replica struct {
	hands   int
	from    time.Duration
	speed   func(now time.Duration) float64 // 1 if nil
	stops   span
	refuses span
	fails   span
}

// span is a time in which something is so.
type span struct{ from, to time.Duration }

func (s span) contains(at time.Duration) bool { return at >= s.from && at < s.to }

// capacity returns how many requests a second it can do then.
func (r replica) capacity(now time.Duration) float64 {
	if now < r.from || r.stops.contains(now) || r.refuses.contains(now) || r.fails.contains(now) {
		return 0
	}
	return float64(r.hands) * r.pace(now) / mean.Seconds()
}

func (r replica) pace(now time.Duration) float64 {
	if r.speed == nil {
		return 1
	}
	return r.speed(now)
}

// took is how long a request takes that begins then.
func (r replica) took(now time.Duration, _ int, work time.Duration) time.Duration {
	if r.fails.contains(now) {
		return time.Millisecond
	}
	took := time.Duration(float64(work) / r.pace(now))
	switch {
	case r.stops.contains(now):
		took += r.stops.to - now
	case r.stops.contains(now+took) || now < r.stops.from && now+took >= r.stops.to:
		took += r.stops.to - r.stops.from
	}
	return took
}

func (r replica) code(began time.Duration, _, _ int) int {
	if r.fails.contains(began) {
		return 500
	}
	return 200
}

type scenario struct {
	name     string
	replicas []replica
}

// run does the experiment.
func (s scenario) run(w way, load float64, seed uint64) figures {
	u := sim.Replicas{
		Work: sim.Exponential(mean), Balance: w.balance, Strategy: w.strategy, Objective: 100 * time.Millisecond,
		Warmup: warmup, Length: length, Seed: seed,
	}
	u.Limiter = func(i int) sim.Limiter {
		switch {
		case w.learned:
			return judge.NewLearned()
		case w.balance != "":
			return sim.Fixed(1 << 30)
		}
		return sim.Fixed(s.replicas[i].hands)
	}
	for _, r := range s.replicas {
		u.Of = append(u.Of, sim.Replica{Hands: r.hands, From: r.from, Took: r.took, Code: r.code, Refuses: r.refuses.contains})
		u.Rate += load * r.capacity(warmup+length)
	}
	out := u.Run()
	possible, offered := 0., float64(out.Offered)/length.Seconds()
	const step = 10 * time.Millisecond
	for at := warmup; at < warmup+length; at += step {
		capacity := 0.
		for _, r := range s.replicas {
			capacity += r.capacity(at)
		}
		possible += min(capacity, offered) * step.Seconds()
	}
	return figures{float64(out.Good) / possible, out.P(99)}
}

// with returns ten replicas, of which the first is different.
func with(first replica) []replica {
	all := slices.Repeat([]replica{{hands: 4}}, 10)
	first.hands = cmp.Or(first.hands, 4)
	all[0] = first
	return all
}
