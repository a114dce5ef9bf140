//go:build !race

package shares

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
	"github.com/spillway-go/spillway/strategies"
)

var (
	seconds = flag.Int("seconds", 5, "how long the simulations with ten tenants last")
	seeds   = flag.Uint64("seeds", 1, "how often each is repeated")
)

// names are the strategies and rivals in the order of the tables.
var names = []string{"fifo", "auto", "auto" + learned, "fair", "fair" + learned, "DRR by count", "WFQ, costs told", "2DFQ", "least attained", "shortest"}

// places is how many requests run at once or, where their number is learned, how many the resource works at: what is
// begun beside these waits there.
const places = 8

// learned is at the end of a name if the number is.
const learned = ", learned"

// outcome is what became of the tenants' requests.
type outcome struct {
	seconds float64
	answers []answers       // by tenant
	places  float64         // in use, on average
	had     []time.Duration // by tenant
	share   []float64       // of the time of all, by tenant
	longest []time.Duration
}

// answers are those to one tenant's requests.
type answers struct {
	asked, good int
	latency     *hdrhistogram.Histogram // nanoseconds, of what was served
}

// try simulates what the tenants send to a strategy, or a rival.
func try(name string, tenants []tenant, length, slo time.Duration, seed uint64) (outcome, error) {
	return tryFrom(-time.Second, name, tenants, time.Second+length, slo, seed)
}

// tryFrom simulates the same, and tells what the tenants had from then on, after the first second. The rest of the
// outcome is of all.
func tryFrom(from time.Duration, name string, tenants []tenant, length, slo time.Duration, seed uint64) (outcome, error) {
	name, learns := strings.CutSuffix(name, learned)
	discipline := laws[name].discipline
	if _, rival := laws[name]; !rival {
		spec, err := strategies.Lookup(name)
		if err != nil {
			return outcome{}, err
		}
		discipline = spec.New
	}
	weights := map[string]int{}
	c := sim.Config{
		Strategy: "fifo", Capacity: 4096, Workers: places, Objective: slo, Duration: from + length, Requests: requests(tenants, seed), Seed: seed,
	}
	o := outcome{seconds: c.Duration.Seconds()}
	c.Observe = func(r sim.Record) {
		if !r.Measured {
			return
		}
		a := &o.answers[r.Class]
		a.asked++
		if r.Outcome == sim.Served {
			_ = a.latency.RecordValue(min(int64(r.Latency), int64(time.Hour))) // within its bounds nothing fails
			if r.Latency <= slo {
				a.good++
			}
		}
	}
	if learns {
		c.Parallel, c.Limiter = places, judge.NewLearned()
	}
	for _, t := range tenants {
		weights[t.name] = t.weight
		c.Classes = append(c.Classes, sim.Class{Name: t.name, Service: sim.Constant(t.mean), Priority: sim.DefaultPriority})
		o.answers = append(o.answers, answers{latency: hdrhistogram.New(1, int64(time.Hour), 3)})
	}
	var had *clock
	c.New = func(k strategies.Config) strategies.Discipline {
		k.Weight = func(client string) int { return weights[client] }
		had = newClock(discipline(k), int64(time.Second+from), int64(time.Second+from+length))
		return had
	}
	if err := sim.Run(context.Background(), c); err != nil {
		return outcome{}, err
	}
	all := 0.
	for _, d := range had.had {
		all += float64(d)
	}
	o.places = all / float64(length)
	for _, t := range tenants {
		o.had = append(o.had, had.had[t.name])
		o.share = append(o.share, float64(had.had[t.name])/all)
		o.longest = append(o.longest, had.longest[t.name])
	}
	return o, nil
}

// jain is Jain's index of fairness: 1 if all have the same for their weight.
func jain(shares []float64, tenants []tenant) float64 {
	sum, squares := 0., 0.
	for i, s := range shares {
		s /= float64(tenants[i].weight)
		sum += s
		squares += s * s
	}
	return sum * sum / float64(len(shares)) / squares
}

// work is for how many places' time a second was answered in time.
func work(o outcome, tenants []tenant) (all float64) {
	for i, a := range o.answers {
		all += float64(a.good) * tenants[i].mean.Seconds() / o.seconds
	}
	return all
}

// light is a tenant that asks for half of its share, beside nine that ask for twice theirs.
func light() []tenant {
	tenants := ten(places)
	tenants[0].asks /= 4
	return tenants
}

// served is the p99 of what a tenant was answered.
func (o *outcome) served(tenant int) time.Duration {
	return time.Duration(o.answers[tenant].latency.ValueAtQuantile(99))
}

// good is how many answers were in time, to all tenants.
func (o *outcome) good() (n float64) {
	for _, a := range o.answers {
		n += float64(a.good)
	}
	return n
}

// several are the outcomes under several seeds.
type several []outcome

// median of a figure of each, printed in that format.
func (s several) median(format string, of func(outcome) float64) string {
	var values []float64
	for _, o := range s {
		values = append(values, of(o))
	}
	slices.Sort(values)
	return fmt.Sprintf(format, values[len(values)/2])
}

func report(w io.Writer, length time.Duration, seeds uint64) error {
	var failed error
	repeat := func(name string, tenants []tenant, slo time.Duration) (all several) {
		for seed := range seeds {
			o, err := try(name, tenants, length, slo, seed+1)
			if err != nil {
				failed = err
			}
			all = append(all, o)
		}
		return all
	}
	row := func(cells ...string) { _, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	good := func(o outcome) float64 { return o.good() / o.seconds }
	p99 := func(tenant int) func(outcome) float64 {
		return func(o outcome) float64 { return o.served(tenant).Seconds() * 1000 }
	}

	tenants, below, model := ten(places), light(), chat()
	_, _ = fmt.Fprintf(w, "%v over %d places. Ten tenants ask for twice their share: seven of 10 ms, one of 100 ms, one of 1 s, one of 1 ms to 1 s.\n"+
		"The light one asks for half of its share, beside nine of these. Alone its p99 is %s ms.\n\n",
		length, places, repeat("fair", below[:1], time.Second).median("%.1f", p99(0)))
	row("", "10 ms: time", "100 ms", "1 s", "any", "Jain", "good/s, 1 s", "their work", "good/s, 100 ms", "light: p99, ms")
	row(slices.Repeat([]string{"---"}, 10)...)
	for _, name := range names {
		cells := []string{"`" + name + "`"}
		ask := repeat(name, tenants, time.Second)
		cells = append(cells, ask.median("%.1f%%", func(o outcome) float64 {
			return 100 * (1 - o.share[7] - o.share[8] - o.share[9]) / 7 // the mean of the seven
		}))
		for _, i := range []int{7, 8, 9} {
			cells = append(cells, ask.median("%.1f%%", func(o outcome) float64 { return 100 * o.share[i] }))
		}
		row(append(cells, ask.median("%.3f", func(o outcome) float64 { return jain(o.share, tenants) }),
			ask.median("%.0f", good), ask.median("%.2f", func(o outcome) float64 { return work(o, tenants) }), repeat(name, tenants, 100*time.Millisecond).median("%.0f", good),
			repeat(name, below, time.Second).median("%.1f", p99(0)))...)
	}

	_, _ = fmt.Fprint(w, "\nA model server: 20 who chat, 0.2 to 1 s each, for 60% of the time, and a batch of 10 s each that asks for all of it.\n\n")
	row("", "chat within 3 s", "p99, ms", "batch: time")
	row(slices.Repeat([]string{"---"}, 4)...)
	for _, name := range names {
		o := repeat(name, model, 3*time.Second)
		row("`"+name+"`", o.median("%.1f%%", func(o outcome) float64 {
			good, asked := 0., 0.
			for _, a := range o.answers[1:] {
				good += float64(a.good)
				asked += float64(a.asked)
			}
			return 100 * good / asked
		}), o.median("%.0f", p99(1)), o.median("%.1f%%", func(o outcome) float64 { return 100 * o.share[0] }))
	}
	return failed
}

// worst returns by how much a tenant's share of the time differs most from its weight's, in parts of that, beyond its
// longest request.
func worst(o outcome, tenants []tenant, length time.Duration) float64 {
	weights, most := 0, 0.
	for _, t := range tenants {
		weights += t.weight
	}
	for i, t := range tenants {
		due := float64(t.weight) / float64(weights)
		slack := o.longest[i].Seconds() / (max(places, o.places) * length.Seconds())
		most = max(most, (math.Abs(o.share[i]-due)-slack)/due)
	}
	return most
}
