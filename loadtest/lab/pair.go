package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Contestant is a server that is paired with others: the service, or a program that takes
// its addresses and its data folder from the service's environment variables, logs in JSON
// where it listens, answers /readyz and /metrics on its admin plane and ends on SIGTERM.
type Contestant struct {
	Name   string
	Binary string
	Env    []string // its settings

	// What follows may be left out.

	// Base names the contestant that this one is compared with.
	Base string
	// Fill fills a store of its own in a folder that does not exist yet. Keys of its keys
	// are asked for; Span is the number of keys between the least and the greatest.
	// Contestants with the same Keys share the store.
	Fill       func(ctx context.Context, dir string) error
	Keys, Span uint64
	// Idle connections are opened before the first load, each with one request,
	// and stay open.
	Idle int
	// NoRanges says that it cannot answer ranges, which it is not sent.
	NoRanges bool
	// System, if not nil, says how to start and ask a contestant of another kind. Binary,
	// Env and Fill are not used then.
	System *System
}

// PairLoad is what all contestants are sent in turn.
type PairLoad struct {
	Op          workload.Op
	Connections int
	// Rate is in requests a second; 0 is a closed loop, as much as can be served.
	Rate float64

	// What follows may be left out.

	// Half sends at half the rate that the contestant has served in this round, with the
	// same operation and as many connections.
	Half bool
	// ValueSize is the length of the values in bytes, by default 100.
	ValueSize int
	// Keys, if not 0, is how many of the store's keys are asked for.
	Keys uint64
	// Fill writes and reads each of Keys before the load is first sent in a round.
	Fill         bool
	Distribution workload.Distribution
	// Absent asks a store of the contestant's own for keys of its Span.
	Absent bool
	// ScanLimit is how many entries a range has.
	ScanLimit int
	// Short opens a connection for every request, and counts what that takes.
	// Connections is then how many are open at a time.
	Short bool
}

// PairOptions say what is paired. All fields must be set.
type PairOptions struct {
	Contestants []Contestant
	// Loads are sent in this order, in every round.
	Loads []PairLoad
	// Filler is the binary that fills the common store: the service's.
	Filler string
	// Dir is where the stores are while they are needed. It must not be there.
	Dir string
	// Keys is how many values of 100 bytes the common store holds.
	Keys uint64
	// Rounds is how often everything is measured, and Passes how often within a
	// round each closed loop is sent.
	Rounds, Passes int
	// Requests is how many a closed loop sends, a quarter of it over a single
	// connection; Duration is how long an open one lasts.
	Requests uint64
	Duration time.Duration
	// Progress is called with the next step, in words.
	Progress func(string)
}

// The metrics that only pairs have, beside those of [Metrics]: megabytes (1e6) of values
// sent or received per second, the share of answers that are 200, the memory of an idle
// connection, the mean and the median of the service's fsyncs, the blocks that it reads per
// request, and the contestant's memory after a load.
const (
	MegabytesPerSecond = "served_mb_per_s"
	FoundPercent       = "found_percent"
	IdleBytes          = "idle_bytes"
	FsyncMean          = "fsync_mean_us"
	FsyncMedian        = "fsync_median_us"
	BlocksRead         = "blocks_read"
	ResidentBytes      = "resident_bytes"
)

// Pair measures servers beside each other to tell what a request costs them, where
// [Compare] tells how settings stand a load. What it guards against is the machine,
// which others may use as well, and which is never the same from one second to the
// next:
//
//   - The first measure is CPU time per request, which the kernel counts by process,
//     and not wall time.
//   - In every round all contestants are started, each on its own clone of the
//     same store. Then they are sent load in turn, for about a second each, while
//     the others are idle; and the next time in the reverse order.
//   - Where as much is sent as can be served, all are sent the same number of the
//     same requests, so that their stores flush and compact alike; what they still
//     do of that after the last answer counts.
//   - What it takes to open the connections is measured by itself and comes off.
//
// The groups of the comparison are the contestants under the first load, then those
// under the second, and so on; the repetitions are the rounds. Pair fails if a contestant
// cannot be started or dies, or if a request has no answer. The comparison then has the
// rounds that are complete, if any.
func Pair(ctx context.Context, o PairOptions) (c *Comparison, err error) {
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	c = &Comparison{Machine: machine.This(), Started: time.Now(), Scenario: scenario.Scenario{Repetitions: o.Rounds}}
	for _, load := range o.Loads {
		for _, contestant := range o.Contestants {
			c.Groups = append(c.Groups, Group{
				Label: contestant.Name + ", " + load.String(), Series: contestant.Name, Workload: load.String(), Metrics: map[string]Summary{},
			})
		}
	}
	filled, err := o.fillStores(ctx)
	if err != nil {
		return nil, err
	}
	for n := range o.Rounds {
		figures, err := o.round(ctx, n, filled)
		if err != nil {
			return c, fmt.Errorf("round %d of %d: %w", n+1, o.Rounds, err)
		}
		for i := range c.Groups {
			for metric, v := range figures[i] {
				c.Groups[i].Metrics[metric] = summary(append(c.Groups[i].Metrics[metric].Values, v))
			}
		}
		c.Finished = time.Now()
	}
	return c, nil
}

// Bounds says how a contestant differs from another in a metric: the ratio within each
// round, and what bounds it but with a probability of Alpha for all of a table's row.
type Bounds struct {
	Ratio     Summary
	Low, High float64
}

// Proven reports whether the difference is more than noise.
func (b *Bounds) Proven() bool { return b.Low > 1 || b.High < 1 }

// Differences tells how groups differ from a base in a metric.
func (c *Comparison) Differences(metric string, base int, groups []int) []Bounds {
	all := make([]Bounds, len(groups))
	for i, g := range groups {
		from, to := together(c.Groups[base].Metrics[metric], c.Groups[g].Metrics[metric])
		d := contrastOf(from, to)
		if len(d.ratios) > 0 {
			all[i].Ratio = summary(d.ratios)
		}
		margin := d.margin(0, float64(max(1, len(groups)-1)))
		ratio := func(m float64) float64 { return max(0, (1+m)/(1-min(m, 1))) }
		all[i].Low, all[i].High = ratio(d.mean-margin), ratio(d.mean+margin)
	}
	return all
}

// Rounds returns how many rounds of a pairing are complete.
func (c *Comparison) Rounds() (n int) {
	for _, g := range c.Groups {
		for _, m := range g.Metrics {
			n = max(n, len(m.Values))
		}
	}
	return n
}

// fillStores fills what the contestants get clones of, and returns the folders by
// Contestant.Keys.
func (o *PairOptions) fillStores(ctx context.Context) (map[uint64]string, error) {
	l := &comparing{
		o: CompareOptions{Binary: o.Filler, Progress: func(Progress) {}, Run: generator.Run},
		s: &scenario.Scenario{Seed: 1}, c: new(Comparison),
	}
	filled := map[uint64]string{}
	for _, c := range o.Contestants {
		if filled[c.Keys] != "" || c.System != nil {
			continue
		}
		dir := filepath.Join(o.Dir, fmt.Sprintf("filled-%d", c.Keys))
		o.Progress(fmt.Sprintf("fill a store with %d values", cmp.Or(c.Keys, o.Keys)))
		fill := c.Fill
		if fill == nil {
			fill = func(ctx context.Context, dir string) error {
				return l.fill(ctx, dir, filling{keys: o.Keys, sizes: workload.Options{}.WithDefaults().ValueSize})
			}
		}
		if err := fill(ctx, dir); err != nil {
			return nil, err
		}
		filled[c.Keys] = dir
	}
	return filled, nil
}

// round starts all contestants, measures each under each load, and stops them. It
// returns the figures by group.
func (o *PairOptions) round(ctx context.Context, n int, filled map[uint64]string) (_ []map[string]float64, err error) {
	rivals := make([]*rival, 0, len(o.Contestants))
	defer func() {
		for _, r := range rivals {
			err = errors.Join(err, r.stop(), os.RemoveAll(r.dir))
		}
	}()
	for i := range o.Contestants {
		c := &o.Contestants[i]
		o.Progress(fmt.Sprintf("round %d of %d: start %s", n+1, o.Rounds, c.Name))
		r, err := startRival(ctx, o, c, filled[c.Keys])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		rivals = append(rivals, r)
	}
	var figures []map[string]float64
	for _, load := range o.Loads {
		passes := o.Passes
		if load.open() {
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
				if r.skips(load) {
					continue
				}
				o.Progress(fmt.Sprintf("round %d of %d, pass %d of %d: %v to %s", n+1, o.Rounds, pass+1, passes, load, r.Name))
				if pass == 0 && load.Fill {
					err = r.fill(ctx, load)
				}
				if err == nil { // all get the same requests
					err = r.measure(ctx, o, load, uint64(n*1000+pass+1), &tallies[j])
				}
				if err != nil {
					return nil, fmt.Errorf("%v to %s: %w", load, r.Name, err)
				}
			}
		}
		for j := range tallies {
			rivals[j].reached[load] = tallies[j].rps()
			figures = append(figures, tallies[j].figures(load, rivals[j].idleBytes))
		}
	}
	for _, r := range rivals {
		if err := r.idle.ask(r.server.data); err != nil {
			return nil, fmt.Errorf("%s: the idle connections, afterwards: %w", r.Name, err)
		}
	}
	return figures, nil
}

// String says what is sent, for people.
func (l PairLoad) String() string {
	what := map[workload.Op]string{workload.Get: "GET", workload.Put: "PUT"}[l.Op]
	if l.Op == workload.Scan {
		what = fmt.Sprintf("range of %d", l.ScanLimit)
	}
	if l.ValueSize > 0 {
		what += fmt.Sprintf(" of %v", workload.ByteCount(l.ValueSize))
	}
	if l.Distribution != workload.Uniform {
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
	switch {
	case l.Half:
		s += ", half the rate"
	case l.Rate > 0:
		s += fmt.Sprintf(", %.0f/s", l.Rate)
	}
	return s
}

// open says that requests are sent at a rate, and not as soon as others are answered.
func (l PairLoad) open() bool { return l.Rate > 0 || l.Half }

func (l PairLoad) bytes() float64 {
	size := float64(cmp.Or(l.ValueSize, defaultSize))
	if l.Op == workload.Scan {
		return size * float64(l.ScanLimit)
	}
	return size
}

// defaultSize is the generator's.
const defaultSize = 100
