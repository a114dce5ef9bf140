package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/version"
	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/virtual"
	"github.com/spillway-go/spillway/loadtest/workload"
)

type simulateCommand struct {
	comparison `embed:""`

	Timeout time.Duration `placeholder:"TIME" help:"When a client gives up, after 10s by default, or as the scenario says."`
	Seed    *uint64       `placeholder:"N" help:"Simulations with the same seed are the same."`

	Service  work    `default:"exp:100us" help:"How long a worker takes for a request, unless a store delay says so: 4ms, exp:4ms, lognormal:4ms,1.5 (mean, coefficient of variation) or bimodal:1ms,50ms,0.05 (cheap, expensive, share of the expensive)."`
	ScanCost float64 `default:"10" help:"How many times as long a scan takes."`
	Costs    []int   `default:"1" placeholder:"N" help:"Costs of requests, drawn evenly. The strategy sees a request's cost, and the request takes that many times as long."`

	Out string `placeholder:"FOLDER" help:"Folder of the results; by default reports/simulated-NAME. An earlier simulation there is replaced."`
}

// work is a distribution of times of service.
type work struct{ sim.Distribution }

func (w *work) UnmarshalText(text []byte) (err error) {
	w.Distribution, err = sim.ParseDistribution(string(text))
	return err
}

// Help is shown by simulate --help.
func (*simulateCommand) Help() string {
	return "The strategies' own code runs in virtual time: no service, no network, and minutes of load take a moment. The same command gives the same figures anywhere. " +
		"Without --rates, each connection sends its next request when it has its answer, over 64 connections if --connections does not say otherwise; with rates, and without a scenario, there are so many connections that none is waited for. " +
		"Results are those of compare, and shown by report."
}

// Run simulates, and writes the results and their report.
func (c *simulateCommand) Run(ctx context.Context, s *session) error {
	what, err := c.scenario()
	if err != nil {
		return usageError{err}
	}
	dir := c.Out
	if dir == "" {
		dir = filepath.Join("reports", "simulated-"+what.Name)
	}
	// Whatever else is there is not replaced.
	before, err := lab.LoadComparison(dir)
	replaced := err == nil && strings.HasPrefix(before.Version, virtual.Simulated)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	service := &virtual.Service{
		Work: c.Service.Distribution, ScanCost: c.ScanCost, Costs: slices.Compact(slices.Sorted(slices.Values(c.Costs))), Built: "loadtest " + version.Get().String(),
	}
	err = s.compare(ctx, what, lab.CompareOptions{Binary: self, Dir: dir, Restart: replaced, Simulator: service})
	if errors.Is(err, lab.ErrTaken) {
		err = usageError{err}
	}
	return err
}

// scenario returns what the flags ask for.
func (c *simulateCommand) scenario() (*scenario.Scenario, error) {
	switch {
	case !(c.ScanCost > 0 && c.ScanCost <= 1e6):
		return nil, fmt.Errorf("--scan-cost: %g is not above 0, at most 1000000", c.ScanCost)
	case slices.ContainsFunc(c.Costs, func(n int) bool { return n < 1 || n > 1000 }):
		return nil, fmt.Errorf("--costs: %v are not all 1 to 1000", c.Costs)
	case c.Timeout < 0 || c.Timeout > time.Hour:
		return nil, fmt.Errorf("--timeout: %v is not more than 0, at most 1h", c.Timeout)
	}
	what, err := c.comparison.scenario("simulate", nil)
	if err != nil {
		return nil, err
	}
	for i := range what.Combinations {
		// A closed loop has as many requests under way as it has connections, so that
		// there the default is that of compare.
		if one := &what.Combinations[i]; c.Scenario == "" && one.Connections == 0 && one.Rate != "max" {
			one.Connections = workload.MaxConnections
		}
	}
	what.Timeout = cmp.Or(c.Timeout, what.Timeout)
	if c.Seed != nil {
		what.Seed = *c.Seed
	}
	return what, nil
}
