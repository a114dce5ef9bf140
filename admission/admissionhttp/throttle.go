package admissionhttp

import "time"

// throttle decides which requests not to send to a service that refuses most of
// them: a share of
//
//	(requests - 2 * accepts - slack) / (requests + 1)
//
// if that is more than 0, where requests are all that were wanted in the last ten
// seconds, and accepts those of them that the service has answered. So it is sent
// about twice as many as it accepts, and a few more: enough to see soon that it
// accepts more again, and no more than it can refuse cheaply.
//
// The book has two minutes, and no slack. From a service that has refused everything
// that window takes ten minutes to come back, ours half a minute. The slack keeps a
// client with few requests from giving up after the first refusal.
type throttle struct {
	periods [20]struct{ requests, accepts int }
	sum     struct{ requests, accepts int } // of all periods
	current int64                           // the number of the youngest period
}

const (
	period = 500 * time.Millisecond
	slack  = 10
)

// advance forgets what is older than ten seconds.
func (t *throttle) advance(now time.Time) {
	n := now.UnixNano() / int64(period)
	if n-t.current >= int64(len(t.periods)) || n < t.current { // so long ago, or a clock that was set
		*t = throttle{current: n}
		return
	}
	for t.current < n {
		t.current++
		p := &t.periods[t.current%int64(len(t.periods))]
		t.sum.requests -= p.requests
		t.sum.accepts -= p.accepts
		p.requests, p.accepts = 0, 0
	}
}

// admit counts a request, and reports whether it is sent. The draw is from 0 to 1.
func (t *throttle) admit(now time.Time, draw float64) bool {
	t.advance(now)
	surplus := float64(t.sum.requests - 2*t.sum.accepts - slack)
	admitted := draw*float64(t.sum.requests+1) >= surplus
	t.periods[t.current%int64(len(t.periods))].requests++
	t.sum.requests++
	return admitted
}

// accepted counts a request that the service has answered.
func (t *throttle) accepted(now time.Time) {
	t.advance(now)
	t.periods[t.current%int64(len(t.periods))].accepts++
	t.sum.accepts++
}

// forget takes back that a request was counted.
func (t *throttle) forget(now time.Time) {
	t.advance(now)
	t.periods[t.current%int64(len(t.periods))].requests--
	t.sum.requests--
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
