package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

type fillCommand struct {
	target    `embed:""`
	Bytes     workload.ByteCount `required:"" placeholder:"SIZE" help:"Bytes of values to write, such as 10GB."`
	ValueSize workload.Sizes     `default:"1KB" help:"Bytes of a value, or a range such as 64-4096."`
	Timeout   time.Duration      `default:"60s" help:"How long a put may take."`
	Seed      uint64             `default:"1" help:"The same seed writes the same values."`
}

// Run puts each key once.
func (c *fillCommand) Run(ctx context.Context, s *session) error {
	mean := c.ValueSize.Mean()
	keys := max(1, uint64(float64(c.Bytes)/max(1, mean)))
	o := c.options()
	o.Count, o.Keys, o.Distribution = keys, keys, workload.Sequential
	o.Mix, o.ValueSize = workload.Mix{Put: 1}, c.ValueSize
	o.Timeout, o.Seed = c.Timeout, c.Seed
	o.Retries = workload.Retries{Attempts: 10, Backoff: time.Millisecond} // a service may refuse what would be late
	o.ScanLimit, o.SLO, o.Duration = 1, time.Second, time.Second          // none has a meaning here
	switch err := check(&o); {
	case c.Bytes < 1:
		return usageError{errors.New("--bytes: 0 is not at least 1")}
	case err != nil:
		return err
	}

	result, err := s.send(ctx, o)
	if err != nil {
		return err
	}
	stored := uint64(result.Status["201"])
	_, _ = fmt.Fprintf(s.out, "filled %v in %.1f s, %v/s: %d values of %v\n", workload.ByteCount(float64(stored)*mean),
		result.Seconds, workload.ByteCount(float64(stored)*mean/max(result.Seconds, 1e-3)), stored, c.ValueSize)
	if err := partial(result.Partial); err != nil {
		return err
	}
	if stored < keys {
		return fmt.Errorf("%d of %d puts failed (%s): fill again, perhaps with fewer --connections", keys-stored, keys, failures(result))
	}
	_, _ = fmt.Fprintf(s.out, "read them with: loadtest run --url %s --mix get=100 --keys %d --value-size %v\n", o.URL, keys, c.ValueSize)
	return nil
}

// failures counts the answers other than 201, and the errors.
func failures(r *result.Result) string {
	var said []string
	for _, status := range slices.Sorted(maps.Keys(r.Status)) {
		if status != "201" {
			said = append(said, fmt.Sprintf("%s: %d", status, r.Status[status]))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		if n := r.Errors[kind]; n > 0 {
			said = append(said, fmt.Sprintf("%s: %d", kind, n))
		}
	}
	return strings.Join(said, ", ")
}
