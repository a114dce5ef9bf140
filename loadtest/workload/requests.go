package workload

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Request is one request of the load.
type Request struct {
	// At is when it is due, since the start of the run; 0 in a closed loop.
	At time.Duration
	// Seq numbers the requests of a run from 0.
	Seq uint64
	// Target says which of Options.Targets it is, counted from 1; 0 if it is an
	// operation of the service, with a key and, for a Put, the size of a value.
	Target int
	Op     Op
	Key    uint64
	// Size is in bytes.
	Size int
	// Priority is -1 if none is sent.
	Priority int8
	// Client is empty if none is sent.
	Client string
}

// Asks returns the index in Options.Asked of what the request asks for.
func (r *Request) Asks() int {
	if r.Target > 0 {
		return r.Target - 1
	}
	return int(r.Op)
}

// Stream makes the requests of a run, one after the other. Two streams of the same options
// make the same requests: every loop has its own, and takes its share. Times, keys, sizes
// and so on are drawn from separate random numbers, so that runs that differ in one of them
// are alike in all others.
type Stream struct {
	seq        uint64
	schedule   schedule
	keys       keys
	sizes      Sizes
	targets    bool     // whether targets are sent
	asks       chooser  // of operations or of targets
	priorities *chooser // nil if none are sent
	clients    []string // none if none are sent
	greed      chooser  // of clients

	times, choices, places, lengths, classes, senders *rand.Rand
}

// NewStream returns the stream of the load that o describes, whose defaults must be set.
func NewStream(o *Options) *Stream {
	s := &Stream{
		schedule: schedule{kind: o.Arrivals, rate: o.Rate, course: o.Profile.course(o.Warmup, o.Duration)},
		sizes:    o.ValueSize,
		asks:     newChooser(o.Mix.weights()),
		targets:  len(o.Targets) > 0,
	}
	if s.targets {
		weights := make([]float64, len(o.Targets))
		for i := range o.Targets {
			weights[i] = cmp.Or(o.Targets[i].Weight, 1)
		}
		s.asks = newChooser(weights)
	}
	for i, random := range []**rand.Rand{&s.times, &s.choices, &s.places, &s.lengths, &s.classes, &s.senders} {
		*random = rand.New(rand.NewPCG(Scramble(o.Seed), Scramble(uint64(i))))
	}
	s.keys = newKeys(o.Distribution, o.Keys, s.places)
	if o.Priority != (Priorities{}) {
		s.priorities = new(newChooser(o.Priority[:]))
	}
	names, _, weights, _ := o.Clients.Parse() // has been checked
	if s.clients = names; len(names) > 0 {
		s.greed = newChooser(weights)
	}
	return s
}

// Next makes the next request.
func (s *Stream) Next(r *Request) {
	r.Seq = s.seq
	s.seq++
	r.At = s.schedule.at(r.Seq, s.times)
	r.Priority = -1
	if ask := s.asks.choose(s.choices.Float64()); s.targets {
		r.Target = ask + 1
	} else {
		s.operation(r, Op(ask))
	}
	if s.priorities != nil {
		r.Priority = int8(s.priorities.choose(s.classes.Float64()))
	}
	if r.Client = ""; len(s.clients) > 0 {
		r.Client = s.clients[s.greed.choose(s.senders.Float64())]
	}
}

// operation makes r an operation of the service.
func (s *Stream) operation(r *Request, op Op) {
	r.Op, r.Size = op, 0
	r.Key = s.keys.next(op == Put)
	if op == Put {
		r.Size = s.sizes.Min
		if s.sizes.Max > s.sizes.Min {
			r.Size += s.lengths.IntN(s.sizes.Max - s.sizes.Min + 1)
		}
	}
}

// Scramble is the finalizer of SplitMix64 (Steele, Lea and Flood 2014): it maps
// the numbers to themselves, one to one, so that neighbours have nothing in
// common.
func Scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
