package lab

import (
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/result"
)

// Saturation is what a search for the breaking point found, and its JSON form.
type Saturation struct {
	Command string `json:"command,omitempty"`
	URL     string `json:"url"`
	// Machine is that of the generator.
	Machine machine.Machine `json:"machine"`
	Started time.Time       `json:"started"`
	Seconds float64         `json:"seconds"` // how long the search took
	// Partial says why the search ended before it was sure; empty if it is.
	Partial string `json:"partial,omitempty"`

	// BreakingPointRPS is the highest rate found at which goodput is at least
	// Share of the offered rate; 0 if there is none.
	BreakingPointRPS float64 `json:"breaking_point_rps"`
	// Low was sustained and High was not, each by a majority of trials: the
	// breaking point is between them. High is 0 if every rate was sustained. In a
	// search that was not finished the range is all that is in doubt.
	Low  float64 `json:"low_rps"`
	High float64 `json:"high_rps"`
	// Limit is what kept the rate from going higher. Only if it is LimitServer is
	// the breaking point that of the server; otherwise the server can do more. It
	// is empty if the search ended before it met any.
	Limit Limit `json:"limit"`
	// Share is the share of the offered rate that must be goodput: 0.99.
	Share     float64 `json:"share"`
	SLOMillis float64 `json:"slo_ms"`
	// Strategy, Workers and Capacity are those of the service, if its admin plane
	// was asked.
	Strategy string `json:"strategy,omitempty"`
	Workers  int    `json:"workers,omitempty"`
	Capacity *int   `json:"capacity,omitempty"`

	// Steps are the trials in the order in which they were made.
	Steps []Step `json:"steps"`
}

// Limit is what a search has met.
type Limit string

// The limits.
const (
	// LimitServer: the server does not sustain more.
	LimitServer Limit = "server"
	// LimitGenerator: this machine's generator cannot send more in time.
	LimitGenerator Limit = "generator"
	// LimitRate: no higher rate was allowed.
	LimitRate Limit = "rate"
)

// Step is one trial of a rate.
type Step struct {
	Rate         float64 `json:"rate_rps"` // asked for
	OfferedRPS   float64 `json:"offered_rps"`
	CompletedRPS float64 `json:"completed_rps"`
	GoodputRPS   float64 `json:"goodput_rps"`
	// GoodShare is goodput over offered.
	GoodShare float64 `json:"good_share"`
	Sustained bool    `json:"sustained"`
	// GeneratorLate says that the generator did not keep up: that the rate was
	// not sustained is then not the server's doing.
	GeneratorLate bool `json:"generator_late,omitempty"`
	// ConnectionsBusy says that requests waited for one of the generator's connections.
	ConnectionsBusy bool `json:"connections_busy,omitempty"`
	// Latency is of all requests, in milliseconds.
	Latency result.Percentiles `json:"latency_ms"`
	// LatenessP99 is how late the generator itself was, in milliseconds.
	LatenessP99     float64  `json:"generator_lateness_p99_ms"`
	ServerCPUMicros *float64 `json:"server_cpu_us_per_request,omitempty"`
}

// Cautions say what makes the breaking point less sure than it looks. That trials disagree
// String says.
func (s *Saturation) Cautions() (said []string) {
	late, busy := 0, 0
	for _, step := range s.Steps {
		if step.GeneratorLate {
			late++
		} else if step.ConnectionsBusy && !step.Sustained {
			busy++
		}
	}
	if late > 0 {
		said = append(said, fmt.Sprintf("The generator did not keep up in %d of %d trials: they say little of the server.", late, len(s.Steps)))
	}
	if busy > 0 {
		said = append(said, fmt.Sprintf("In %d of %d trials all connections were busy, and requests waited for one: if clients have more, raise --connections.", busy, len(s.Steps)))
	}
	return said
}

// String says in a line what was found.
func (s *Saturation) String() string {
	switch {
	case s.Partial != "" && s.High == 0:
		return fmt.Sprintf("at least %.0f requests a second: %s", s.Low, s.Partial)
	case s.Partial != "":
		return fmt.Sprintf("about %.0f requests a second, between %.0f and %.0f: %s", s.BreakingPointRPS, s.Low, s.High, s.Partial)
	case s.Limit == LimitRate:
		return fmt.Sprintf("sustains %.0f requests a second, the highest rate that was tried", s.Low)
	case s.Low == 0:
		return fmt.Sprintf("no rate was sustained; the lowest that was tried is %.0f requests a second", s.High)
	case s.Limit == LimitGenerator:
		return fmt.Sprintf("sustains at least %.0f requests a second; above, the generator on this machine cannot keep up%s", s.Low, s.disagreement())
	default:
		return fmt.Sprintf("breaking point %.0f requests a second (%.0f is sustained, %.0f is not)%s", s.BreakingPointRPS, s.Low, s.High, s.disagreement())
	}
}

// disagreement says over which rates single trials said otherwise than others,
// which is how far the machine or the server was not steady.
func (s *Saturation) disagreement() string {
	lowest, highest := math.Inf(1), 0.0 // not sustained, and sustained
	for _, step := range s.Steps {
		if step.Sustained {
			highest = max(highest, step.Rate)
		} else {
			lowest = min(lowest, step.Rate)
		}
	}
	switch {
	case lowest > highest:
		return ""
	case lowest == highest:
		return fmt.Sprintf("; trials of %.0f disagreed", lowest)
	default:
		return fmt.Sprintf("; from %.0f to %.0f trials disagreed", lowest, highest)
	}
}
