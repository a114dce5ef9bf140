package sim

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// start is the time at which a simulation begins, so that no discipline sees the
// time 0, which can mean "not yet" to it.
const start = int64(time.Second)

// Run simulates a configuration, and shows what comes of it to its Observe. Its error says what
// cannot be simulated, or is the cause of ctx, which has ended. It may be called by many goroutines
// at once, each with its own Config.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return err
	}
	spec, err := strategies.Lookup(c.Strategy)
	if err != nil {
		return err
	}
	if c.New == nil {
		c.New = spec.New
	}
	return newSimulation(&c).simulate(ctx)
}

// simulation is one that runs.
type simulation struct {
	c      *Config
	now    int64
	agenda agenda
	nodes  []*node
	balancer
	classes []class
	draw    func() (Request, bool) // draws the next request
	coming  Request                // has been drawn
	due     int64                  // when that arrives; math.MaxInt64 if nothing does any more
	queued  backlog[*request]      // what waits for a connection
	free    int                    // connections that are; counts only with Config.Connections
	pool    []*request

	begin, end int64 // of the measured window
	open       int64 // measured requests that have not ended, and attempts at them

	// Each thing that is drawn has random numbers of its own, so that
	// configurations which differ in one are alike in all others.
	works, waits *rand.Rand
}

// class is a Class at work.
type class struct {
	Class
	budget float64 // retries that may be made
}

func newSimulation(c *Config) *simulation {
	s := &simulation{c: c, now: start, begin: start + int64(c.Warmup), free: c.Connections, draw: c.Requests()}
	s.end = s.begin + int64(c.Duration)
	// Other numbers than 2, 4 and 5 are left to whoever draws the requests.
	s.works, s.waits = rand.New(rand.NewPCG(c.Seed, 2)), rand.New(rand.NewPCG(c.Seed, 4))
	for i := range c.Nodes {
		s.nodes = append(s.nodes, newNode(s, c.Nodes[i]))
	}
	s.balancer = balancer{how: c.Balance, random: rand.New(rand.NewPCG(c.Seed, 5))}
	for i := range c.Classes {
		s.classes = append(s.classes, class{Class: c.Classes[i]})
	}
	return s
}

// simulate goes from event to event until all that is measured has ended.
func (s *simulation) simulate(ctx context.Context) error {
	if s.c.Closed {
		s.due = math.MaxInt64
		for range s.c.Connections {
			s.release()
		}
	} else {
		s.advance()
	}
	for steps := 0; ; steps++ {
		if steps%stepsPerLook == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		next := s.agenda.peek()
		switch {
		case s.arriving() && (next == nil || s.due < next.at):
			s.now = s.due
			s.offer(s.coming)
			s.advance()
		case next != nil && (s.open > 0 || next.at <= s.end):
			s.step()
		default:
			return nil
		}
	}
}

// arriving tells whether the next request arrives. The load goes on past the window
// until the last measured request has ended, so that this one meets the same load
// as all others: an order that serves the newest first would otherwise serve, once
// nothing new came, whom it had long passed over. Clients that never give up may be
// passed over for ever; they are waited for no more than an hour.
func (s *simulation) arriving() bool {
	return s.due < s.end || s.open > 0 && s.due < s.end+int64(longest)
}

// stepsPerLook is how many steps go by between two looks whether to stop.
const stepsPerLook = 1 << 12

// step does what happens next.
func (s *simulation) step() {
	next := s.agenda.next()
	e := next.value
	if e.req != nil && e.req.gen != e.gen || e.kind == finished && e.req.node.batch != nil && e.req.node.batch.due != next.seq {
		return
	}
	s.now = next.at
	switch e.kind {
	case finished:
		e.req.node.finish(e.req)
	case gaveUp:
		s.giveUp(e.req)
	case retried:
		s.submit(e.req)
	case answered:
		s.release()
	}
}
