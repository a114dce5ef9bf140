package loadtest

import "time"

// Tally counts what becomes of the requests of a load that something else than
// Run sends, and makes a [Result] of it. Times are since the start of the load,
// warm-up included. It is not safe for concurrent use.
type Tally struct {
	o      Options
	plan   plan
	counts *counts
}

// NewTally returns a tally of the load that o describes.
func NewTally(o Options) *Tally {
	t := &Tally{o: o.WithDefaults()}
	t.plan = plan{from: t.o.Warmup, to: t.o.Warmup + t.o.Duration, step: TimelineStep(t.o.Duration), closed: t.o.Rate == 0}
	t.counts = newCounts(&t.o, &t.plan)
	return t
}

// Part returns the part of the load that has an operation, a priority, or -1, and
// a client, or "".
func (t *Tally) Part(op Op, priority int8, client string) Part {
	return t.counts.parts.of(op, priority, client)
}

// Offered counts a request of a part, whose time has come.
func (t *Tally) Offered(scheduled time.Duration, part Part) { t.counts.offered(scheduled, part) }

// Answered counts a request that was sent and has its answer now, with an HTTP
// status of 100 to 999 and what its Spillway-Shed says, if anything.
func (t *Tally) Answered(scheduled, sent, now time.Duration, part Part, status int, shed string) {
	t.counts.answered(scheduled, sent, now, part, &response{status: status, shed: shed})
}

// Retried counts that a request was sent again so often.
func (t *Tally) Retried(scheduled time.Duration, times int) { t.counts.retried(scheduled, times) }

// TimedOut counts a request that is given up now without an answer.
func (t *Tally) TimedOut(scheduled, sent, now time.Duration) {
	t.counts.failed(scheduled, sent, now, ErrorTimeout)
}

// Unsent counts a request that is given up now because it had no connection.
func (t *Tally) Unsent(scheduled, now time.Duration) {
	t.counts.failed(scheduled, never, now, ErrorUnsent)
}

// Result returns what has been counted, once every request of the window has
// ended.
func (t *Tally) Result() *Result {
	return newResult(&t.o, t.counts, time.Time{}, t.o.Duration)
}

// TimelineStep returns the length of the intervals of a Result's timeline: it
// shows a course in a short window, and bounds the memory of a long one.
func TimelineStep(window time.Duration) time.Duration {
	const most = 600 // entries
	return max(min(max(window/20, 100*time.Millisecond), time.Second), window/most)
}
