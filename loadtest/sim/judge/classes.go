package judge

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// Class is a kind of experiments, one for each seed and load.
type Class struct {
	Name    string
	Unknown func(seed uint64, load float64) sim.Unknown
}

// Plain are random resources before which clients wait for ever.
func Plain() Class {
	return Class{"plain", func(seed uint64, load float64) sim.Unknown {
		return sim.Unknown{Resource: sim.RandomResource(seed), Load: load, Seed: seed}
	}}
}

// Classes are what real clients do, each before random resources of which nothing changes.
func Classes() []Class {
	clients := func(name string, change func(d *draws, u *sim.Unknown)) Class {
		return Class{name, func(seed uint64, load float64) sim.Unknown {
			u := sim.Unknown{Resource: sim.RandomResource(seed), Load: load, Seed: seed}
			u.Resource.Change = sim.Change{}
			change(&draws{rand.New(rand.NewPCG(seed, 22))}, &u)
			return u
		}}
	}
	return []Class{
		clients("deadlines that are told", func(d *draws, u *sim.Unknown) {
			u.Clients = sim.Clients{Impatient: 1, Patience: d.part(u.Resource.Objective(), 0.2, 1), Deadline: true}
		}),
		clients("clients that leave", func(d *draws, u *sim.Unknown) {
			u.Clients = sim.Clients{Impatient: 1, Patience: d.part(u.Resource.Objective(), 0.2, 1)}
		}),
		clients("impatient beside patient", func(d *draws, u *sim.Unknown) {
			u.Clients = sim.Clients{
				Impatient: d.between(0.1, 0.5), Patience: d.part(u.Resource.Work.Mean(), 0.5, 3), Deadline: d.Float64() < 0.5,
			}
		}),
		clients("nights", func(_ *draws, u *sim.Unknown) {
			n, rate := u.Resource.Best()
			length := seconds(max(10_000, 500*float64(n)) / rate)
			day := sim.Phase{For: length, Wide: 1, Load: u.Load}
			u.Phases = []sim.Phase{day, {For: length, Wide: 1, Load: 0.02}, day}
		}),
		clients("streams", func(d *draws, u *sim.Unknown) {
			width := int(d.between(8, 256))
			u.Resource = sim.Resource{
				Work:  sim.LogNormal{Average: d.part(time.Second, 2, 20), CV: d.between(0.5, 1.5)},
				Hands: width, Serial: d.between(0.2, 1) / float64(width),
			}
		}),
		clients("few connections", func(d *draws, u *sim.Unknown) {
			n, _ := u.Resource.Best()
			u.Clients.Connections = int(math.Ceil(float64(n) * d.between(1, 4)))
		}),
		clients("errors in a tenth", func(_ *draws, u *sim.Unknown) { u.Clients.Errors = 0.1 }),
	}
}

// draws are what is drawn for a class.
type draws struct{ *rand.Rand }

func (d *draws) between(low, high float64) float64 {
	return low * math.Exp(d.Float64()*math.Log(high/low))
}

func (d *draws) part(of time.Duration, low, high float64) time.Duration {
	return time.Duration(float64(of) * d.between(low, high))
}

// Slow is the first 30 s of a cold start of a resource that does so many at once, each in 2 s,
// at half as many a second, which is all that it can do. It returns the goodput in parts of what
// can end in that time.
func Slow(hands int, work sim.Distribution, seed uint64, limiter func() sim.Limiter) float64 {
	const length = 30 * time.Second
	u := sim.Unknown{
		Resource: sim.Resource{Work: work, Hands: hands}, Limiter: limiter(), Seed: seed,
		Phases: []sim.Phase{{For: length, Wide: 1, Load: 1}},
	}
	r := u.Run()
	return r.Goodput * length.Seconds() / (r.Rate * (length - work.Mean()).Seconds())
}

// Shared is several learners before one resource.
type Shared struct {
	Learners int
	// Late has them begin one after the other, and Uneven gives every other one three times
	// the load.
	Late, Uneven bool
}

// AllShared are those that laws are judged at.
func AllShared() (all []Shared) {
	for _, n := range []int{2, 4, 8} {
		all = append(all, Shared{Learners: n}, Shared{Learners: n, Late: true}, Shared{Learners: n, Uneven: true})
	}
	return all
}

// SharedRun is what came of it.
type SharedRun struct {
	// Ratio is the goodput of all in parts of that of the oracle, sim.Told. Jain is
	// his index of fairness, of those with the same load.
	Ratio, Jain float64
	// Each is the goodput of each.
	Each []float64
}

// Run has them share the resource of a seed, or the first after it that does most with twice as
// many at once as there are learners, or more, up to 200. It is measured for 400 service times,
// from 200 on, or 2,000 requests if that is later. Those that come late begin one after the other
// that far apart.
func (s Shared) Run(seed uint64, load float64, limiter func() sim.Limiter) SharedRun {
	r := sim.RandomResource(seed)
	n, rate := r.Best()
	for i := uint64(1); n < 2*s.Learners || n > 200; i++ {
		r = sim.RandomResource(seed + i<<32)
		n, rate = r.Best()
	}
	r.Change, r.Timeout, r.Orphans = sim.Change{}, 0, false
	share := 200 * float64(n) // requests in which a late one should have its share
	u := sim.Unknown{Resource: r, Load: load, Seed: seed, Limiter: &sim.Told{}, Length: int(2 * share)}
	u.Warmup = int(max(2_000, share))
	if s.Late {
		u.Warmup *= s.Learners
	}
	oracle := u.Run().Goodput
	u.Limiter = limiter()
	for i := 1; i < s.Learners; i++ {
		b := sim.Beside{Limiter: limiter()}
		if s.Late {
			b.From = seconds(float64(u.Warmup) / rate / float64(s.Learners) * float64(i))
		}
		if s.Uneven && i%2 == 1 {
			b.Weight = 3
		}
		u.Beside = append(u.Beside, b)
	}
	out := u.Run()
	run := SharedRun{Ratio: ratio(out.Goodput, oracle), Jain: 1, Each: out.Each}
	loads := 1
	if s.Uneven {
		loads = 2
	}
	for i := range loads {
		var same []float64
		for j := i; j < len(out.Each); j += loads {
			same = append(same, out.Each[j])
		}
		run.Jain = min(run.Jain, jain(same))
	}
	return run
}

// jain returns Jain's index of fairness: 1 if all are the same.
func jain(x []float64) float64 {
	sum, squares := 0., 0.
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / squares / float64(len(x))
}
