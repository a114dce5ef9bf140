package loadtest

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// never is a time that does not come.
const never = time.Duration(1<<63 - 1)

// plan is the times of a run, counted from its start.
type plan struct {
	from, to time.Duration // the measured window
	step     time.Duration // of the timeline
	closed   bool          // a closed loop
	count    uint64        // if not 0, the run ends with this request
}

// measures tells whether a request that is scheduled at t is to be measured.
func (p *plan) measures(t time.Duration) bool { return t >= p.from && t < p.to }

// counts is what one loop has seen. It is not safe for concurrent use.
type counts struct {
	plan *plan
	slo  time.Duration

	scheduled   int64 // in the window
	completed   int64 // answered in the window
	served      int64 // of these, with 2xx or 404
	good        int64
	retries     int64
	parts       *parts
	shares      []Share // by part
	status      [1000]int64
	shed        map[string]int64
	errors      map[ErrorKind]int64
	latency     *hdrhistogram.Histogram
	servedTimes *hdrhistogram.Histogram
	uncorrected *hdrhistogram.Histogram
	lateness    *hdrhistogram.Histogram
	timeline    []interval

	// all and allErrors count from the start of the run, recent since it was
	// last taken.
	all, allErrors int64
	recent         *hdrhistogram.Histogram
}

type interval struct {
	Interval
	latency *hdrhistogram.Histogram
}

func newCounts(o *Options, p *plan) *counts {
	parts := newParts(o)
	return &counts{
		plan: p, slo: o.SLO, parts: parts, shares: make([]Share, parts.count()),
		shed: map[string]int64{}, errors: map[ErrorKind]int64{},
		latency: newHistogram(), servedTimes: newHistogram(), uncorrected: newHistogram(), lateness: newHistogram(),
		recent: newCoarseHistogram(),
	}
}

// offered counts a request whose time has come.
func (c *counts) offered(scheduled time.Duration, part Part) {
	if !c.plan.measures(scheduled) {
		return
	}
	c.scheduled++
	c.shares[part].Requests++
	c.at(scheduled).Offered++
}

// late counts how long after its time a request was sent.
func (c *counts) late(scheduled, lateness time.Duration) {
	if c.plan.measures(scheduled) {
		record(c.lateness, lateness)
	}
}

// retried counts that a request was sent again so often.
func (c *counts) retried(scheduled time.Duration, times int) {
	if c.plan.measures(scheduled) {
		c.retries += int64(times)
	}
}

// failed counts a request that has no answer; sent is never if it was not sent.
// For one that was given up now is when its timeout was over, not when that was
// seen.
func (c *counts) failed(scheduled, sent, now time.Duration, kind ErrorKind) {
	c.all++
	c.allErrors++
	if !c.plan.measures(scheduled) {
		return
	}
	c.errors[kind]++
	latency := now - scheduled
	record(c.latency, latency)
	if sent != never {
		record(c.uncorrected, now-sent)
	}
	in := c.at(scheduled)
	in.Errors++
	record(in.latency, latency)
}

// answered counts a request that has its answer.
func (c *counts) answered(scheduled, sent, now time.Duration, part Part, answer *response) {
	latency := now - scheduled
	c.all++
	record(c.recent, latency)
	if c.plan.measures(now) {
		c.completed++
		c.at(now).Completed++
		if served(answer.status) {
			c.served++
		}
	}
	if !c.plan.measures(scheduled) {
		return
	}
	c.status[answer.status]++
	in := c.at(scheduled)
	record(c.latency, latency)
	record(c.uncorrected, now-sent)
	record(in.latency, latency)
	if answer.shed != "" {
		c.shed[answer.shed]++
		in.Shed++
	}
	if served(answer.status) {
		record(c.servedTimes, latency)
		share := &c.shares[part]
		share.Served++
		if latency <= c.slo {
			c.good++
			share.Good++
			in.Good++
		}
	}
}

// served tells whether a status says that the request was done: that a key is
// absent is an answer.
func served(status int) bool { return status/100 == 2 || status == 404 }

// at returns the counts of the interval of the window in which t lies.
func (c *counts) at(t time.Duration) *interval {
	n := int((t - c.plan.from) / c.plan.step)
	for len(c.timeline) <= n {
		c.timeline = append(c.timeline, interval{latency: newCoarseHistogram()})
	}
	return &c.timeline[n]
}

// add adds what another loop has seen.
func (c *counts) add(other *counts) {
	c.scheduled += other.scheduled
	c.completed += other.completed
	c.served += other.served
	c.good += other.good
	c.retries += other.retries
	for part, s := range other.shares {
		c.shares[part] = c.shares[part].Add(s)
	}
	for i, n := range other.status {
		c.status[i] += n
	}
	for reason, n := range other.shed {
		c.shed[reason] += n
	}
	for kind, n := range other.errors {
		c.errors[kind] += n
	}
	c.latency.Merge(other.latency)
	c.servedTimes.Merge(other.servedTimes)
	c.uncorrected.Merge(other.uncorrected)
	c.lateness.Merge(other.lateness)
	for i := range other.timeline {
		from, to := &other.timeline[i], c.at(c.plan.from+time.Duration(i)*c.plan.step)
		to.Offered += from.Offered
		to.Completed += from.Completed
		to.Good += from.Good
		to.Shed += from.Shed
		to.Errors += from.Errors
		to.latency.Merge(from.latency)
	}
}
