package loadtest

import (
	"fmt"
	"strconv"
	"time"

	"spillway/loadtest/observe"
	"spillway/loadtest/profiles"
)

// newResult puts together what all loops have counted over a window.
func newResult(o *Options, c *counts, begin time.Time, window time.Duration) *Result {
	r := &Result{
		URL: o.URL, Started: begin, TimelineStep: c.plan.step.Seconds(), Seconds: window.Seconds(), Seed: o.Seed,
		TargetRPS: o.Rate, SLOMillis: milliseconds(o.SLO),
		Operations: map[string]int64{}, Status: map[string]int64{}, Shed: c.shed, Errors: c.errors,
		Latency: percentiles(c.latency), ServedLatency: percentiles(c.servedTimes),
		UncorrectedLatency: percentiles(c.uncorrected), Lateness: percentiles(c.lateness),
		LatencyHDR: encodeHistogram(c.latency), ServedHDR: encodeHistogram(c.servedTimes),
	}
	if o.Retries != (Retries{}) {
		r.Retries = &c.retries
	}
	for part, s := range c.shares {
		if s.Requests > 0 {
			r.Operations[Part(part).op().String()] += s.Requests
		}
	}
	r.Shares = c.parts.shares(c.shares)
	for status, n := range c.status {
		if n > 0 {
			r.Status[strconv.Itoa(status)] = n
			r.Requests += n
		}
	}
	for _, n := range c.errors {
		r.Requests += n
	}
	if window > 0 {
		r.OfferedRPS = float64(c.scheduled) / window.Seconds()
		r.CompletedRPS = float64(c.completed) / window.Seconds()
		r.ServedRPS = float64(c.served) / window.Seconds()
		r.GoodputRPS = float64(c.good) / window.Seconds()
	}
	for _, in := range c.timeline {
		p := percentiles(in.latency)
		in.P50, in.P99, in.Max = p.P50, p.P99, p.Max
		r.Timeline = append(r.Timeline, in.Interval)
	}
	return r
}

// observed adds what was seen of the server, of which every request is given its
// share: of a second's cost that of a second's answers, since the service may be
// looked at over a little more or less than the window.
func (r *Result) observed(seen *observe.Observation) {
	r.Strategy, r.Workers, r.Capacity = seen.Strategy, seen.Workers, seen.Capacity
	r.Samples = seen.Samples
	if seconds := seen.Length.Seconds(); seconds > 0 {
		per := func(total, rate float64) *float64 {
			if rate == 0 {
				return nil
			}
			v := total / seconds / rate
			return &v
		}
		r.ServerCPUMicros = per(float64(seen.CPU.Microseconds()), r.CompletedRPS)
		r.ServerCPUServedMicros = per(float64(seen.CPU.Microseconds()), r.ServedRPS)
		r.ServerAllocs = per(seen.Mallocs, r.CompletedRPS)
		r.ServerAllocated = per(seen.AllocatedBytes, r.CompletedRPS)
	}
	for _, kind := range profiles.Kinds {
		data, ok := seen.Profiles[kind]
		if !ok {
			continue
		}
		p, err := profiles.Parse(data)
		if err != nil {
			r.Unseen = fmt.Sprintf("the %s profile: %v", kind, err)
			continue
		}
		if r.Profiles == nil {
			r.Profiles = map[profiles.Kind][]byte{}
		}
		r.Profiles[kind] = data
		if seen.Pebble {
			r.Attribution = append(r.Attribution, profiles.Attribute(p, kind))
		}
	}
}
