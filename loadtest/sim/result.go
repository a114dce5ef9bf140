package sim

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/spillway-go/spillway/strategies"
)

// Result is what a simulation found. It tells of the requests that arrived for
// the first time in the measured window, to the end of each; a request with all
// its attempts counts once, but for the counts of attempts.
type Result struct {
	Counts
	// Seconds is the length of the window.
	Seconds float64
	// Capacity is how many requests a second the workers can serve.
	Capacity float64
	// Busy is how many workers were at work, in the mean over the window. What is
	// run by its submitter does not count.
	Busy float64
	// Classes are in the order of the configuration's.
	Classes []ClassResult
	// Nodes are in the order of the configuration's.
	Nodes []NodeResult
	// Events is how many events were simulated, of the whole run.
	Events int64
}

// Counts are figures of a set of requests. It is Offered = Served + Refused +
// TimedOut, and Attempts = Run + the sum of Shed.
type Counts struct {
	// Offered is how many there were.
	Offered int64
	// Served are those that were answered by what they asked for, and Good those of
	// them that were within the SLO.
	Served, Good int64
	// GoodAtService are the good ones by a clock that begins when the first attempt reaches
	// the service: what a client waits for a connection does not count.
	GoodAtService int64
	// Refused are those whose last attempt was shed, and whose clients heard of it.
	Refused int64
	// TimedOut are those whose clients had stopped waiting in the last attempt.
	TimedOut int64

	// Attempts is how often requests were sent to the service; less than Offered
	// only if some timed out before a connection was free.
	Attempts int64
	// Run is how many attempts were run, and Wasted how many of those for clients
	// that had gone.
	Run, Wasted int64
	// LateWrong is how many that would have been refused as late were served to see whether
	// that is right, and were in time.
	LateWrong int64
	// Shed is how many attempts were shed, by the name of the reason; those of
	// clients that had gone are there too, as abandoned.
	Shed map[string]int64

	// Latency is of all requests, from the first attempt to the end, be that an
	// answer or the client's patience. ServedLatency is of those served. Both are
	// of nanoseconds, with three digits, up to an hour.
	Latency, ServedLatency *hdrhistogram.Histogram
	// MeanWait is how long the attempts that were run had waited in the queue.
	MeanWait time.Duration
	// MeanSojourn is how long after its submission an attempt that was run ended.
	MeanSojourn time.Duration

	wait, stayed float64 // nanoseconds
}

// ClassResult is what became of the requests of one class.
type ClassResult struct {
	Name string
	Counts
}

// NodeResult is what one node did with the measured requests.
type NodeResult struct {
	// Attempts were sent to it, Run and Shed is what became of them.
	Attempts, Run, Shed int64
}

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
	// Spared says that it was served to see whether it would be late, and would have been
	// refused otherwise.
	Spared bool
	// Measured says that it arrived in the measured window.
	Measured bool
}

// Goodput returns how many requests a second were served within the SLO.
func (r *Result) Goodput() float64 { return float64(r.Good) / r.Seconds }

// OfCapacity returns the goodput as a share of what the workers can serve.
func (r *Result) OfCapacity() float64 { return r.Goodput() / r.Capacity }

// OfOffered returns the share of the requests that were served within the SLO,
// 0 if there were none.
func (c *Counts) OfOffered() float64 { return float64(c.Good) / float64(max(1, c.Offered)) }

// P returns a percentile, 0 to 100, of the latency of all requests.
func (c *Counts) P(percentile float64) time.Duration { return percentileOf(c.Latency, percentile) }

// ServedP returns a percentile, 0 to 100, of the latency of the served requests.
func (c *Counts) ServedP(percentile float64) time.Duration {
	return percentileOf(c.ServedLatency, percentile)
}

func percentileOf(h *hdrhistogram.Histogram, percentile float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(percentile))
}

// longest is what histograms hold at most; what took longer counts as this long.
const longest = time.Hour

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest), 3) }

func record(h *hdrhistogram.Histogram, value int64) {
	_ = h.RecordValue(min(max(value, 0), int64(longest))) // within its bounds nothing fails
}

func newCounts() Counts {
	return Counts{Shed: map[string]int64{}, Latency: newHistogram(), ServedLatency: newHistogram()}
}

// add adds what was counted of other requests.
func (c *Counts) add(other *Counts) {
	c.Offered += other.Offered
	c.Served += other.Served
	c.Good += other.Good
	c.GoodAtService += other.GoodAtService
	c.LateWrong += other.LateWrong
	c.Refused += other.Refused
	c.TimedOut += other.TimedOut
	c.Attempts += other.Attempts
	c.Run += other.Run
	c.Wasted += other.Wasted
	c.wait += other.wait
	c.stayed += other.stayed
	for reason, n := range other.Shed {
		c.Shed[reason] += n
	}
	c.Latency.Merge(other.Latency)
	c.ServedLatency.Merge(other.ServedLatency)
}

// close works out what follows from the counts.
func (c *Counts) close() {
	runs := float64(max(1, c.Run))
	c.MeanWait = time.Duration(math.Round(c.wait / runs))
	c.MeanSojourn = time.Duration(math.Round(c.stayed / runs))
}
