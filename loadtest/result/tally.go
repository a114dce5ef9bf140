package result

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Window is the measured part of a run, counted from the start of the run.
type Window struct {
	From, To time.Duration
	// Step is the length of the intervals of the timeline.
	Step time.Duration
}

// Has reports whether a request that is scheduled at t is to be measured.
func (w *Window) Has(t time.Duration) bool { return t >= w.From && t < w.To }

// WindowOf returns the window of a load.
func WindowOf(o *workload.Options) Window {
	if o.Count > 0 {
		return Window{To: workload.Never, Step: 10 * time.Second}
	}
	return Window{From: o.Warmup, To: o.Warmup + o.Duration, Step: timelineStep(o.Duration)}
}

// timelineStep returns the length of the intervals of a Result's timeline: it
// shows a course in a short window, and bounds the memory of a long one.
func timelineStep(window time.Duration) time.Duration {
	const most = 600 // entries
	return max(min(max(window/20, 100*time.Millisecond), time.Second), window/most)
}

// Tally counts what becomes of the requests of a load, and makes a [Result] of it.
// Times are since the start of the load, warm-up included. It is not safe for
// concurrent use.
type Tally struct {
	o      workload.Options
	window Window
	parts  *parts
	// codes are the good ones, if that depends on nothing else.
	codes   *[1000]bool
	targets []*targetTally // by what is asked for; none unless targets are sent

	scheduled   int64 // in the window
	completed   int64 // answered in the window
	served      int64 // of these, with an answer that serves
	sentGood    int64 // of these, in time from the sending on
	nowGood     int64 // of these, in time
	good        int64 // of those that are scheduled in the window
	misses      int64
	retries     int64
	shares      []Share // by index of parts.names
	status      [1000]int64
	shed        map[string]int64
	errors      map[ErrorKind]int64
	latency     *hdrhistogram.Histogram
	servedTimes *hdrhistogram.Histogram
	uncorrected *hdrhistogram.Histogram
	lateness    *hdrhistogram.Histogram
	wait        *hdrhistogram.Histogram // for a connection
	waited      int64
	timeline    []interval

	// Ended counts the requests that have ended since the start of the run, in the window and
	// beside it, and Unanswered those of them that have no answer. Anybody may read them.
	Ended, Unanswered atomic.Int64
}

type interval struct {
	Interval
	latency *hdrhistogram.Histogram
}

// NewTally returns a tally of the load that o describes, whose defaults must be set.
func NewTally(o workload.Options) *Tally {
	parts := newParts(&o)
	t := &Tally{
		o: o, window: WindowOf(&o), parts: parts, shares: make([]Share, len(parts.names)),
		shed: map[string]int64{}, errors: map[ErrorKind]int64{},
		latency: newHistogram(fine), servedTimes: newHistogram(fine), uncorrected: newHistogram(fine), lateness: newHistogram(fine), wait: newHistogram(fine),
	}
	if set, ok := o.Good.Set(); ok && o.Good != "" {
		t.codes = &set
	}
	for range min(len(o.Targets), parts.asked) {
		t.targets = append(t.targets, newTargetTally())
	}
	return t
}

// Part returns the part of the load that a request is of.
func (t *Tally) Part(r *workload.Request) Part { return t.parts.of(r) }

// Offered counts a request of a part, whose time has come.
func (t *Tally) Offered(scheduled time.Duration, part Part) {
	if !t.window.Has(scheduled) {
		return
	}
	t.scheduled++
	for _, at := range part {
		t.shares[at].Requests++
	}
	t.at(scheduled).Offered++
}

// Late counts how long after its time a request was sent.
func (t *Tally) Late(scheduled, lateness time.Duration) {
	if t.window.Has(scheduled) {
		record(t.lateness, lateness)
	}
}

// Begun counts a request that was sent on a connection which had been free for some time. What
// it waited for that is not the generator's lateness.
func (t *Tally) Begun(scheduled, free, sent time.Duration) {
	if !t.window.Has(scheduled) {
		return
	}
	record(t.lateness, sent-max(scheduled, free))
	record(t.wait, free-scheduled)
	if free > scheduled {
		t.waited++
	}
}

// Retried counts that a request was sent again so often.
func (t *Tally) Retried(scheduled time.Duration, times int) {
	if t.window.Has(scheduled) {
		t.retries += int64(times)
	}
}

// Failed counts a request that has no answer; sent is workload.Never if it was not
// sent. For one that was given up now is when its timeout was over, not when that
// was seen.
func (t *Tally) Failed(scheduled, sent, now time.Duration, part Part, kind ErrorKind) {
	latency := now - scheduled
	t.Ended.Add(1)
	t.Unanswered.Add(1)
	if !t.window.Has(scheduled) {
		return
	}
	t.errors[kind]++
	record(t.latency, latency)
	if kind == ErrorUnsent {
		t.waited++
		record(t.wait, latency)
	}
	if sent != workload.Never {
		record(t.uncorrected, now-sent)
	}
	if target := t.target(part); target != nil {
		target.errors++
		record(target.latency, latency)
	}
	in := t.at(scheduled)
	in.Errors++
	record(in.latency, latency)
}

// Answered counts a request that was sent and has its answer now, with an HTTP
// status of 100 to 999 and what its Spillway-Shed says, if anything.
func (t *Tally) Answered(scheduled, sent, now time.Duration, part Part, status int, shed string) {
	latency, serves := now-scheduled, t.serves(part, status)
	t.Ended.Add(1)
	if t.window.Has(now) {
		t.completed++
		t.at(now).Completed++
		if serves {
			t.served++
			if now-sent <= t.o.SLO {
				t.sentGood++
			}
			if latency <= t.o.SLO {
				t.nowGood++
			}
		}
	}
	if !t.window.Has(scheduled) {
		return
	}
	t.status[status]++
	in := t.at(scheduled)
	record(t.latency, latency)
	record(t.uncorrected, now-sent)
	record(in.latency, latency)
	if shed != "" {
		t.shed[shed]++
		in.Shed++
	}
	if status == http.StatusNotFound && t.gets(part) {
		t.misses++
	}
	target := t.target(part)
	if target != nil {
		target.status[status]++
		record(target.latency, latency)
	}
	if serves {
		if target != nil {
			record(target.served, latency)
		}
		record(t.servedTimes, latency)
		good := int64(0)
		if latency <= t.o.SLO {
			good = 1
		}
		t.good += good
		in.Good += good
		for _, at := range part {
			t.shares[at].Served++
			t.shares[at].Good += good
		}
	}
}

// serves reports whether a status says that what was asked for was done: that a key has
// no value is the answer to a get, and to nothing else.
func (t *Tally) serves(part Part, status int) bool {
	if t.codes != nil {
		return t.codes[status]
	}
	return status/100 == 2 || status == http.StatusNotModified || status == http.StatusNotFound && t.gets(part)
}

// gets reports whether the requests of a part are the gets of the service.
func (t *Tally) gets(part Part) bool {
	return t.targets == nil && part[0] == int32(workload.Get)
}

// at returns the counts of the interval of the window in which a time lies.
func (t *Tally) at(when time.Duration) *interval {
	n := int((when - t.window.From) / t.window.Step)
	for len(t.timeline) <= n {
		t.timeline = append(t.timeline, interval{latency: newHistogram(coarse)})
	}
	return &t.timeline[n]
}

// Add adds what another tally of the same load has counted.
func (t *Tally) Add(other *Tally) {
	t.scheduled += other.scheduled
	t.completed += other.completed
	t.served += other.served
	t.good += other.good
	t.sentGood += other.sentGood
	t.nowGood += other.nowGood
	t.misses += other.misses
	t.retries += other.retries
	for part, s := range other.shares {
		t.shares[part] = t.shares[part].Add(s)
	}
	for i, of := range other.targets {
		t.targets[i].add(of)
	}
	for i, n := range other.status {
		t.status[i] += n
	}
	for reason, n := range other.shed {
		t.shed[reason] += n
	}
	for kind, n := range other.errors {
		t.errors[kind] += n
	}
	t.latency.Merge(other.latency)
	t.servedTimes.Merge(other.servedTimes)
	t.uncorrected.Merge(other.uncorrected)
	t.lateness.Merge(other.lateness)
	t.wait.Merge(other.wait)
	t.waited += other.waited
	for i := range other.timeline {
		from, to := &other.timeline[i], t.at(t.window.From+time.Duration(i)*t.window.Step)
		to.Offered += from.Offered
		to.Completed += from.Completed
		to.Good += from.Good
		to.Shed += from.Shed
		to.Errors += from.Errors
		to.latency.Merge(from.latency)
	}
}

// Result returns what has been counted, once every request of the window has
// ended. The load began at a time, and was measured for as long as is said.
func (t *Tally) Result(begin time.Time, measured time.Duration) *Result {
	o := &t.o
	r := &Result{
		URL: o.URL, Started: begin, TimelineStep: t.window.Step.Seconds(), Seconds: measured.Seconds(), Seed: o.Seed,
		TargetRPS: o.Rate, Good: o.Good, SLOMillis: milliseconds(o.SLO),
		Operations: map[string]int64{}, Status: map[string]int64{}, Shed: t.shed, Errors: t.errors, Misses: t.misses,
		Latency: percentiles(t.latency), ServedLatency: percentiles(t.servedTimes),
		UncorrectedLatency: percentiles(t.uncorrected), Lateness: percentiles(t.lateness),
		ConnectionWait: percentiles(t.wait), Waited: t.waited, Connections: o.Connections,
		LatencyHDR: encodeHistogram(t.latency), ServedHDR: encodeHistogram(t.servedTimes),
	}
	if t.targets == nil {
		r.Keys, r.ValueSize = o.Keys, o.ValueSize
	}
	if o.Retries != (workload.Retries{}) {
		r.Retries = &t.retries
	}
	for at, s := range t.shares[:t.parts.asked] {
		if s.Requests > 0 {
			r.Operations[t.parts.names[at]] = s.Requests
		}
		if t.targets != nil {
			r.Targets = append(r.Targets, t.targets[at].result(t.parts.names[at], s))
		}
	}
	r.Shares = t.parts.shares(t.shares)
	for status, n := range t.status {
		if n > 0 {
			r.Status[strconv.Itoa(status)] = n
			r.Requests += n
		}
	}
	for _, n := range t.errors {
		r.Requests += n
	}
	if measured > 0 {
		r.OfferedRPS = float64(t.scheduled) / measured.Seconds()
		r.CompletedRPS = float64(t.completed) / measured.Seconds()
		r.ServedRPS = float64(t.served) / measured.Seconds()
		r.GoodputRPS = float64(t.good) / measured.Seconds()
		r.SentGoodputRPS = float64(t.sentGood) / measured.Seconds()
		r.CompletedGoodRPS = float64(t.nowGood) / measured.Seconds()
	}
	for _, in := range t.timeline {
		p := percentiles(in.latency)
		in.P50, in.P99, in.Max = p.P50, p.P99, p.Max
		r.Timeline = append(r.Timeline, in.Interval)
	}
	return r
}
