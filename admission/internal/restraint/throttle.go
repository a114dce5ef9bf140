package restraint

import (
	"math"
	"time"
)

// throttle decides which requests not to send to a service that refuses most of them: a
// share of
//
//	(requests - 2 * accepted - slack) / (requests + 1)
//
// if that is more than 0. Requests are those of the last ten seconds that were answered,
// and those that were not sent. The latter count in full while half of the answered ones
// or more were refused, and for less the fewer were. Nothing is held back for a difference
// that chance may make where half is accepted.
//
// What is under way counts for nothing. So a service that refuses nothing is sent
// everything, and ten seconds after the last refusal it is so again. A service that
// refuses is sent about twice as many as it accepts, and a few more: enough to see soon
// that it accepts more again, and no more than it can refuse cheaply.
//
// The book has two minutes, no slack, and always counts in full what was not sent. A
// client that has held back everything then goes on with that for minutes after the
// service is well again. The slack keeps a client with few requests from giving up after
// the first refusal.
type throttle struct {
	periods [20]counts
	sum     counts // of all periods
	current int64  // the number of the youngest period
}

// counts are of requests in a time.
type counts struct {
	answered int           // or waited for in vain
	accepted int           // of those
	held     int           // not sent
	took     time.Duration // until the accepted ones were answered, in all
}

const (
	period = 500 * time.Millisecond
	slack  = 10
	// deviations is how many standard deviations chance may make.
	deviations = 4
)

// advance forgets what is older than ten seconds, and returns the youngest period.
func (t *throttle) advance(now time.Time) *counts {
	n := now.UnixNano() / int64(period)
	if n-t.current >= int64(len(t.periods)) || n < t.current { // so long ago, or a clock that was set
		*t = throttle{current: n}
	}
	for t.current < n {
		t.current++
		p := &t.periods[t.current%int64(len(t.periods))]
		t.sum.answered -= p.answered
		t.sum.accepted -= p.accepted
		t.sum.held -= p.held
		t.sum.took -= p.took
		*p = counts{}
	}
	return &t.periods[n%int64(len(t.periods))]
}

// admit reports whether a request is sent. The draw is from 0 to 1.
func (t *throttle) admit(now time.Time, draw float64) bool {
	p := t.advance(now)
	requests, accepted := float64(t.sum.answered), float64(t.sum.accepted)
	chance := 0. // what it may add to the difference
	if requests > 0 {
		refused := (requests - accepted) / requests
		chance = deviations * 2 * math.Sqrt(accepted*refused)
		requests += float64(t.sum.held) * min(1, 2*refused)
	}
	if over := requests - 2*accepted - slack; over <= chance || draw*(requests+1) >= over {
		return true
	}
	p.held++
	t.sum.held++
	return false
}

// note counts what became of a request that was sent, after so long.
func (t *throttle) note(now time.Time, o Outcome, took time.Duration) {
	p := t.advance(now)
	switch {
	case o == Unknown, o == TimedOut && took < t.usual():
		return // who leaves before others have their answer says nothing of the service
	case o == Accepted:
		p.accepted++
		t.sum.accepted++
		p.took += took
		t.sum.took += took
	}
	p.answered++
	t.sum.answered++
}

// usual returns the mean time until a request is accepted, 0 if none was.
func (t *throttle) usual() time.Duration {
	if t.sum.accepted == 0 {
		return 0
	}
	return t.sum.took / time.Duration(t.sum.accepted)
}

// budget is what may be spent on retries: a tenth of the requests, and at first, or
// after a time without any, ten.
type budget struct {
	spent int // in tenths of a retry, less what was saved
}

const (
	retryCost   = 10 // requests
	budgetSaved = 10 * retryCost
)

// deposit counts a request.
func (b *budget) deposit() { b.spent = max(0, b.spent-1) }

func (b *budget) has() bool { return b.spent+retryCost <= budgetSaved }

// withdraw takes the cost of a retry, and reports whether it was there.
func (b *budget) withdraw() bool {
	if !b.has() {
		return false
	}
	b.spent += retryCost
	return true
}
