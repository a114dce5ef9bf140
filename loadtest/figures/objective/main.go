// Command objective compares auto with the other strategies in virtual time: numbers of
// workers, kinds of work, connections, loads and objectives, thousands of cells in all. It
// prints, as Markdown, in how many cells auto has nearly the goodput of whichever strategy is
// best there, whom it refuses without need, and the worst cells.
//
//	go run ./loadtest/figures/objective -sample 300   # some seconds
//	go run ./loadtest/figures/objective               # all cells, some minutes
//	go run ./loadtest/figures/objective -lax 3        # auto is told three times the objective
//	go run ./loadtest/figures/objective -only '64 connections, 2x'
//
// Goodput is judged by two clocks: one begins when a request arrives at the service, the
// other when its client would have sent it, had a connection been free. The best strategy is
// chosen for each clock, and on other seeds than those that auto is compared with it on.
// Cells in which even the best has less than a fifth of what can be done are left out.
//
// A cell fits if all of its connections can be served within the objective: connections ×
// work ≤ workers × objective. Nobody has to be refused there.
package main

import (
	"flag"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

func main() {
	sample := flag.Int("sample", 0, "draw so many cells; 0 takes all")
	only := flag.String("only", "", "only cells whose description contains this")
	services := flag.Int("services", 6000, "how many requests the workers can serve in the time of a simulation")
	lax := flag.Int("lax", 1, "auto is told so many times the objective that is judged by")
	seed := flag.Uint64("seed", 1, "what auto is judged on")
	worst := flag.Int("worst", 10, "print so many of the worst cells")
	flag.Parse()

	all := slices.DeleteFunc(cells(), func(c cell) bool { return !strings.Contains(c.String(), *only) })
	if *sample > 0 && *sample < len(all) {
		random := rand.New(rand.NewPCG(*seed, 9))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:*sample]
	}
	rows, err := judge(all, trial{seed: *seed, services: *services, lax: *lax})
	if err == nil {
		err = report(os.Stdout, rows, *worst)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// judge returns the rows of cells, in any order.
func judge(all []cell, t trial) ([]row, error) {
	// Those that differ in nothing but the mean have the rivals in common.
	groups := map[cell][]cell{}
	for _, c := range all {
		groups[c.scaled()] = append(groups[c.scaled()], c)
	}
	var mu sync.Mutex
	var rows []row
	var failed error
	var working sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, group := range groups {
		free <- struct{}{}
		working.Go(func() {
			defer func() { <-free }()
			found, err := t.judge(group)
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, found...)
			if err != nil {
				failed = err
			}
		})
	}
	working.Wait()
	return rows, failed
}
