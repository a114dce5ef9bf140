// Package versus measures servers beside each other: the service under several
// strategies, and what a user would run instead.
//
// What it guards against is the machine, which others may use as well, and which
// is never the same from one second to the next:
//
//   - What is compared is first of all the processor time a request, which the
//     kernel counts by process, and not the wall time.
//   - In every round all contestants are started, each on its own clone of the
//     same store. Then they are sent load in turn, for about a second each, while
//     the others are idle; and the next time in the reverse order.
//   - Figures are ratios within a round, of which the median over all rounds and
//     the spread are told.
//   - Where as much is sent as can be served, all are sent the same number of the
//     same requests, so that their stores flush and compact alike; what they still
//     do of that after the last answer counts.
//   - What it takes to open the connections is measured by itself and comes off.
package versus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"spillway/loadtest"
	"spillway/loadtest/lab"
)

// Contestant is a server that is measured.
type Contestant struct {
	Name   string
	Binary string
	Env    []string // its settings
}

// Load is what all contestants are sent in turn.
type Load struct {
	Op          loadtest.Op `json:"-"`
	Name        string      `json:"op"` // of Op: GET or PUT
	Connections int         `json:"connections"`
	// Rate is in requests a second; 0 is a closed loop, as much as can be served.
	Rate float64 `json:"rate"`
}

// Options say what is measured. All fields must be set, but for those that say
// otherwise.
type Options struct {
	Contestants []Contestant
	// Loads are sent in this order, in every round.
	Loads []Load
	// Filler is the binary that fills the store: the service's.
	Filler string
	// Dir is where the stores are while they are needed. It must not be there.
	Dir string
	// Keys is how many values of 100 bytes the store holds.
	Keys uint64
	// Rounds is how often everything is measured, and Passes how often within a
	// round each closed loop is sent.
	Rounds, Passes int
	// Requests is how many a closed loop sends, a quarter of it over a single
	// connection; Duration is how long an open one lasts.
	Requests uint64
	Duration time.Duration
	// Progress is called with what is done next.
	Progress func(string)
}

// Figures are what a contestant did under a load in a round. Those of its costs
// are by requests that were served: answered with 2xx or 404.
type Figures struct {
	RPS       float64 `json:"served_rps"`
	CPUMicros float64 `json:"cpu_us"`
	Mallocs   float64 `json:"mallocs"`
	// P50, P99 and P999 are in milliseconds.
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99_9_ms"`
	// Refused is the share that was not served, 0 to 1.
	Refused float64 `json:"refused"`
}

// Result is what was measured.
type Result struct {
	Machine     loadtest.Machine `json:"machine"`
	Started     time.Time        `json:"started"`
	Seconds     float64          `json:"seconds"`
	Keys        uint64           `json:"keys"`
	Contestants []string         `json:"contestants"`
	Loads       []Load           `json:"loads"`
	// Rounds has the figures by round, load and contestant.
	Rounds [][][]Figures `json:"rounds"`
}

// Run measures. It fails if anything does: a contestant that cannot be started or
// dies, a request without an answer. When ctx ends it returns the rounds that are
// complete, with ctx's error.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	r := &Result{Machine: loadtest.ThisMachine(), Started: time.Now(), Keys: o.Keys, Loads: o.Loads}
	for _, c := range o.Contestants {
		r.Contestants = append(r.Contestants, c.Name)
	}
	filled := filepath.Join(o.Dir, "filled")
	o.Progress(fmt.Sprintf("fill a store with %d values", o.Keys))
	if err := lab.FillStore(ctx, o.Filler, filled, o.Keys); err != nil {
		return nil, err
	}
	for n := range o.Rounds {
		figures, err := oneRound(ctx, &o, n, filled)
		if err != nil {
			return r, fmt.Errorf("round %d of %d: %w", n+1, o.Rounds, err)
		}
		r.Rounds = append(r.Rounds, figures)
		r.Seconds = time.Since(r.Started).Seconds()
	}
	return r, nil
}

// oneRound starts all contestants, measures each under each load, and stops them.
func oneRound(ctx context.Context, o *Options, n int, filled string) (_ [][]Figures, err error) {
	rivals := make([]*rival, 0, len(o.Contestants))
	defer func() {
		for _, r := range rivals {
			err = errors.Join(err, r.server.Stop(), os.RemoveAll(r.dir))
		}
	}()
	for _, c := range o.Contestants {
		o.Progress(fmt.Sprintf("round %d of %d: start %s", n+1, o.Rounds, c.Name))
		r, err := start(ctx, o, &c, filled)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		rivals = append(rivals, r)
	}
	figures := make([][]Figures, len(o.Loads))
	for i, load := range o.Loads {
		passes := o.Passes
		if load.Rate > 0 {
			passes = 1
		}
		tallies := make([]tally, len(rivals))
		for pass := range passes {
			order := make([]int, len(rivals))
			for j := range order {
				order[j] = j
			}
			if (n+pass)%2 == 1 {
				slices.Reverse(order)
			}
			for _, j := range order {
				r := rivals[j]
				o.Progress(fmt.Sprintf("round %d of %d, pass %d of %d: %v to %s", n+1, o.Rounds, pass+1, passes, load, r.name))
				// All get the same requests.
				seed := uint64(n*1000 + pass + 1)
				if err := r.measure(ctx, o, load, seed, &tallies[j]); err != nil {
					return nil, fmt.Errorf("%v to %s: %w", load, r.name, err)
				}
			}
		}
		for j := range tallies {
			figures[i] = append(figures[i], tallies[j].figures())
		}
	}
	return figures, nil
}

// String says what is sent, for people.
func (l Load) String() string {
	s := fmt.Sprintf("%s, %d connections", l.Name, l.Connections)
	if l.Connections == 1 {
		s = l.Name + ", 1 connection"
	}
	if l.Rate > 0 {
		s += fmt.Sprintf(", %.0f/s", l.Rate)
	}
	return s
}
