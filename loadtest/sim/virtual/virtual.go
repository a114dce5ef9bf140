// Package virtual stands for the service in the load lab: it simulates the runs
// of a comparison, of the same requests at the same times as loadtest run sends
// them, and tells what became of them in the same form.
package virtual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

// Service is what a simulation adds to what a scenario says: how long work takes.
type Service struct {
	// Work is how long a worker takes for a request if the scenario does not say.
	Work sim.Distribution
	// ScanCost is how many times as long it takes for a scan, 1 by default.
	ScanCost float64
	// Costs are drawn evenly: the strategy sees the cost of a request, which takes that many times as long. None: 1.
	Costs []int
	// Built is the version of the program.
	Built string
}

var _ lab.Simulator = (*Service)(nil)

// Version says what simulates.
func (s *Service) Version() string { return Simulated + s.Built }

// Simulated is how the version of what simulates begins.
const Simulated = "simulated by "

// Capacity returns what the workers can serve. Strategies that need no workers
// count as if they had them.
func (s *Service) Capacity(c *scenario.Combination, o workload.Options) (float64, error) {
	config, _, err := s.config(c, o.WithDefaults())
	return config.ServiceRate(), err
}

// Simulate simulates one run. It ends early, with an error, when ctx does.
func (s *Service) Simulate(ctx context.Context, c *scenario.Combination, o workload.Options) (*result.Result, error) {
	o = o.WithDefaults()
	config, kinds, err := s.config(c, o)
	if err != nil {
		return nil, err
	}
	tally := result.NewTally(o)
	config.Observe = func(r sim.Record) {
		k := kinds[r.Class]
		part := tally.Part(&workload.Request{Op: k.op, Priority: k.priority, Client: r.Client})
		now := r.Arrival + r.Latency
		tally.Offered(r.Arrival, part)
		tally.Retried(r.Arrival, max(0, r.Attempts-1))
		if r.Attempts > 0 && o.Rate > 0 {
			tally.Begun(r.Arrival, r.Sent, r.Sent)
		}
		switch {
		case r.Outcome == sim.Served:
			tally.Answered(r.Arrival, r.Sent, now, part, cmp.Or(statuses[k.op], http.StatusOK), "")
		case r.Outcome == sim.Refused && r.Reason == strategies.ReasonExpired:
			tally.Answered(r.Arrival, r.Sent, now, part, http.StatusGatewayTimeout, r.Reason.String())
		case r.Outcome == sim.Refused:
			tally.Answered(r.Arrival, r.Sent, now, part, http.StatusServiceUnavailable, r.Reason.String())
		case r.Attempts == 0:
			tally.Failed(r.Arrival, workload.Never, now, part, result.ErrorUnsent)
		default:
			tally.Failed(r.Arrival, r.Sent, now, part, result.ErrorTimeout)
		}
	}
	if err := sim.Run(ctx, config); err != nil {
		return nil, err
	}
	found := tally.Result(time.Time{}, o.Duration)
	found.URL, found.Strategy = "simulated", c.Strategy
	if spec, _ := strategies.Lookup(c.Strategy); !spec.Inline {
		found.Workers = len(config.Nodes) * config.Workers
	}
	if c.Strategy != "unbounded" {
		found.Capacity = new(len(config.Nodes) * config.Capacity)
	}
	return found, nil
}

// statuses are those of operations that are served, but for 200.
var statuses = map[workload.Op]int{workload.Put: http.StatusCreated, workload.Delete: http.StatusAccepted}

// kind is what the requests of a class have in common.
type kind struct {
	op       workload.Op
	priority int8
	cost     int
}

// times is a multiple of another distribution.
type times struct {
	sim.Distribution
	factor float64
}

// Draw returns a time.
func (t times) Draw(r *rand.Rand) time.Duration {
	return time.Duration(t.factor * float64(t.Distribution.Draw(r)))
}

// Mean returns the mean.
func (t times) Mean() time.Duration { return time.Duration(t.factor * float64(t.Distribution.Mean())) }

// config returns what a run is, and the kinds of its classes.
func (s *Service) config(c *scenario.Combination, o workload.Options) (sim.Config, []kind, error) {
	work := s.Work
	if c.StoreDelay != "" && c.StoreDelay != "0" {
		var err error
		if work, err = sim.ParseDistribution(c.StoreDelay); err != nil {
			return sim.Config{}, nil, fmt.Errorf("store_delay: %w", err)
		}
	}
	if work == nil {
		return sim.Config{}, nil, errors.New("how long does a request take? The scenario has no store_delay, nor is --service given")
	}
	objective, err := objectiveOf(c, o.SLO)
	if err != nil {
		return sim.Config{}, nil, err
	}
	nodes := max(1, c.Nodes)
	spec, _ := strategies.Lookup(c.Strategy)
	config := sim.Config{
		Strategy: c.Strategy, Workers: cmp.Or(c.Workers, 2*runtime.NumCPU()), Capacity: spec.CapacityOr(c.Capacity),
		Parallel: c.StoreParallel, Serial: c.StoreSerial, Nodes: make([]sim.Node, nodes), Balance: c.Balance,
		Objective: objective, Warmup: o.Warmup, Duration: o.Duration, Seed: o.Seed,
		Connections: nodes * o.Connections, Closed: o.Rate == 0, Think: o.Think,
	}
	config.Nodes[0].Speed = c.SlowNode
	// As workload.Retries says that clients do.
	retry := sim.Retry{Attempts: o.Retries.Attempts, Backoff: o.Retries.Backoff, Budget: o.Retries.Budget, Jitter: true}
	costs := s.Costs
	if len(costs) == 0 {
		costs = []int{1}
	}
	var kinds []kind
	add := func(op workload.Op, weight float64, priority int8, share float64) {
		if weight*share == 0 {
			return
		}
		for _, cost := range costs {
			kinds = append(kinds, kind{op, priority, cost})
			class := sim.Class{
				Name: op.String(), Weight: weight * share, Service: work, Priority: sim.DefaultPriority, Cost: cost,
				Timeout: o.Timeout, Deadline: o.TimeoutHeader, Retry: retry,
			}
			if priority >= 0 {
				class.Priority = uint8(priority)
			}
			factor := float64(cost)
			if op == workload.Scan && s.ScanCost > 0 {
				factor *= s.ScanCost
			}
			if factor != 1 {
				class.Service = times{work, factor}
			}
			config.Classes = append(config.Classes, class)
		}
	}
	for op, weight := range []float64{
		workload.Put: o.Mix.Put, workload.Get: o.Mix.Get, workload.Delete: o.Mix.Delete, workload.Scan: o.Mix.Scan,
	} {
		op := workload.Op(op)
		if o.Priority == (workload.Priorities{}) {
			add(op, weight, -1, 1)
			continue
		}
		for priority, share := range o.Priority {
			add(op, weight, int8(priority), share)
		}
	}
	config.Requests = requests(o, kinds, costs)
	return config, kinds, nil
}

// objectiveOf returns the objective of the strategy, as sim.Config.Objective has it.
func objectiveOf(c *scenario.Combination, slo time.Duration) (time.Duration, error) {
	switch c.Objective {
	case "":
		return slo, nil
	case scenario.Unset:
		return 0, nil
	case scenario.NoObjective:
		return strategies.NoObjective, nil
	}
	d, err := time.ParseDuration(c.Objective)
	if err != nil {
		return 0, fmt.Errorf("objective: %w", err)
	}
	return d, nil
}

// costSeed keeps the costs apart from all else that is drawn.
const costSeed = 0xc057

// requests yields those that loadtest run sends.
func requests(o workload.Options, kinds []kind, costs []int) func() func() (sim.Request, bool) {
	return func() func() (sim.Request, bool) {
		stream, drawn := workload.NewStream(&o), rand.New(rand.NewPCG(o.Seed, costSeed))
		var r workload.Request
		return func() (sim.Request, bool) {
			stream.Next(&r)
			return sim.Request{At: r.At, Class: slices.Index(kinds, kind{r.Op, r.Priority, costs[drawn.IntN(len(costs))]}), Client: r.Client}, true
		}
	}
}
