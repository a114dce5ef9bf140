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
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"spillway/loadtest"
	"spillway/loadtest/lab"
	"spillway/loadtest/peers"
)

// Contestant is a server that is measured.
type Contestant struct {
	Name   string
	Binary string
	Env    []string // its settings

	// What follows is for questions, and may be left out.

	// Base names the contestant that this one is compared with.
	Base string
	// Keys, if not 0, gives it a store of its own, as [peers.FillStore] fills it
	// with so many keys, and values of KilobyteSize.
	Keys uint64
	// Idle connections are opened before the first load, each with one request,
	// and stay open.
	Idle int
	// NoRanges says that it cannot answer ranges, which it is not sent.
	NoRanges bool
}

// KilobyteSize is the length of the values in the stores of questions, in bytes:
// small enough that 10 GB are many keys, large enough that they are soon written.
const KilobyteSize = 1000

// Load is what all contestants are sent in turn.
type Load struct {
	Op          loadtest.Op `json:"-"`
	Name        string      `json:"op"` // of Op: GET or PUT
	Connections int         `json:"connections"`
	// Rate is in requests a second; 0 is a closed loop, as much as can be served.
	Rate float64 `json:"rate"`

	// What follows is for questions, and may be left out.

	// ValueSize is the length of the values in bytes, by default 100.
	ValueSize int `json:"value_size,omitempty"`
	// Keys, if not 0, is how many of the store's keys are asked for.
	Keys uint64 `json:"keys,omitempty"`
	// Fill writes and reads each of Keys before the load is first sent in a round.
	Fill         bool                  `json:"-"`
	Distribution loadtest.Distribution `json:"distribution,omitempty"`
	// Absent asks a store of the contestant's own for keys of which next to none
	// are there.
	Absent bool `json:"absent,omitempty"`
	// ScanLimit is how many entries a range has.
	ScanLimit int `json:"scan_limit,omitempty"`
	// Short opens a connection for every request, and counts what that takes.
	// Connections is then how many are open at a time.
	Short bool `json:"short,omitempty"`
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
	// Watch names metrics, without their prefix, whose growth during each closed
	// loop is told. It may be empty; who has no such metric has no growth.
	Watch []string
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
	// MBps is how many megabytes (1e6) of values were sent or received a second, and
	// Found the share of the requests that were answered with 200.
	MBps  float64 `json:"served_mb_per_s"`
	Found float64 `json:"found"`
	// IdleBytes is the memory of one of the idle connections, if there are any.
	IdleBytes float64 `json:"idle_bytes,omitempty"`
	// Requests is how many were served, and Grown by how much each series of the
	// metrics that are watched has grown meanwhile.
	Requests float64            `json:"served"`
	Grown    map[string]float64 `json:"grown,omitempty"`
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
	filled, err := fillStores(ctx, &o)
	if err != nil {
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

// fillStores fills what the contestants get clones of, and returns the folders by
// Contestant.Keys.
func fillStores(ctx context.Context, o *Options) (map[uint64]string, error) {
	filled := map[uint64]string{}
	for _, c := range o.Contestants {
		if filled[c.Keys] != "" {
			continue
		}
		dir := filepath.Join(o.Dir, fmt.Sprintf("filled-%d", c.Keys))
		var err error
		if c.Keys == 0 {
			o.Progress(fmt.Sprintf("fill a store with %d values", o.Keys))
			err = lab.FillStore(ctx, o.Filler, dir, o.Keys)
		} else {
			o.Progress(fmt.Sprintf("fill a store with %d values of %d bytes", 2*c.Keys, KilobyteSize))
			err = peers.FillStore(ctx, dir, c.Keys, KilobyteSize)
		}
		if err != nil {
			return nil, err
		}
		filled[c.Keys] = dir
	}
	return filled, nil
}

// oneRound starts all contestants, measures each under each load, and stops them.
func oneRound(ctx context.Context, o *Options, n int, filled map[uint64]string) (_ [][]Figures, err error) {
	rivals := make([]*rival, 0, len(o.Contestants))
	defer func() {
		for _, r := range rivals {
			err = errors.Join(err, r.stop(), os.RemoveAll(r.dir))
		}
	}()
	for _, c := range o.Contestants {
		o.Progress(fmt.Sprintf("round %d of %d: start %s", n+1, o.Rounds, c.Name))
		r, err := start(ctx, o, &c, filled[c.Keys])
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
				if r.noRanges && load.Op == loadtest.Scan {
					continue
				}
				if pass == 0 && load.Fill {
					if err := r.fill(ctx, load); err != nil {
						return nil, fmt.Errorf("fill for %v to %s: %w", load, r.name, err)
					}
				}
				o.Progress(fmt.Sprintf("round %d of %d, pass %d of %d: %v to %s", n+1, o.Rounds, pass+1, passes, load, r.name))
				// All get the same requests.
				seed := uint64(n*1000 + pass + 1)
				if err := r.measure(ctx, o, load, seed, &tallies[j]); err != nil {
					return nil, fmt.Errorf("%v to %s: %w", load, r.name, err)
				}
			}
		}
		for j := range tallies {
			f := tallies[j].figures()
			f.MBps, f.IdleBytes = f.RPS*load.bytes()/1e6, rivals[j].idleBytes
			figures[i] = append(figures[i], f)
		}
	}
	for _, r := range rivals {
		if err := r.idle.ask(r.server.URL()); err != nil {
			return nil, fmt.Errorf("%s: the idle connections, afterwards: %w", r.name, err)
		}
	}
	return figures, nil
}

// String says what is sent, for people.
func (l Load) String() string {
	what := l.Name
	if l.Op == loadtest.Scan {
		what = fmt.Sprintf("range of %d", l.ScanLimit)
	}
	if l.ValueSize > 0 {
		what += fmt.Sprintf(" of %v", loadtest.ByteCount(l.ValueSize))
	}
	if l.Distribution != loadtest.Uniform {
		what += fmt.Sprintf(", %v", l.Distribution)
	}
	if l.Absent {
		what += ", absent"
	}
	s := fmt.Sprintf("%s, %d connections", what, l.Connections)
	switch {
	case l.Short:
		s = fmt.Sprintf("%s, a connection each, %d at a time", what, l.Connections)
	case l.Connections == 1:
		s = what + ", 1 connection"
	}
	if l.Rate > 0 {
		s += fmt.Sprintf(", %.0f/s", l.Rate)
	}
	return s
}

// bytes returns how many bytes of values a request moves.
func (l Load) bytes() float64 {
	size := float64(cmp.Or(l.ValueSize, defaultSize))
	if l.Op == loadtest.Scan {
		return size * float64(l.ScanLimit)
	}
	return size
}

// defaultSize is the generator's.
const defaultSize = 100
