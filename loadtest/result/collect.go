package result

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/profiles"
)

// ServerSpent adds the CPU time that the server took during some time.
func (r *Result) ServerSpent(cpu, during time.Duration) {
	r.ServerCPUMicros = per(float64(cpu.Microseconds()), during, r.CompletedRPS)
	r.ServerCPUServedMicros = per(float64(cpu.Microseconds()), during, r.ServedRPS)
}

// per is how much of a total there is for each of so many a second; nil if there is none.
func per(total float64, during time.Duration, rate float64) *float64 {
	if rate == 0 || during <= 0 {
		return nil
	}
	return new(total / during.Seconds() / rate)
}

// Observed adds what was seen of the server. CPU is per request: that of a second divided by
// the answers of a second, since the server may be observed for a little more or less than the
// window.
func (r *Result) Observed(seen *observe.Observation) {
	r.Strategy, r.Workers, r.Capacity = seen.Strategy, seen.Workers, seen.Capacity
	r.ServerSpent(seen.CPU, seen.Length)
	r.Profiles = seen.Profiles
	cpu, taken := seen.Profiles[profiles.CPU]
	if !taken || !seen.Pebble {
		return
	}
	p, err := profiles.Parse(cpu)
	if err != nil {
		r.Unseen = fmt.Sprintf("the %s profile: %v", profiles.CPU, err)
		return
	}
	r.CPUByPart = profiles.Attribute(p)
}
