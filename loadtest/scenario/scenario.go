package scenario

import "time"

// Scenario is a question put to the service: combinations of settings and
// loads, each run several times.
type Scenario struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Question string `json:"question"`
	// Expectation is what earlier studies found, in a sentence or two.
	Expectation string `json:"expectation,omitempty"`

	Duration    time.Duration `json:"duration"`
	Warmup      time.Duration `json:"warmup"`
	Repetitions int           `json:"repetitions"`
	Seed        uint64        `json:"seed"`
	SLO         time.Duration `json:"slo"`
	Timeout     time.Duration `json:"timeout"`

	// Combinations are in the order of the file: cases outermost, then the axes.
	// No two are the same.
	Combinations []Combination `json:"combinations"`

	// Short is the short form of the same question, nil if there is none.
	Short *Scenario `json:"-"`
}

// Combination is one setting of the service under one load. An empty or zero
// field leaves the service's or the generator's default.
type Combination struct {
	// Strategy may name a service instead: see Command.
	Strategy string `json:"strategy"`
	Workers  int    `json:"workers,omitempty"`
	Capacity int    `json:"capacity,omitempty"`
	// Objective is that of the service, if it is not Scenario.SLO: a duration, NoObjective, or
	// Unset for a service that gets none.
	Objective  string `json:"objective,omitempty"`
	Sync       string `json:"sync,omitempty"`
	StoreDelay string `json:"store_delay,omitempty"`
	// StoreParallel is how many operations the delayed store does at once, 0 for as
	// many as come.
	StoreParallel int `json:"store_parallel,omitempty"`
	// StoreSerial is how much what the store does at once slows it: see sim.Config.Serial. It
	// is simulated, not run.
	StoreSerial float64 `json:"store_serial,omitempty"`

	// Nodes is how many services with these settings there are behind a load
	// balancer, and Balance how it chooses: one of sim.Balances, empty if there is but
	// one service. SlowNode is the speed of the first where that of the others is 1;
	// 0 if it is like them. Fleets are simulated, not run.
	Nodes    int     `json:"nodes,omitempty"`
	SlowNode float64 `json:"slow_node,omitempty"`
	Balance  string  `json:"balance,omitempty"`

	// Fill is how many bytes of values the store holds before the run. There are then as
	// many keys as that makes values, so that reads find what they ask for.
	Fill int64 `json:"fill,omitempty"`
	// Connections are those of each node, if there are several.
	Connections  int    `json:"connections,omitempty"`
	Mix          string `json:"mix,omitempty"`
	Keys         uint64 `json:"keys,omitempty"`
	Distribution string `json:"key_distribution,omitempty"`
	ValueSize    string `json:"value_size,omitempty"`
	// Rate is in requests a second ("20000"), or relative to the capacity that
	// is measured first under the same load ("0.9x"), or "max" for a closed loop.
	Rate string `json:"rate"`
	// Think is how long a connection of a closed loop rests before its next request.
	Think string `json:"think,omitempty"`
	// Profile is how the rate changes, Clients and Priority weigh who asks and how
	// important it is, as in workload.Options. TimeoutHeader is "true" if clients
	// tell their time-out.
	Profile       string `json:"profile,omitempty"`
	Clients       string `json:"clients,omitempty"`
	Priority      string `json:"priority,omitempty"`
	TimeoutHeader string `json:"timeout_header,omitempty"`
	// Retries is what clients do with a refusal or a time-out: see workload.Retries.
	Retries string `json:"retries,omitempty"`
}

// Fleet reports whether the combination is of what can only be simulated: of
// several services, or of one with a speed of its own.
func (c *Combination) Fleet() bool { return c.Nodes > 1 || c.SlowNode != 0 }

// What Combination.Objective may be but a duration.
const (
	NoObjective = "none"
	Unset       = "unset"
)
