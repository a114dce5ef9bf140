package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"spillway/strategies"
)

// start is the time at which a simulation begins, so that no discipline sees the
// time 0, which can mean "not yet" to it.
const start = int64(time.Second)

// ErrStopped is returned by Run when the simulation was ended by Config.Stop.
var ErrStopped = errors.New("the simulation was stopped")

// Run simulates a configuration. Its error says what of it cannot be simulated.
// It may be called by many goroutines at once, each with its own Config.
func Run(c Config) (*Result, error) {
	capacity := c.ServiceRate()
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.New == nil {
		spec, err := strategies.Lookup(c.Strategy)
		if err != nil {
			return nil, err
		}
		c.New = spec.New
	}
	s := newSimulation(&c)
	if !s.simulate() {
		return nil, ErrStopped
	}
	return s.result(capacity), nil
}

// simulation is one that runs.
type simulation struct {
	c      *Config
	now    int64
	agenda agenda
	nodes  []*node
	balancer
	classes []class
	choose  func() int // draws a class
	queued  backlog    // what waits for a connection
	free    int        // connections that are; counts only with Config.Connections
	pool    []*request

	begin, end int64 // of the measured window
	events     int64
	busy       int     // workers at work
	busySince  int64   // when that changed last
	busySum    float64 // of nanoseconds
	timeline   []Interval

	// Each thing that is drawn has random numbers of its own, so that
	// configurations which differ in one are alike in all others.
	times, kinds, works, senders, waits *rand.Rand
}

// class is a Class at work.
type class struct {
	Class
	counts  Counts
	clients []string
	budget  float64 // retries that may be made
}

func newSimulation(c *Config) *simulation {
	s := &simulation{c: c, now: start, begin: start + int64(c.Warmup), free: c.Connections}
	s.end = s.begin + int64(c.Duration)
	var choices *rand.Rand
	for i, random := range []**rand.Rand{&s.times, &s.kinds, &s.works, &s.senders, &s.waits, &choices} {
		*random = rand.New(rand.NewPCG(c.Seed, uint64(i)))
	}
	for i := range c.Nodes {
		s.nodes = append(s.nodes, newNode(s, c.New, c.Nodes[i]))
	}
	s.balancer = balancer{how: c.Balance, nodes: s.nodes, random: choices}
	sum := 0.0
	for i := range c.Classes {
		s.classes = append(s.classes, class{Class: c.Classes[i], counts: newCounts(), clients: c.Classes[i].clients()})
		sum += c.Classes[i].Weight
	}
	s.choose = func() int {
		at := s.kinds.Float64() * sum
		for i := range s.classes {
			if at -= s.classes[i].Weight; at < 0 {
				return i
			}
		}
		return len(s.classes) - 1
	}
	if c.Step > 0 {
		n := int((c.Duration + c.Step - 1) / c.Step)
		s.timeline = make([]Interval, n)
		for i := range s.timeline {
			s.timeline[i].Latency = hdrhistogram.New(1, longest.Microseconds(), 2)
			s.agenda.plan(min(s.end, s.begin+int64(i+1)*int64(c.Step)), sampled, nil)
		}
	}
	return s
}

// simulate goes from event to event until nothing happens any more, and reports
// whether it was not stopped before.
func (s *simulation) simulate() (whole bool) {
	next := s.arrivals()
	arrival := next()
	for steps := 0; ; steps++ {
		if steps%stepsPerLook == 0 && s.stopped() {
			return false
		}
		due := s.agenda.peek()
		switch {
		case arrival.at < s.end && (due == nil || arrival.at < due.at):
			s.now = arrival.at
			s.events++
			s.offer(arrival)
			arrival = next()
		case due != nil:
			s.step()
		default:
			return true
		}
	}
}

// stepsPerLook is how many steps go by between two looks whether to stop.
const stepsPerLook = 1 << 12

func (s *simulation) stopped() bool {
	select {
	case <-s.c.Stop:
		return true
	default:
		return false
	}
}

// step does what happens next.
func (s *simulation) step() {
	e := s.agenda.next()
	if e.req != nil && e.req.gen != e.gen {
		return
	}
	s.now = e.at
	s.events++
	switch e.kind {
	case finished:
		e.req.node.finish(e.req)
	case gaveUp:
		s.giveUp(e.req)
	case retried:
		s.submit(e.req)
	case answered:
		s.release(e.req)
	case sampled:
		i := int((s.now - s.begin - 1) / int64(s.c.Step))
		s.timeline[i].Busy = s.busy
		for _, n := range s.nodes {
			s.timeline[i].Depth += n.discipline.Len()
		}
	}
}

// busyChanges notes that so many more workers are at work.
func (s *simulation) busyChanges(by int) {
	from, to := max(s.busySince, s.begin), min(s.now, s.end)
	if to > from {
		s.busySum += float64(s.busy) * float64(to-from)
	}
	s.busySince = s.now
	s.busy += by
}

// interval returns the part of the timeline in which a time lies; nil if there
// is none.
func (s *simulation) interval(at int64) *Interval {
	if s.timeline == nil || at < s.begin || at >= s.end {
		return nil
	}
	return &s.timeline[(at-s.begin)/int64(s.c.Step)]
}

func (s *simulation) result(capacity float64) *Result {
	s.now = max(s.now, s.end)
	s.busyChanges(0)
	r := &Result{
		Counts: newCounts(), Seconds: s.c.Duration.Seconds(), Capacity: capacity,
		Busy: s.busySum / float64(s.c.Duration), Timeline: s.timeline, Events: s.events,
	}
	for i := range s.classes {
		c := &s.classes[i].counts
		r.add(c)
		c.close()
		r.Classes = append(r.Classes, ClassResult{Name: s.classes[i].Name, Counts: *c})
	}
	for _, n := range s.nodes {
		r.Nodes = append(r.Nodes, n.result)
	}
	r.Counts.close()
	return r
}
