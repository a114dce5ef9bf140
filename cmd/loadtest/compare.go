package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"spillway/loadtest/lab"
	"spillway/loadtest/scenario"
	"spillway/loadtest/workload"
)

type compareCommand struct {
	Scenario string `placeholder:"NAME|FILE" help:"What to compare: one of ${scenarios}, or a scenario file."`
	Short    bool   `help:"The scenario's short form."`
	grid     `embed:"" group:"All combinations of (with a scenario: in place of its own values)"`

	Repetitions int                 `placeholder:"N" help:"How often each combination is run; less than 4 can prove nothing."`
	Duration    time.Duration       `help:"How long each run is measured."`
	Warmup      *time.Duration      `help:"How long load is sent before."`
	SLO         time.Duration       `name:"slo" help:"Latency within which an answer is good."`
	Fill        *workload.ByteCount `placeholder:"SIZE" help:"How much the store holds, or the largest store of the scenario."`

	Out        string `placeholder:"FOLDER" help:"Where the results go; by default reports/NAME, or a folder that is named after the settings. What is there is resumed."`
	Restart    bool   `help:"Discard what is there."`
	KeepStores bool   `help:"Keep the filled stores for the next time."`
	Binary     string `placeholder:"FILE" help:"The service; by default spillway beside this program, or in the PATH."`
	PeerBinary string `placeholder:"FILE" help:"What runs the peers that are named peer:NAME among the strategies; by default peer beside this program."`
}

// grid are the flags that stand for a scenario.
type grid struct {
	Strategies    []string `placeholder:"NAME" help:"Strategies, or all; compare also knows peers such as peer:limiter."`
	Workers       []string `placeholder:"N" help:"Numbers of workers."`
	Capacities    []string `placeholder:"N" help:"Numbers of requests that may wait."`
	Sync          []string `placeholder:"MODE" help:"always, never, interval:10ms."`
	Pools         []string `placeholder:"KIND" help:"shared, split."`
	StoreDelay    []string `placeholder:"TIME" help:"What each operation sleeps first, such as 4ms or exp:4ms."`
	StoreParallel []string `placeholder:"N" help:"How many operations the delayed store does at once; 0, the default, for as many as come."`
	Nodes         []string `placeholder:"N" help:"Numbers of services with these settings behind a load balancer; rates that are multiples are of all of them. simulate only."`
	SlowNode      []string `placeholder:"SPEED" help:"The speed of the first node, where the others have 1. simulate only."`
	Balance       []string `placeholder:"NAME" help:"How the load balancer chooses: round-robin (the default), random, least-outstanding, power-of-two, client-hash. simulate only."`
	Connections   []string `placeholder:"N" help:"Numbers of connections, for each node if there are several."`
	SlowClients   []string `placeholder:"N" help:"Numbers of slow clients beside the load: half send a value byte by byte, half read a long range slowly. compare only."`
	Rates         []string `placeholder:"RATE" help:"Requests a second, multiples of the capacity such as 0.9x, or max."`
	Mixes         []string ` sep:";" placeholder:"MIX" help:"Mixes such as 'put=50,get=50;get=100'."`
	Keys          []string `placeholder:"N" help:"Numbers of keys."`
	KeyDist       []string `name:"key-distributions" placeholder:"NAME" help:"uniform, zipf, sequential, latest."`
	ValueSizes    []string `placeholder:"SIZE" help:"Bytes of a value."`
	Profiles      []string `sep:";" placeholder:"SHAPE" help:"How the rate changes: steady, spike:4x,5s, ramp:0.5x,10x, burst:5x,100ms,1s."`
	Clients       []string `sep:";" placeholder:"WEIGHTS" help:"Who asks, such as greedy=95,other*19=5."`
	Priorities    []string `sep:";" placeholder:"WEIGHTS" help:"How important it is, such as 0=10,3=60,7=30."`
	Deadlines     []string `name:"timeout-header" placeholder:"true|false" help:"Whether clients tell their time-out."`
	Retries       []string `sep:";" placeholder:"N,BACKOFF" help:"What clients do with a refusal: none, or attempts and back-off such as 3,10ms."`
}

// settings returns what is given of the grid.
func (g *grid) settings() scenario.Settings {
	given := scenario.Settings{}
	for name, values := range map[string][]string{
		"strategy": g.Strategies, "workers": g.Workers, "capacity": g.Capacities, "sync": g.Sync, "pools": g.Pools,
		"store_delay": g.StoreDelay, "store_parallel": g.StoreParallel, "connections": g.Connections, "rate": g.Rates, "mix": g.Mixes, "keys": g.Keys,
		"key_distribution": g.KeyDist, "value_size": g.ValueSizes, "profile": g.Profiles, "clients": g.Clients,
		"priority": g.Priorities, "timeout_header": g.Deadlines, "retries": g.Retries,
		"slow_clients": g.SlowClients, "nodes": g.Nodes, "slow_node": g.SlowNode, "balance": g.Balance,
	} {
		if len(values) > 0 {
			given[name] = values
		}
	}
	return given
}

// Help is shown by compare --help.
func (*compareCommand) Help() string {
	return "The service is started once for every run, repetitions interleaved. An interrupted comparison goes on where it was when the same command is given again."
}

// Run makes the comparison, and its report.
func (c *compareCommand) Run(ctx context.Context, s *session) error {
	what, err := c.scenario()
	if err != nil {
		return usageError{err}
	}
	binary, err := c.service()
	if err != nil {
		return err
	}
	peers, err := c.peers()
	if err != nil {
		return err
	}
	dir := c.Out
	if dir == "" {
		if dir, err = c.folder(what); err != nil {
			return err
		}
	}
	begun := false
	found, err := lab.Compare(ctx, *what, lab.CompareOptions{
		Binary: binary, PeerBinary: peers, Dir: dir, Restart: c.Restart, KeepStores: c.KeepStores, Command: s.command,
		Progress: func(p lab.Progress) {
			if !begun {
				begun = true
				s.begins(what, p)
			}
			s.status("%d/%d, %v left: %s", p.Done, p.Total, p.Left.Round(time.Second), p.Doing)
		},
	})
	s.statusDone()
	if err != nil {
		return err
	}
	if !begun && s.live {
		_, _ = fmt.Fprintf(s.err, "%s: all %s were done before\n", what.Title, plural(what.Runs(), "run"))
	}
	if slices.ContainsFunc(found.Groups, func(g lab.Group) bool { return len(g.Runs) > 0 }) {
		s.summarize(found)
		if err := s.report(filepath.Join(dir, "report.html"), filepath.Join(dir, "report.md"), dir); err != nil {
			return err
		}
	}
	if found.Partial != "" {
		return fmt.Errorf("the comparison is partial: %s; the same command goes on", found.Partial)
	}
	return nil
}

// folder returns where the results go unless it is said: those of other settings
// are elsewhere.
func (c *compareCommand) folder(what *scenario.Scenario) (string, error) {
	name := what.Name
	if c.Scenario == "" || len(c.settings()) > 0 {
		settings, err := json.Marshal(what)
		if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s-%.4x", name, sha256.Sum256(settings))
	}
	return filepath.Join("reports", name), nil
}

// begins says what is going to be done, and what cannot come of it.
func (s *session) begins(what *scenario.Scenario, p lab.Progress) {
	if s.live {
		done := ""
		if p.Done > 0 {
			done = fmt.Sprintf(", %d of them done before", p.Done)
		}
		_, _ = fmt.Fprintf(s.err, "%s: %s of %s%s, about %v\n", what.Title, plural(p.Total, "run"),
			plural(len(what.Combinations), "combination"), done, p.Left.Round(time.Second))
	}
	if n := lab.NeverFull(what); n > 0 {
		_, _ = fmt.Fprintf(s.err, "note: in %d of %s no queue can overflow, as there are no more connections than workers and places to wait; "+
			"what is asked beyond the capacity waits in the generator\n", n, plural(len(what.Combinations), "combination"))
	}
	if n := lab.RangesUnknown(what); n > 0 {
		_, _ = fmt.Fprintf(s.err, "note: in %d of %s a peer is asked for ranges, which peers refuse: it has less to do than the strategies beside it\n",
			n, plural(len(what.Combinations), "combination"))
	}
}

// scenario returns what the flags ask for.
func (c *compareCommand) scenario() (*scenario.Scenario, error) {
	what, err := c.chosen()
	if err != nil {
		return nil, err
	}
	if c.Fill != nil {
		if *c.Fill < 1 {
			return nil, errors.New("--fill: 0 is not at least 1")
		}
		if err := what.SetLargestFill(int64(*c.Fill)); err != nil {
			return nil, fmt.Errorf("--%w", err)
		}
	}
	const day = 24 * time.Hour
	switch {
	case c.Repetitions < 0 || c.Repetitions > 1000:
		return nil, fmt.Errorf("--repetitions: %d is not 1 to 1000", c.Repetitions)
	case c.Duration < 0 || c.Duration > day:
		return nil, fmt.Errorf("--duration: %v is not more than 0, at most 24h", c.Duration)
	case c.SLO < 0 || c.SLO > time.Hour:
		return nil, fmt.Errorf("--slo: %v is not more than 0, at most 1h", c.SLO)
	case c.Warmup != nil && (*c.Warmup < 0 || *c.Warmup > day):
		return nil, fmt.Errorf("--warmup: %v is not 0 to 24h", *c.Warmup)
	}
	what.Repetitions = cmp.Or(c.Repetitions, what.Repetitions)
	what.Duration = cmp.Or(c.Duration, what.Duration)
	what.SLO = cmp.Or(c.SLO, what.SLO)
	if c.Warmup != nil {
		what.Warmup = *c.Warmup
	}
	return what, nil
}

// chosen returns the scenario that is named, or that of the grid.
func (c *compareCommand) chosen() (*scenario.Scenario, error) {
	settings := c.settings()
	if c.Scenario == "" {
		if len(settings) == 0 {
			return nil, errors.New("compare: what? Give --scenario, or settings such as --strategies fifo,lifo (see loadtest compare --help)")
		}
		if c.Short {
			return nil, errors.New("--short: only a --scenario has a short form")
		}
		if c.Fill != nil {
			settings["fill"] = []string{strconv.FormatInt(int64(*c.Fill), 10)}
		}
		return scenario.New("comparison", "Comparison", "Which of these settings serves this load best?", settings)
	}
	what, err := open(c.Scenario, settings)
	if err != nil {
		return nil, fmt.Errorf("--scenario: %w", err)
	}
	if c.Short {
		return short(what)
	}
	return what, nil
}

// peers returns the path of the peers' binary, empty if there is none.
func (c *compareCommand) peers() (string, error) {
	if c.PeerBinary != "" {
		path, err := exec.LookPath(c.PeerBinary)
		if err != nil {
			return "", usageError{fmt.Errorf("--peer-binary: %w", err)}
		}
		return filepath.Abs(path)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "peer")); err == nil {
		return path, nil
	}
	return "", nil // which matters only if a peer is asked for
}

// service returns the path of the service's binary.
func (c *compareCommand) service() (string, error) {
	const name = "spillway"
	if c.Binary != "" {
		path, err := exec.LookPath(c.Binary)
		if err != nil {
			return "", usageError{fmt.Errorf("--binary: %w", err)}
		}
		return filepath.Abs(path)
	}
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errors.New("the service is neither beside this program nor in the PATH: make build builds both, or say --binary")
	}
	return filepath.Abs(path)
}
