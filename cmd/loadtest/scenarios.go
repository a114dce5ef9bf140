package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/scenarios"
)

type scenariosCommand struct {
	Names []string `arg:"" optional:"" name:"scenario" help:"Names, or scenario files; by default all that come with Spillway."`
	Short bool     `help:"Their short forms."`
}

// Help is shown by scenarios --help.
func (*scenariosCommand) Help() string {
	return "The times are of the runs; filling stores and measuring capacities come on top."
}

// Run lists scenarios, and how long all of them take.
func (c *scenariosCommand) Run(s *session) error {
	names := c.Names
	if len(names) == 0 {
		names = scenarios.Names()
	}
	runs, total := 0, time.Duration(0)
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, name := range names {
		what, err := open(name)
		if err == nil && c.Short {
			what, err = short(what)
		}
		if err != nil {
			return usageError{err}
		}
		runs, total = runs+what.Runs(), total+what.Estimate()
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%v\n", name, what.Title, plural(what.Runs(), "run"), what.Estimate().Round(time.Second))
	}
	_ = table.Flush()
	_, _ = fmt.Fprintf(s.out, "%s, about %v\n", plural(runs, "run"), total.Round(time.Second))
	return nil
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
