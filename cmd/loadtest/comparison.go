package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/report"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/scenarios"
)

// comparison holds the flags that say which settings are compared, in runs or in
// simulations.
type comparison struct {
	Scenario string `placeholder:"NAME|FILE" help:"What to compare: one of ${scenarios}, or a scenario file."`
	Short    bool   `help:"The scenario's short form."`
	grid     `embed:""`

	Repetitions int            `placeholder:"N" help:"How often each combination is run, 9 times by default, or as the scenario says; less than 4 can prove nothing."`
	Duration    time.Duration  `placeholder:"TIME" help:"How long each run is measured, 10s by default, or as the scenario says."`
	Warmup      *time.Duration `placeholder:"TIME" help:"How long load is sent before, 2s by default, or as the scenario says."`
	SLO         time.Duration  `name:"slo" placeholder:"TIME" help:"Latency within which an answer is good, 100ms by default, or as the scenario says. The service is told so."`
}

// grid are the flags of the settings, a list each.
type grid struct {
	Flags any `embed:""` // a pointer to a struct with a field for each of scenario.All
}

// newGrid returns those of a command.
func newGrid(command string) grid {
	var fields []reflect.StructField
	for _, s := range scenario.All {
		if s.Program != "" && s.Program != command {
			continue
		}
		tag := fmt.Sprintf("name:%q setting:%q group:\"grid\" sep:%q placeholder:%q help:%q", s.Flag, s.Name, cmp.Or(s.Separator, ","), s.Placeholder, s.Help)
		fields = append(fields, reflect.StructField{Name: fmt.Sprint("Setting", len(fields)), Type: reflect.TypeFor[[]string](), Tag: reflect.StructTag(tag)})
	}
	return grid{reflect.New(reflect.StructOf(fields)).Interface()}
}

// settings returns what is given of the grid.
func (g *grid) settings() scenario.Settings {
	given := scenario.Settings{}
	for field, value := range reflect.ValueOf(g.Flags).Elem().Fields() {
		if values := value.Interface().([]string); len(values) > 0 {
			given[field.Tag.Get("setting")] = values
		}
	}
	return given
}

// scenario returns what the flags of a command ask for, and the settings beside them.
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
	load := scenarios.Open // by the name of one that comes with Spillway
	if strings.ContainsAny(q.Scenario, "./") {
		load = scenario.Load
	}
	what, err := load(q.Scenario, settings)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--scenario: %w", err)
	case q.Short && what.Short == nil:
		return nil, fmt.Errorf("--short: %s has no short form", what.Name)
	case q.Short:
		return what.Short, nil
	}
	return what, nil
}

// compare makes a comparison, if not to its end, shows it and writes its report into its folder.
func (s *session) compare(ctx context.Context, what *scenario.Scenario, o lab.CompareOptions) error {
	o.Command = s.command
	o.Progress = func(p lab.Progress) {
		s.status("%d/%d, %v left: %s", p.Done, p.Total, p.Left.Round(time.Second), p.Doing)
	}
	found, err := lab.Compare(ctx, *what, o)
	s.statusDone()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(found.Groups, func(g lab.Group) bool { return len(g.Runs) > 0 }) {
		input, err := report.Load(o.Dir)
		if err == nil {
			err = report.Text(s.out, input)
		}
		if err == nil {
			err = s.render(input, filepath.Join(o.Dir, "report.html"), filepath.Join(o.Dir, "report.md"))
		}
		if err != nil {
			return err
		}
	}
	if found.Partial != "" {
		return fmt.Errorf("the comparison is partial: %s", found.Partial)
	}
	return nil
}
