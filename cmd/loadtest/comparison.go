package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/scenarios"
)

// comparison holds the flags that say which settings are compared, in runs or in
// simulations.
type comparison struct {
	Scenario string `placeholder:"NAME|FILE" help:"What to compare: one of ${scenarios}, or a scenario file."`
	Short    bool   `help:"The scenario's short form."`
	grid     `embed:"" group:"grid"`

	Repetitions int            `placeholder:"N" help:"How often each combination is run; less than 4 can prove nothing."`
	Duration    time.Duration  `help:"How long each run is measured."`
	Warmup      *time.Duration `help:"How long load is sent before."`
	SLO         time.Duration  `name:"slo" help:"Latency within which an answer is good, 100ms by default. The service is told so."`
}

// grid are the flags that stand for a scenario.
type grid struct {
	Strategies    []string `placeholder:"NAME" help:"Strategies, or all."`
	Workers       []string `placeholder:"N" help:"Numbers of workers."`
	Capacities    []string `placeholder:"N" help:"Numbers of requests that may wait."`
	Objectives    []string `placeholder:"TIME" help:"What the service is told that answers are good within, where that is not the --slo: a time, none (nobody is refused for being late), or unset."`
	Sync          []string `placeholder:"MODE" help:"always, never, interval:10ms."`
	StoreDelay    []string `placeholder:"TIME" help:"What each operation sleeps first, such as 4ms or exp:4ms."`
	StoreParallel []string `placeholder:"N" help:"How many operations the delayed store does at once; 0, the default, for as many as come."`
	Connections   []string `placeholder:"N" help:"Numbers of connections, for each node if there are several."`
	Rates         []string `placeholder:"RATE" help:"Requests a second, multiples of the capacity such as 0.9x, or max."`
	Think         []string `placeholder:"TIME" help:"How long connections rest between an answer and the next request, with --rates max."`
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
	return given(scenario.Settings{
		"strategy": g.Strategies, "workers": g.Workers, "capacity": g.Capacities, "objective": g.Objectives, "sync": g.Sync,
		"store_delay": g.StoreDelay, "store_parallel": g.StoreParallel, "connections": g.Connections, "rate": g.Rates, "think": g.Think, "mix": g.Mixes, "keys": g.Keys,
		"key_distribution": g.KeyDist, "value_size": g.ValueSizes, "profile": g.Profiles, "clients": g.Clients,
		"priority": g.Priorities, "timeout_header": g.Deadlines, "retries": g.Retries,
	})
}

// given deletes the settings that have no value.
func given(settings scenario.Settings) scenario.Settings {
	maps.DeleteFunc(settings, func(_ string, values []string) bool { return len(values) == 0 })
	return settings
}

// scenario returns what the flags of a command ask for, of which own are the
// settings that only it has.
func (q *comparison) scenario(command string, own scenario.Settings) (*scenario.Scenario, error) {
	what, err := q.chosen(command, own)
	if err != nil {
		return nil, err
	}
	const day = 24 * time.Hour
	switch {
	case q.Repetitions < 0 || q.Repetitions > 1000:
		return nil, fmt.Errorf("--repetitions: %d is not 1 to 1000", q.Repetitions)
	case q.Duration < 0 || q.Duration > day:
		return nil, fmt.Errorf("--duration: %v is not more than 0, at most 24h", q.Duration)
	case q.SLO < 0 || q.SLO > time.Hour:
		return nil, fmt.Errorf("--slo: %v is not more than 0, at most 1h", q.SLO)
	case q.Warmup != nil && (*q.Warmup < 0 || *q.Warmup > day):
		return nil, fmt.Errorf("--warmup: %v is not 0 to 24h", *q.Warmup)
	}
	what.Repetitions = cmp.Or(q.Repetitions, what.Repetitions)
	what.Duration = cmp.Or(q.Duration, what.Duration)
	what.SLO = cmp.Or(q.SLO, what.SLO)
	if q.Warmup != nil {
		what.Warmup = *q.Warmup
	}
	return what, nil
}

// chosen returns the scenario that is named, or that of the settings.
func (q *comparison) chosen(command string, own scenario.Settings) (*scenario.Scenario, error) {
	settings := q.settings()
	maps.Copy(settings, own)
	if q.Scenario == "" {
		if len(settings) == 0 {
			return nil, fmt.Errorf("%s: what? Give --scenario, or settings such as --strategies fifo,lifo (see loadtest %[1]s --help)", command)
		}
		if q.Short {
			return nil, errors.New("--short: only a --scenario has a short form")
		}
		return scenario.New("comparison", "Comparison", "Which of these settings serves this load best?", settings)
	}
	what, err := open(q.Scenario, settings)
	if err != nil {
		return nil, fmt.Errorf("--scenario: %w", err)
	}
	if q.Short {
		return short(what)
	}
	return what, nil
}

// open returns the scenario that comes with Spillway under a name, or that of a
// file. Over both settings may be written.
func open(name string, over ...scenario.Settings) (*scenario.Scenario, error) {
	if strings.ContainsAny(name, "./") {
		return scenario.Load(name, over...)
	}
	return scenarios.Open(name, over...)
}

// short returns the short form.
func short(what *scenario.Scenario) (*scenario.Scenario, error) {
	if what.Short == nil {
		return nil, fmt.Errorf("--short: %s has no short form", what.Name)
	}
	return what.Short, nil
}
