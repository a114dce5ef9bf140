package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/report"
	"github.com/spillway-go/spillway/loadtest/result"
)

type saturateCommand struct {
	load     `embed:""`
	Rate     float64       `default:"1000" help:"Requests a second at which the search begins."`
	MaxRate  float64       `default:"1000000" help:"Highest rate to try."`
	Duration time.Duration `default:"5s" help:"How long a rate is measured."`
	Warmup   time.Duration `default:"1s" help:"How long it is sent before."`
	JSON     string        `name:"json" placeholder:"FILE" help:"Write what was found as JSON, or to - for stdout."`
}

// Help is shown by saturate --help.
func (*saturateCommand) Help() string {
	return "The breaking point is the highest rate at which goodput, which is good answers (see --good) within the SLO, is at least 0.99 of the offered rate.\n\n" +
		"Most searches take some 25 trials of --warmup and --duration, 3 minutes by default, and longer the further the breaking point is from --rate " +
		"and the less steady the machine. After 100 trials, or when what was sustained at one time is not at another, the search gives up and says what it knows. " +
		"After a trial that was not sustained it waits until the service has recovered, half a minute or so at most."
}

// Run searches the breaking point.
func (c *saturateCommand) Run(ctx context.Context, s *session) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Rate, o.Duration, o.Warmup = c.Rate, c.Duration, c.Warmup
	if err := check(&o); err != nil {
		return err
	}
	switch {
	case c.Rate <= 0:
		return usageError{fmt.Errorf("--rate: %v is not above 0", c.Rate)}
	case c.MaxRate < c.Rate:
		return usageError{fmt.Errorf("--max-rate: %v is less than the rate of %v at which the search begins", c.MaxRate, c.Rate)}
	case c.Warmup <= 0:
		return usageError{fmt.Errorf("--warmup: %v is not above 0", c.Warmup)}
	}
	if err := checkOutput("--json", c.JSON); err != nil {
		return err
	}
	s.status("trying %.0f requests a second", c.Rate)
	found, err := lab.Saturate(ctx, lab.SaturateOptions{
		Load: o, MaxRate: c.MaxRate, Command: s.command,
		Progress: func(found *lab.Saturation) {
			last := found.Steps[len(found.Steps)-1]
			s.status("trial %d: of %.0f requests a second, %s were good", len(found.Steps), last.Rate, percent(last.GoodShare))
		},
	})
	s.statusDone()
	if err != nil {
		return err
	}
	text := s.out
	if c.JSON == stdout {
		text = s.err // so that programs can read the JSON
	}
	if err := report.Text(text, &report.Input{Saturations: []*report.Saturation{{Saturation: found}}}); err != nil {
		return err
	}
	if err := s.write(c.JSON, func(w io.Writer) error { return result.WriteJSON(w, found) },
		func(path string) error { return result.SaveJSON(path, found) }); err != nil {
		return err
	}
	return partial(found.Partial)
}

// percent writes a share so that what is below the threshold looks it.
func percent(share float64) string { return fmt.Sprintf("%.2f%%", math.Floor(1e4*share+1e-9)/100) }
