package workload

import (
	"math/rand/v2"
	"time"
)

// Request is one request of the load.
type Request struct {
	// At is when it is due, since the start of the run; 0 in a closed loop.
	At time.Duration
	// Seq numbers the requests of a run from 0.
	Seq uint64
	Op  Op
	Key uint64
	// Size is the length of the value of a Put.
	Size int
	// Priority is -1 if none is sent.
	Priority int8
	// Client is empty if none is sent.
	Client string
}

// Stream makes the requests of a run, one after the other. Two streams of the
// same options make the same: every loop has its own, and takes its share. Each
// thing that is drawn has random numbers of its own, so that runs which differ in
// one, say the sizes of values, are alike in all others.
type Stream struct {
	seq        uint64
	schedule   schedule
	keys       keys
	sizes      Sizes
	ops        chooser
	priorities *chooser // nil if none are sent
	clients    []string // none if none are sent
	greed      chooser  // of clients

	times, choices, places, lengths, classes, senders *rand.Rand
}

// NewStream returns the stream of the load that o describes, whose defaults must be set.
func NewStream(o *Options) *Stream {
	s := &Stream{
		schedule: schedule{kind: o.Arrivals, rate: o.Rate, course: o.Profile.course(o.Warmup, o.Duration)},
		keys:     newKeys(o.Distribution, o.Keys),
		sizes:    o.ValueSize,
		ops:      newChooser(o.Mix.weights()),
	}
	for i, random := range []**rand.Rand{&s.times, &s.choices, &s.places, &s.lengths, &s.classes, &s.senders} {
		*random = rand.New(rand.NewPCG(Scramble(o.Seed), Scramble(uint64(i))))
	}
	if o.Priority != (Priorities{}) {
		priorities := newChooser(o.Priority[:])
		s.priorities = &priorities
	}
	names, weights, _ := o.Clients.parse() // has been checked
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
	r.Op = Op(s.ops.choose(s.choices.Float64()))
	r.Key = s.keys.next(s.places, r.Op == Put)
	r.Size, r.Priority = 0, -1
	if r.Op == Put {
		r.Size = s.sizes.Min
		if s.sizes.Max > s.sizes.Min {
			r.Size += s.lengths.IntN(s.sizes.Max - s.sizes.Min + 1)
		}
	}
	if s.priorities != nil {
		r.Priority = int8(s.priorities.choose(s.classes.Float64()))
	}
	if r.Client = ""; len(s.clients) > 0 {
		r.Client = s.clients[s.greed.choose(s.senders.Float64())]
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
