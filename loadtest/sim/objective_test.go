//go:build !race

package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// auto is compared with the other strategies in virtual time: numbers of workers, kinds of work,
// connections, loads and objectives, thousands of cells in all, of which a test draws some:
//
//	go test -run Sweep -v ./loadtest/sim                                      # a minute
//	SPILLWAY_SWEEP_CELLS=7875 go test -run Sweep -v -timeout 2h ./loadtest/sim
//	SPILLWAY_SWEEP_SERVICES=30000 …                                           # longer simulations, where chance counts for less
//
// Goodput is judged by two clocks: one begins when a request arrives at the service, the
// other when its client would have sent it, had a connection been free. The best strategy is
// chosen for each clock, and on other seeds than those that auto is compared with it on.
// Cells in which even the best has less than a fifth of what can be done are left out.
//
// A cell fits if all of its connections can be served within the objective: connections ×
// work ≤ workers × objective. Nobody has to be refused there.

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

func allCells() (all []cell) {
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

func (c cell) work() Distribution {
	switch c.shape {
	case "constant":
		return Constant(c.mean)
	case "exponential":
		return Exponential(c.mean)
	default: // a tenth takes 30 times as long as the others
		cheap := time.Duration(float64(c.mean) / 3.9)
		return Bimodal{Cheap: cheap, Expensive: 30 * cheap, Share: 0.1}
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
	byService = iota // begins when the request arrives at the service
	bySchedule
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

// sweep is how cells are simulated.
type sweep struct {
	seed     uint64
	services int // how many requests can be served in the time that is simulated
}

// judge returns the rows of cells that are the same in proportion.
func (t sweep) judge(group []cell) ([]row, error) {
	elsewhere := t
	elsewhere.seed += 1000 // the best is chosen there
	// offer makes a strategy the best of those that it is better than.
	offer := func(to *[clocks]best, c cell, strategy string) error {
		there, err := elsewhere.run(c, strategy)
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
				if known, err = t.run(at, b.strategy); err != nil {
					return nil, err
				}
			}
			if b.found = known; b.strategy != "codel" {
				here[b.strategy] = known
			}
		}
		var err error
		if r.auto, err = t.run(c, "auto"); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// run simulates a cell from a cold start, and judges all that is answered within the time.
func (t sweep) run(c cell, strategy string) (found, error) {
	duration := time.Duration(float64(t.services) * float64(c.mean) / float64(c.workers))
	config := Config{
		Strategy: strategy, Workers: c.workers, Service: c.work(), Connections: c.connections,
		Objective: c.slo(), Seed: t.seed,
		Classes: []Class{{Priority: DefaultPriority, Timeout: patience * c.slo(), FromSent: true}},
		// What is measured is seen by Observe. The window of the simulation is empty: it
		// would end only when all that is scheduled in it has found a connection.
		Warmup: duration - time.Nanosecond, Duration: time.Nanosecond,
	}
	rate := c.load * config.ServiceRate()
	config.Requests = func() func() (Request, bool) {
		random, at := rand.New(rand.NewPCG(t.seed, 0)), 0.0
		return func() (Request, bool) {
			at += random.ExpFloat64() / rate
			return Request{At: time.Duration(at * float64(time.Second))}, at < duration.Seconds()
		}
	}
	var good [clocks]int
	ended, refused := 0, 0
	config.Observe = func(r Record) {
		end := r.Arrival + r.Latency
		if r.Attempts == 0 || end > duration {
			return
		}
		ended++
		if r.Outcome == Refused {
			refused++
		}
		for clock, begin := range [clocks]time.Duration{byService: r.Sent, bySchedule: r.Arrival} {
			if r.Outcome == Served && end-begin <= c.slo() {
				good[clock]++
			}
		}
	}
	if err := Run(context.Background(), config); err != nil {
		return found{}, fmt.Errorf("%v under %s: %w", c, strategy, err)
	}
	out := found{refused: float64(refused) / float64(max(1, ended))}
	for clock, n := range good {
		out.good[clock] = float64(n) / (min(rate, config.ServiceRate()) * duration.Seconds())
	}
	return out, nil
}

// In nearly all cells auto has nearly the goodput of whichever other strategy is best there, and
// refuses hardly anybody below the capacity.
func TestAuto_Sweep(t *testing.T) {
	t.Parallel()
	number := func(variable string, byDefault int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv("SPILLWAY_SWEEP_"+variable), strconv.Itoa(byDefault)))
		require.NoError(t, err)
		return n
	}
	drawn := 150
	if testing.Short() {
		drawn = 30
	}
	cells := allCells()
	random := newRandom(9)
	random.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	cells = cells[:number("CELLS", drawn)]
	groups := map[cell][]cell{} // those that differ in nothing but the mean have the rivals in common
	for _, c := range cells {
		groups[c.scaled()] = append(groups[c.scaled()], c)
	}
	var mu sync.Mutex
	var rows []row
	var working sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, group := range groups {
		places <- struct{}{}
		working.Go(func() {
			defer func() { <-places }()
			found, err := sweep{seed: 1, services: number("SERVICES", 6000)}.judge(group)
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, found...)
			if err != nil {
				t.Error(err)
			}
		})
	}
	working.Wait()
	for clock, from := range [clocks]string{byService: "arrival", bySchedule: "the schedule"} {
		for _, fits := range []bool{true, false} {
			n, near, nearly := 0, 0., 0.
			for i := range rows {
				r := &rows[i]
				if r.fits() != fits || !r.judged(clock) {
					continue
				}
				n++
				if r.ratio(clock) >= 0.97 {
					near++
				}
				if r.ratio(clock) >= 0.9 {
					nearly++
				}
			}
			t.Logf("from %s, fits: %v: of %d cells %.1f%% have 0.97 of the best or more, %.1f%% 0.9", from, fits, n, 100*near/float64(max(1, n)), 100*nearly/float64(max(1, n)))
			if !fits { // of all cells it is fewer than one in 100
				require.LessOrEqual(t, float64(n)-nearly, 1+0.05*float64(n), from)
			}
		}
	}
	refused := map[string][]float64{}
	for i := range rows {
		r := &rows[i]
		switch {
		case r.load < 1:
			refused[fmt.Sprintf("%gx, %s", r.load, r.shape)] = append(refused[fmt.Sprintf("%gx, %s", r.load, r.shape)], r.auto.refused)
		case r.fits():
			refused["fits, "+r.shape] = append(refused["fits, "+r.shape], r.auto.refused)
		}
	}
	for part, shares := range refused {
		most := slices.Max(shares)
		t.Logf("%s: at most %.2f%% are refused, in %d cells", part, 100*most, len(shares))
		require.LessOrEqual(t, most, 0.03, part)
		switch {
		case part == "fits, a tenth long": // now and then all workers have long work
			require.LessOrEqual(t, most, 0.003, part)
		case strings.HasPrefix(part, "fits"), strings.HasSuffix(part, "constant"):
			require.Zero(t, most, part)
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !r.judged(byService) })
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.ratio(byService), b.ratio(byService)) })
	for i := range rows[:min(10, len(rows))] {
		r := &rows[i]
		b := &r.best[byService]
		t.Logf("%v: auto %.3f, %s %.3f; from the schedule %.3f, %.3f; refused %.1f%%, %.1f%%", r.cell, r.auto.good[byService], b.strategy,
			b.good[byService], r.auto.good[bySchedule], b.good[bySchedule], 100*r.auto.refused, 100*b.refused)
	}
}
