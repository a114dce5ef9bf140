// Package instruments states once what a controller tells to systems of metrics: which instruments there are, what each
// means, and what changes it. An adapter makes each of the tables in its system, and is a Sink.
package instruments

import (
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// Instrument describes one. Words of Name are parted by dots, and belong behind "spillway.".
type Instrument struct{ Name, Help string }

// Counter is one of Counters.
type Counter int

// The counters: those from Shed on also go by the reason.
const (
	Submitted Counter = iota
	Run
	Within
	LateWrong
	Shed
	WouldShed
)

// Counters count requests, by strategy.
var Counters = [...]Instrument{
	Submitted: {"tasks.submitted", "Requests that have asked for places, and have got them or were turned away."},
	Run:       {"tasks.run", "Requests that have got their places."},
	Within:    {"requests.within_objective", "Requests that were Good, and answered within the objective in force then."},
	LateWrong: {"late_wrong", "Requests that would have been turned away as late, and that were answered in time: of a hundred of those, one is let through to see."},
	Shed:      {"shed", "Requests that were turned away, by reason."},
	WouldShed: {"would_shed", "Requests that would have been turned away but for the mode observe, by reason; late are those that were answered later than the objective."},
}

// Time is one of Times.
type Time int

// The histograms.
const (
	Waited Time = iota
	Held
)

// Times are histograms of seconds, by strategy.
var Times = [...]Instrument{
	Waited: {"queue.wait", "Time that a request waited for its places, 0 if it had them at once."},
	Held:   {"held", "Time for which a request had its places."},
}

// Buckets returns the upper bounds of the service's histograms, in seconds.
func Buckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// Gauge is what can be asked of a controller at any moment.
type Gauge struct {
	Instrument
	Unit string // in the code of UCUM
	Kind Kind
	Of   func(*admission.Stats) (value float64, ok bool) // ok says whether there is one
}

// Kind is how the values of a Gauge are told apart.
type Kind int

// The kinds.
const (
	PerStrategy Kind = iota // of the active one alone
	Plain
	Sum // is plain, and only grows, as a counter does
)

// Gauges are all of them.
var Gauges = [...]Gauge{
	{Instrument{"strategy.info", "The active strategy, as a label. Always 1."}, "1", PerStrategy, func(*admission.Stats) (float64, bool) { return 1, true }},
	{Instrument{"queue.depth", "Requests that wait."}, "{request}", PerStrategy, func(s *admission.Stats) (float64, bool) { return float64(s.Waiting), true }},
	{Instrument{"queue.capacity", "Requests that may wait; absent if none ever does, or if there is no bound."}, "{request}", PerStrategy, func(s *admission.Stats) (float64, bool) {
		return float64(s.Capacity), s.Capacity != 0 && s.Capacity != strategies.Unbounded
	}},
	{Instrument{"queue.limit", "Requests that the strategy means to let wait at present; absent if it has no such limit."}, "{request}", PerStrategy, func(s *admission.Stats) (float64, bool) { return float64(s.Limit), s.Limit != 0 }},
	{Instrument{"queue.pace", "Time from one request let through to the next, as the strategy has measured it; absent if it measures none."}, "s", PerStrategy, func(s *admission.Stats) (float64, bool) { return s.Pace.Seconds(), s.Pace != 0 }},
	{Instrument{"workers", "Places: how many requests of a cost of 1 are let through at once; absent if their number is learned in the mode observe, which holds nobody back."}, "{place}", PerStrategy, func(s *admission.Stats) (float64, bool) {
		return float64(s.Concurrency), s.Learned == nil || s.Learned.Limit != 0
	}},
	{Instrument{"workers.busy", "Places that are not free."}, "{place}", PerStrategy, func(s *admission.Stats) (float64, bool) { return float64(s.InUse), true }},
	{Instrument{"slo", "The latency objective that is set, 0 if none is."}, "s", Plain, func(s *admission.Stats) (float64, bool) { return max(0, s.Objective.Set.Seconds()), true }},
	{Instrument{"objective", "The latency objective in force, 0 if nobody is ever late."}, "s", Plain, func(s *admission.Stats) (float64, bool) { return max(0, s.Objective.InForce.Seconds()), true }},
	{Instrument{"concurrency.limit", "How many places there are, as learned; absent if the number is given, or in the mode observe."}, "{place}", PerStrategy, learned(func(l *admission.Learned) (float64, bool) { return float64(l.Limit), l.Limit != 0 })},
	{Instrument{"concurrency.max", "The most that the learned number may be; absent if the number is given."}, "{place}", PerStrategy, learned(func(l *admission.Learned) (float64, bool) { return float64(l.Max), true })},
	{Instrument{"concurrency.stuck", "Places that are not given back, included in concurrency_limit; absent if the number is given."}, "{place}", PerStrategy, learned(func(l *admission.Learned) (float64, bool) { return float64(l.Stuck), true })},
	{Instrument{"concurrency.paused", "1 while the latest timed out, so that no more requests are let through than MinConcurrency or, without it, one now and then; absent if the number is given."}, "1", PerStrategy, learned(func(l *admission.Learned) (float64, bool) { return one(l.Paused), true })},
	{Instrument{"concurrency.dropped", "Requests that were Dropped, of which the number is learned; absent if it is given."}, "{request}", Sum, learned(func(l *admission.Learned) (float64, bool) { return float64(l.Dropped), true })},
}

// learned returns what reads a learned number, if there is one.
func learned(of func(*admission.Learned) (float64, bool)) func(*admission.Stats) (float64, bool) {
	return func(s *admission.Stats) (float64, bool) {
		if s.Learned == nil {
			return 0, false
		}
		return of(s.Learned)
	}
}

// one returns 1 for true.
func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Sink takes what requests change. It is used by many goroutines at once.
type Sink interface {
	// Count counts a request. The reason is ReasonNone for counters that do not go by it.
	Count(c Counter, strategy string, reason strategies.Reason)
	// Time tells of a time of a request.
	Time(t Time, strategy string, took time.Duration)
}

// Tell has the hooks of o tell to as well.
func Tell(o *admission.Options, to Sink) {
	o.Admitted = both(func(e admission.Event) {
		to.Count(Submitted, e.Strategy, strategies.ReasonNone)
		to.Count(Run, e.Strategy, strategies.ReasonNone)
		to.Time(Waited, e.Strategy, e.Waited)
	}, o.Admitted)
	o.Released = both(func(e admission.Event) {
		to.Time(Held, e.Strategy, e.Held)
		if e.InTime {
			to.Count(Within, e.Strategy, strategies.ReasonNone)
		}
		if e.LateWrong {
			to.Count(LateWrong, e.Strategy, strategies.ReasonNone)
		}
	}, o.Released)
	o.Shed = both(func(e admission.Event) {
		if e.Observed {
			to.Count(WouldShed, e.Strategy, e.Reason)
			return
		}
		to.Count(Submitted, e.Strategy, strategies.ReasonNone)
		to.Count(Shed, e.Strategy, e.Reason)
	}, o.Shed)
}

func both(f, g func(admission.Event)) func(admission.Event) {
	if g == nil {
		return f
	}
	return func(e admission.Event) {
		f(e)
		g(e)
	}
}
