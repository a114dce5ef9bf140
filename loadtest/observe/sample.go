package observe

import (
	"time"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

// Sample is the state of the service's queue at one moment. Figures of several
// strategies, during a switch, are summed.
type Sample struct {
	// At is in seconds since the start of the measured window.
	At          float64 `json:"at_s"`
	QueueDepth  float64 `json:"queue_depth"`
	WorkersBusy float64 `json:"workers_busy"`
	// Shed is by reason, since the start of the window. Reasons for which
	// nothing was shed are left out.
	Shed map[string]float64 `json:"shed"`
}

// Observation is what was seen of a service over a window.
type Observation struct {
	// Strategy, Workers and Capacity are those of the start of the window;
	// Capacity is nil for a queue without bound.
	Strategy string
	Workers  int
	Capacity *int
	// Pebble says that it is a Spillway whose store is Pebble, in its own process:
	// what the rules of profiles know.
	Pebble bool
	// Length is between the first reading and the last that succeeded, and what
	// follows is what was spent in between.
	Length time.Duration
	// CPU is what the process used, user and system, in steps of 10 ms.
	CPU time.Duration
	// Mallocs and AllocatedBytes are objects and bytes allocated in the heap,
	// without those of the readings and profiles: see the package comment.
	Mallocs, AllocatedBytes float64
	// Samples were taken at the start of the window and once a second, in a
	// short one up to four times.
	Samples []Sample
	// Profiles are pprof files, compressed, over the whole seconds of the window.
	Profiles map[profiles.Kind][]byte
}
