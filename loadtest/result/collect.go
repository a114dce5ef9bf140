package result

import (
	"fmt"
	"slices"

	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/profiles"
)

// Observed adds what was seen of the server. Costs are per request: the cost of a second
// divided by the answers of a second, since the server may be observed for a little more or
// less than the window.
func (r *Result) Observed(seen *observe.Observation) {
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
		if seen.Pebble && slices.Contains(profiles.Attributed, kind) {
			r.Attribution = append(r.Attribution, profiles.Attribute(p, kind))
		}
	}
}
