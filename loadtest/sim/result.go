package sim

import (
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// Outcome tells how a request ended for its client.
type Outcome uint8

// The outcomes.
const (
	// Served means that the request was answered by what it asked for.
	Served Outcome = iota
	// Refused means that the service turned the request away.
	Refused
	// TimedOut means that the client stopped waiting.
	TimedOut
)

// Record is the end of one request.
type Record struct {
	// Arrival is when it was first sent, since the start of the simulation.
	Arrival time.Duration
	// Sent is when its first attempt reached the service: later than Arrival if it
	// had to wait for a connection, and meaningless if Attempts is 0.
	Sent time.Duration
	// Latency is how long its client waited, all attempts together.
	Latency time.Duration
	// Class is an index of Config.Classes.
	Class int
	// Client is who sent it.
	Client string
	// Attempts is how often it was sent.
	Attempts int
	Outcome  Outcome
	// Reason is why it was Refused.
	Reason strategies.Reason
	// Measured says that it arrived in the measured window.
	Measured bool
}
