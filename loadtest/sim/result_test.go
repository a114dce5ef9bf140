package sim

import (
	"context"
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
}

// Counts are figures of a set of requests. It is Offered = Served + Refused +
// TimedOut, and Attempts = Run + the sum of Shed.
type Counts struct {
	// Offered is how many there were.
	Offered int64
	// Served are those that were answered by what they asked for, and Good those of
	// them that were within the objective.
	Served, Good int64
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

// Goodput returns how many requests a second were served within the objective.
func (r *Result) Goodput() float64 { return float64(r.Good) / r.Seconds }

// OfCapacity returns the goodput as a share of what the workers can serve.
func (r *Result) OfCapacity() float64 { return r.Goodput() / r.Capacity }

// OfOffered returns the share of the requests that were served within the objective,
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

// measure simulates c, and counts what becomes of the requests of the window.
func measure(c Config) (*Result, error) {
	filled := c.withDefaults()
	r := &Result{
		Counts: newCounts(), Seconds: c.Duration.Seconds(), Capacity: c.ServiceRate(), Nodes: make([]NodeResult, len(filled.Nodes)),
	}
	for i := range filled.Classes {
		r.Classes = append(r.Classes, ClassResult{filled.Classes[i].Name, newCounts()})
	}
	nodes := map[*node]*NodeResult{}
	good := c.Objective
	if good == 0 {
		good = objective
	}

	requests, observe := c.Requests, c.Observe
	c.Requests = func() func() (Request, bool) {
		next := requests()
		return func() (Request, bool) {
			q, more := next()
			if more && !c.Closed && q.At >= c.Warmup && q.At < c.Warmup+c.Duration {
				r.Classes[q.Class].Offered++
			}
			return q, more
		}
	}
	c.Observe = func(q Record) {
		if observe != nil {
			observe(q)
		}
		if !q.Measured {
			return
		}
		n := &r.Classes[q.Class].Counts
		n.ended(&q, good)
		if c.Closed { // when it is sent is known at its end
			n.Offered++
		}
	}
	var busy time.Duration
	c.ended = func(q *request, reason strategies.Reason) {
		s := q.node.s
		ran := reason == strategies.ReasonNone
		if ran && !q.inline {
			busy += time.Duration(max(0, min(s.now, s.end)-max(q.begun, s.begin)))
		}
		if !q.wish.measured {
			return
		}
		if len(nodes) == 0 {
			for i, n := range s.nodes {
				nodes[n] = &r.Nodes[i]
			}
		}
		node := nodes[q.node]
		node.Attempts++
		if ran {
			node.Run++
		} else {
			node.Shed++
		}
		r.Classes[q.wish.class].attempt(q, reason)
	}
	if err := Run(context.Background(), c); err != nil {
		return nil, err
	}
	r.Busy = float64(busy) / float64(c.Duration)
	for i := range r.Classes {
		r.add(&r.Classes[i].Counts)
		r.Classes[i].close()
	}
	r.close()
	return r, nil
}

// ended counts a request that has ended.
func (c *Counts) ended(r *Record, good time.Duration) {
	c.Attempts += int64(r.Attempts)
	record(c.Latency, int64(r.Latency))
	switch r.Outcome {
	case Served:
		c.Served++
		record(c.ServedLatency, int64(r.Latency))
		if r.Latency <= good {
			c.Good++
		}
	case Refused:
		c.Refused++
	case TimedOut:
		c.TimedOut++
	}
}

// attempt counts one that was run, or shed for a reason.
func (c *Counts) attempt(r *request, reason strategies.Reason) {
	if reason != strategies.ReasonNone {
		c.Shed[reason.String()]++
		return
	}
	c.Run++
	c.wait += float64(r.begun - r.task.Submitted)
	c.stayed += float64(r.node.s.now - r.task.Submitted)
	if r.gone {
		c.Wasted++
	}
}
