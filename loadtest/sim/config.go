package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// Config is what to simulate.
type Config struct {
	// Strategy is the name of the strategy. New, if not nil, makes its disciplines.
	Strategy string
	New      func(strategies.Config) strategies.Discipline
	// Workers is how many workers there are: 8 by default. Limiter, if not nil, says instead how many there are at a
	// time. It is for one node, and one simulation.
	Workers int
	Limiter Limiter
	// Capacity is how many requests may wait: as many as the strategy has by default.
	Capacity int
	// Parallel, if not 0, is how many requests the store behind the workers does at
	// once. What is begun past that waits in the store, first come first served.
	Parallel int
	// Serial slows down what the store does at once: with n requests each takes 1 + Serial·(n-1)
	// times as long, as one step of a model server does that decodes n streams. [Resource.Serial]
	// is the same law.
	Serial float64

	// Nodes, if there are any, are the services behind a load balancer, each with
	// a queue and workers of its own. By default there is one.
	Nodes []Node
	// Balance is how the load balancer chooses, one of Balances.
	Balance string

	// Requests returns a function that yields the requests, from the first and in
	// the order of their times. It says false when there are no more.
	Requests func() func() (Request, bool)
	// Service is how long a worker takes for a request.
	Service Distribution
	// Classes are the kinds of requests; by default there is one, of priority 3.
	Classes []Class
	// Connections, if not 0, is how many requests the clients have on their way at
	// once: a request that finds them all taken waits on the clients' side, on its
	// own clock.
	Connections int
	// Closed makes the load a closed loop: on each connection a request is sent when
	// the last is answered, until the window ends, and the times of Requests mean
	// nothing.
	Closed bool
	// Think is how long a connection of a closed loop rests between an answer and its next
	// request.
	Think time.Duration

	// Objective is that of the strategy: 0 for one that follows the usual service time, or
	// strategies.NoObjective.
	Objective time.Duration
	// Warmup passes under the same load before Duration, in which is measured. After
	// it the load goes on until every measured request has ended.
	Warmup, Duration time.Duration
	// Seed makes two simulations of the same Config the same. Under another
	// strategy the same requests arrive at the same times and cost the same.
	Seed uint64
	// Observe, if not nil, is called for every request when it ends.
	Observe func(Record)
	// ended, if not nil, is called for every attempt with which the service is done: it has run
	// it, or turned it away for a reason.
	ended func(*request, strategies.Reason)
	// untold has nobody tell the objective of answers.
	untold bool
}

// Node is one service of a fleet. Zero means what Config says.
type Node struct {
	Workers, Capacity int
	// Speed is how fast its workers are, 1 by default; 0.5 takes twice the time.
	Speed float64
}

// Request is one that arrives.
type Request struct {
	// At is when it arrives, since the start of the simulation, not before the one
	// before it.
	At time.Duration
	// Service is how long a worker takes for it; if 0, that is drawn, as its class
	// says.
	Service time.Duration
	// Class is an index of Config.Classes.
	Class int
	// Client is who sends it, for fairness, and Route what kind of request it is.
	Client, Route string
}

// Class is a kind of requests, and of clients that send them.
type Class struct {
	Name string
	// Weight is how often requests are of this class, relative to the others, for
	// Config.ServiceRate: 1 by default.
	Weight float64
	// Service is how long a worker takes for one: Config.Service by default.
	Service Distribution
	// Priority is 0, the most important, to 7.
	Priority uint8
	// Cost is the Task.Cost that strategies see. Service has to go by it, if it should.
	Cost int
	// Timeout is when a client stops waiting for an answer, counted from its
	// request's arrival; 0 is never.
	Timeout time.Duration
	// FromSent counts Timeout from when the request reaches the service, so that the wait
	// for a connection does not count.
	FromSent bool
	// Deadline says that it tells the service so, which answers 504 at that time
	// if the request still waits. Otherwise it just goes: a request that waits is
	// abandoned then, and one that has been started is run for nobody.
	Deadline bool
	// Retry is what clients do when a request is refused or its time is up.
	Retry Retry
}

// Retry is when a client sends a request again that was refused or timed out.
// The latency counts from the first time.
type Retry struct {
	// Attempts is how often it is sent at most: 0 and 1 mean no retries.
	Attempts int
	// Backoff is how long the client waits before the second attempt, and each
	// time twice as long, up to an hour.
	Backoff time.Duration
	// Jitter draws the wait evenly from 0 to that.
	Jitter bool
	// Budget, if not 0, is how many retries there may be for each first attempt of
	// the class, in the mean: 0.1 adds a tenth to the load at most. At most
	// budgetBurst retries can be saved up.
	Budget float64
}

// budgetBurst is how many retries a budget saves up at most.
const budgetBurst = 100

// The defaults of Config.
const (
	DefaultWorkers  = 8
	DefaultPriority = 3
)

// turnaround is how long a connection of a closed loop takes between an answer and
// its next request, at least. Without it one that is turned away at once would be sent again
// for ever at the same instant; and no generator sends more than about a million a
// second, however many connections it has.
func (c *Config) turnaround() time.Duration {
	return max(c.Think, 100*time.Microsecond, time.Duration(c.Connections)*time.Microsecond)
}

// withDefaults returns the configuration with its defaults filled in, on slices
// of its own.
func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	spec, _ := strategies.Lookup(c.Strategy)
	c.Capacity = spec.CapacityOr(c.Capacity)
	c.Balance = cmp.Or(c.Balance, Balances[0])
	c.Nodes = slices.Clone(c.Nodes)
	if len(c.Nodes) == 0 {
		c.Nodes = []Node{{}}
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.Workers = cmp.Or(n.Workers, c.Workers)
		n.Capacity = cmp.Or(n.Capacity, c.Capacity)
		n.Speed = cmp.Or(n.Speed, 1)
	}
	c.Classes = slices.Clone(c.Classes)
	if len(c.Classes) == 0 {
		c.Classes = []Class{{Priority: DefaultPriority}}
	}
	for i := range c.Classes {
		class := &c.Classes[i]
		class.Weight = cmp.Or(class.Weight, 1)
		if class.Service == nil {
			class.Service = c.Service
		}
	}
	return c
}

// check reports what cannot be simulated. The defaults have been filled in.
func (c *Config) check() error {
	switch {
	case c.Requests == nil:
		return errors.New("requests: say what is asked, and when")
	case c.Connections < 0 || c.Closed && c.Connections == 0:
		return fmt.Errorf("connections: %d is less than 0, or none for a closed loop", c.Connections)
	case c.Think < 0:
		return fmt.Errorf("think: %v is less than 0", c.Think)
	case c.Duration <= 0 || c.Warmup < 0:
		return fmt.Errorf("duration %v, warm-up %v: have to be above 0, warm-up at least 0", c.Duration, c.Warmup)
	case c.Parallel < 0:
		return fmt.Errorf("parallel: %d is less than 0", c.Parallel)
	case !(c.Serial >= 0 && c.Serial <= 1):
		return fmt.Errorf("serial: %g is not 0 to 1", c.Serial)
	case !slices.Contains(Balances, c.Balance):
		return fmt.Errorf("balance: %q is not one of %s", c.Balance, strings.Join(Balances, ", "))
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Workers < 1 || n.Capacity < 1 || !(n.Speed > 0) || math.IsInf(n.Speed, 1) {
			return fmt.Errorf("node %d: %d workers, capacity %d, speed %g: all have to be above 0", i, n.Workers, n.Capacity, n.Speed)
		}
	}
	for i := range c.Classes {
		if err := c.Classes[i].check(); err != nil {
			return fmt.Errorf("class %d (%s): %w", i, c.Classes[i].Name, err)
		}
	}
	return strategies.CheckObjective(c.Objective)
}

func (c *Class) check() error {
	switch {
	case !(c.Weight > 0) || math.IsInf(c.Weight, 1):
		return fmt.Errorf("weight: %g is not above 0", c.Weight)
	case c.Service == nil:
		return errors.New("service: say how long a request takes")
	case c.Service.Mean() <= 0:
		return fmt.Errorf("service: a mean of %v is not above 0", c.Service.Mean())
	case c.Priority > 7:
		return fmt.Errorf("priority: %d is not 0 to 7", c.Priority)
	case c.Timeout < 0 || c.Retry.Attempts < 0 || c.Retry.Backoff < 0 || !(c.Retry.Budget >= 0):
		return errors.New("time-out and retry: may not be less than 0")
	}
	return nil
}

// ServiceRate returns how many requests a second the workers, and the store behind
// them, can serve, all nodes together: the capacity that loads are multiples of. A
// strategy that takes no workers counts as if it had them, unless the store says
// what it can serve.
func (c Config) ServiceRate() float64 {
	c = c.withDefaults()
	spec, _ := strategies.Lookup(c.Strategy)
	workers, mean, weights := 0.0, 0.0, 0.0
	for _, n := range c.Nodes {
		if c.Parallel > 0 && (spec.Inline || c.Parallel < n.Workers) {
			n.Workers = c.Parallel
		}
		workers += float64(n.Workers) * n.Speed / slowdown(float64(n.Workers), c.Serial)
	}
	for _, class := range c.Classes {
		if class.Service != nil {
			mean += class.Weight * class.Service.Mean().Seconds()
			weights += class.Weight
		}
	}
	if mean == 0 {
		return 0
	}
	return workers * weights / mean
}
