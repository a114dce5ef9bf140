package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/report"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

type runCommand struct {
	load     `embed:""`
	Rate     rate             `default:"1000" help:"Requests a second, or max: each connection sends its next request when the last is answered."`
	Think    time.Duration    `placeholder:"TIME" help:"How long a connection rests between an answer and its next request, with --rate max."`
	Profile  workload.Profile `placeholder:"SHAPE" help:"How the rate changes: spike:4x,5s, ramp:0.5x,10x or burst:5x,100ms,1s."`
	Retries  workload.Retries `placeholder:"N,BACKOFF" help:"What clients do with a refusal or a time-out: attempts and back-off such as 4,10ms, and perhaps how many retries there may be for each request, such as 4,10ms,0.1."`
	Duration time.Duration    `default:"10s" help:"How long is measured."`
	Warmup   time.Duration    `default:"0s" help:"How long the same load is sent before."`
	Assert   []string         `sep:"none" placeholder:"CONDITION" help:"Exit with 1 unless this holds, such as 'p99<50ms' or 'errors==0'; may be repeated."`
	JSON     string           `name:"json" placeholder:"FILE" help:"Write the result as JSON, with the profiles beside it, or to - for stdout without them."`
	HDR      string           `name:"hdr" placeholder:"FILE" help:"Write the latencies as HdrHistogram's percentile text, or to - for stdout."`
}

// Help is shown by run --help.
func (*runCommand) Help() string {
	return "Requests start at their scheduled times whatever the service does, and latency counts from there, so that a service that stalls cannot hide it."
}

// Run sends the load and shows the result.
func (c *runCommand) Run(ctx context.Context, s *session) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Rate, o.Profile, o.Retries, o.Duration, o.Warmup = float64(c.Rate), c.Profile, c.Retries, c.Duration, c.Warmup
	o.Think = c.Think
	if err := check(&o); err != nil {
		return err
	}
	var assertions []result.Assertion
	for _, text := range c.Assert {
		a, err := result.ParseAssertion(text)
		if err != nil {
			return usageError{fmt.Errorf("--assert: %w", err)}
		}
		assertions = append(assertions, a)
	}
	if err := errors.Join(checkOutput("--json", c.JSON), checkOutput("--hdr", c.HDR)); err != nil {
		return err
	}
	text := s.out
	switch {
	case c.JSON == stdout && c.HDR == stdout:
		return usageError{errors.New("--json and --hdr: only one of them can be written to stdout")}
	case c.JSON == stdout || c.HDR == stdout:
		text = s.err // so that programs can read the other
	}

	found, err := s.send(ctx, o)
	if err != nil {
		return err
	}
	found.Command = s.command
	// Whatever cannot be written must not keep the others from it.
	unwritten := errors.Join(
		s.write(c.JSON, func(w io.Writer) error { return result.WriteJSON(w, found) }, found.Save),
		s.write(c.HDR, found.WriteHDR, func(path string) error { return result.WriteFile(path, found.WriteHDR) }),
		report.Text(text, &report.Input{Runs: []*report.Run{{Result: found}}}))
	var failed []string
	for _, a := range assertions {
		ok, said := a.Check(found)
		_, _ = fmt.Fprintln(text, said)
		if !ok {
			failed = append(failed, said)
		}
	}
	if unwritten != nil {
		return unwritten
	}
	if len(failed) > 0 {
		return fmt.Errorf("%s of %d failed: %s", english.Plural(len(failed), "assertion", ""), len(assertions), strings.Join(failed, "; "))
	}
	return partial(found.Partial)
}

// write writes to stdout or saves in a file, as a flag says; nothing without a path.
func (s *session) write(path string, write func(io.Writer) error, save func(path string) error) error {
	switch path {
	case "":
		return nil
	case stdout:
		return write(s.out)
	default:
		return save(path)
	}
}

// send sends a load, and shows how far it is.
func (s *session) send(ctx context.Context, o workload.Options) (*result.Result, error) {
	if s.live {
		defer s.statusDone()
		o.Progress = func(p workload.Progress) { s.status("%3.0f%%  %.0f/s  %d errors", 100*p.Done, p.Rate, p.Errors) }
	}
	return generator.Run(ctx, o)
}

// partial is the error of a result that does not cover all that was asked for.
func partial(why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("the result is partial: %s", why)
}
