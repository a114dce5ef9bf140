package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// rivals are the strategies that auto is compared with: not those that are fifo but for
// classes, clients or deadlines, of which there are none here, nor those without a bound.
// No rival depends on how long the work takes, all else in proportion; codel does, which has
// fixed times.
var rivals = []string{"fifo", "lifo", "adaptive-lifo", "hybrid", "drop-oldest"}

// patience is how many objectives a client waits for an answer.
const patience = 10

// cell is one setting under one load.
type cell struct {
	workers     int
	shape       string // of the distribution of the work
	mean        time.Duration
	connections int
	load        float64 // in parts of the capacity
	objective   int     // in mean service times
}

var shapes = []string{"constant", "exponential", "a tenth long"}

func cells() (all []cell) {
	for _, workers := range []int{1, 2, 4, 8, 64} {
		for _, shape := range shapes {
			for _, mean := range []time.Duration{100 * time.Microsecond, 4 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
				for _, connections := range []int{16, 64, 200, 1000, 10_000} {
					for _, load := range []float64{0.5, 0.9, 1.1, 1.2, 2, 5, 10} {
						for _, objective := range []int{5, 10, 30} {
							all = append(all, cell{workers, shape, mean, connections, load, objective})
						}
					}
				}
			}
		}
	}
	return all
}

func (c cell) String() string {
	return fmt.Sprintf("%d workers, %s %v, %d connections, %gx, objective %v", c.workers, c.shape, c.mean, c.connections, c.load, c.slo())
}

func (c cell) work() sim.Distribution {
	switch c.shape {
	case "constant":
		return sim.Constant(c.mean)
	case "exponential":
		return sim.Exponential(c.mean)
	default: // a tenth takes 30 times as long as the others
		cheap := time.Duration(float64(c.mean) / 3.9)
		return sim.Bimodal{Cheap: cheap, Expensive: 30 * cheap, Share: 0.1}
	}
}

func (c cell) slo() time.Duration { return time.Duration(c.objective) * c.mean }

// fits reports whether all connections together can be served within the objective.
func (c cell) fits() bool { return c.connections <= c.workers*c.objective }

// scaled returns the cell that is the same in proportion to the mean.
func (c cell) scaled() cell {
	c.mean = 4 * time.Millisecond
	return c
}

// The clocks by which an answer is in time.
const (
	service = iota // begins when the request arrives at the service
	schedule
	clocks
)

// found is what a strategy did in a cell.
type found struct {
	good    [clocks]float64 // goodput, of the lesser of the capacity and the load
	refused float64         // of what was answered
}

// best is a strategy with the most goodput by a clock.
type best struct {
	strategy string
	found
}

// row is a cell with what auto and the best other strategies do there.
type row struct {
	cell
	auto found
	best [clocks]best
}

// judged reports whether anything can be had in the cell.
func (r *row) judged(clock int) bool { return r.best[clock].good[clock] >= 0.2 }

// ratio is what auto has of the best. The cell is judged.
func (r *row) ratio(clock int) float64 { return r.auto.good[clock] / r.best[clock].good[clock] }

// trial is how cells are simulated.
type trial struct {
	seed     uint64
	services int // how many requests can be served in the time that is simulated
	lax      int // how many objectives auto is told
}

// judge returns the rows of cells that are the same in proportion.
func (t trial) judge(group []cell) ([]row, error) {
	elsewhere := t
	elsewhere.seed += 1000 // the best is chosen there
	// offer makes a strategy the best of those that it is better than.
	offer := func(to *[clocks]best, c cell, strategy string) error {
		there, err := elsewhere.run(c, strategy, 1)
		for clock := range to {
			if there.good[clock] > to[clock].good[clock] || to[clock].strategy == "" {
				to[clock] = best{strategy, there}
			}
		}
		return err
	}
	var common [clocks]best
	for _, rival := range rivals {
		if err := offer(&common, group[0].scaled(), rival); err != nil {
			return nil, err
		}
	}
	var rows []row
	here := map[string]found{} // what rivals do on the seed that counts
	for _, c := range group {
		r := row{cell: c, best: common}
		if err := offer(&r.best, c, "codel"); err != nil {
			return nil, err
		}
		for clock := range r.best {
			b := &r.best[clock]
			known, ok := here[b.strategy]
			if !ok {
				at := c.scaled()
				if b.strategy == "codel" {
					at = c
				}
				var err error
				if known, err = t.run(at, b.strategy, 1); err != nil {
					return nil, err
				}
			}
			if b.found = known; b.strategy != "codel" {
				here[b.strategy] = known
			}
		}
		var err error
		if r.auto, err = t.run(c, "auto", t.lax); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// run simulates a cell from a cold start, and judges all that is answered within the time.
func (t trial) run(c cell, strategy string, lax int) (found, error) {
	duration := time.Duration(float64(t.services) * float64(c.mean) / float64(c.workers))
	config := sim.Config{
		Strategy: strategy, Workers: c.workers, Service: c.work(), Connections: c.connections,
		SLO: c.slo(), Objective: time.Duration(lax) * c.slo(), Seed: t.seed,
		Classes: []sim.Class{{Priority: sim.DefaultPriority, Timeout: patience * c.slo(), FromSent: true}},
		// What is measured is seen by Observe. The window of the simulation is empty: it
		// would end only when all that is scheduled in it has found a connection.
		Warmup: duration - time.Nanosecond, Duration: time.Nanosecond,
	}
	rate := c.load * config.ServiceRate()
	config.Requests = func() func() (sim.Request, bool) {
		random, at := rand.New(rand.NewPCG(t.seed, 0)), 0.0
		return func() (sim.Request, bool) {
			at += random.ExpFloat64() / rate
			return sim.Request{At: time.Duration(at * float64(time.Second))}, at < duration.Seconds()
		}
	}
	var good [clocks]int
	ended, refused := 0, 0
	config.Observe = func(r sim.Record) {
		end := r.Arrival + r.Latency
		if r.Attempts == 0 || end > duration {
			return
		}
		ended++
		if r.Outcome == sim.Refused {
			refused++
		}
		for clock, begin := range [clocks]time.Duration{service: r.Sent, schedule: r.Arrival} {
			if r.Outcome == sim.Served && end-begin <= c.slo() {
				good[clock]++
			}
		}
	}
	if _, err := sim.Run(config); err != nil {
		return found{}, fmt.Errorf("%v under %s: %w", c, strategy, err)
	}
	out := found{refused: float64(refused) / float64(max(1, ended))}
	for clock, n := range good {
		out.good[clock] = float64(n) / (min(rate, config.ServiceRate()) * duration.Seconds())
	}
	return out, nil
}
