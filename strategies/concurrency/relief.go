package concurrency

import "math"

// relief sees whether fewer at once do more, where much time is lost to requests that time out.
// A resource may go on with those although nobody waits for them (orphans). They take from what
// begins later, under whatever limit, so blocks cannot tell that the limit is too high. Then, for
// as long as such requests take, or a few times as long, far fewer run, so that the resource can
// be done with them, and then half as many as before. If more is good then, no more than that may
// run for now.
type relief struct {
	phase phase
	began int64 // the phase

	// In this phase: requests, those that were good, the time of all, and of those that timed out.
	n, good, time, lost float64

	before rate    // of the last window in which too much was lost
	limit  int     // then
	held   int     // how many times as long as late few have run
	cap    float64 // no more may run
	next   int64   // not before that time once more
	wait   float64 // windows until then
}

// rate is how many were good in a nanosecond, and of how many requests that is known.
type rate struct{ good, n float64 }

type phase uint8

const (
	watching  phase = iota // how much is lost
	relieving              // few run
	checking               // half as many run
)

const (
	reliefLost  = 0.15 // the part of all time that is too much
	reliefAll   = 0.9  // the part that may be an outage as well
	reliefTimes = 1.5  // times as long as those take that time out is a window
	reliefSome  = 64   // requests in it, at least
	reliefCut   = 0.1  // to that part of the limit
	reliefHolds = 4    // times as long as those take that time out, at most
	reliefPart  = 0.5  // of the limit, which is tried then
	reliefGain  = 0.1  // by that more must be good, and
	reliefSure  = 2.   // by so many standard errors
	reliefWait  = 4.   // windows to the next at first, and how that grows if nothing came of it
	reliefRare  = 1024 // windows to the next, at most
	reliefRaise = 1.02 // how fast the cap is forgotten, in a window
)

func newRelief() relief { return relief{cap: math.Inf(1), wait: reliefWait} }

// ended notes that a request has ended.
func (r *relief) ended(took float64, dropped, late bool) {
	r.n++
	r.time += took
	switch {
	case !dropped:
		r.good++
	case late:
		r.lost += took
	}
}

func (r *relief) begin(p phase, now int64) {
	*r = relief{
		phase: p, began: now, before: r.before, limit: r.limit, held: r.held,
		cap: r.cap, next: r.next, wait: r.wait,
	}
}

// rest has nothing be tried again for some such windows.
func (r *relief) rest(now int64, window float64) {
	r.next = now + int64(min(r.wait*window, latest))
	r.begin(watching, now)
}

// failed forgets the cap, and has the next time be further off.
func (r *relief) failed(now int64, window float64) {
	r.cap = math.Inf(1)
	r.wait = min(r.wait*reliefWait, reliefRare)
	r.rest(now, window)
}

// jumped goes on at another time.
func (r *relief) jumped(now int64) {
	r.begin(watching, now)
	r.next = now
}

// few is how many run meanwhile.
func (r *relief) few() int { return int(math.Ceil(reliefCut * float64(r.limit))) }

// relieve sees, at the end of a block, what to do next. It returns the limit if few are to run,
// or else 0.
func (l *law) relieve() int {
	r := &l.relief
	now := l.past.at
	d := float64(now - r.began)
	late := l.timeouts.late
	window := reliefTimes * late
	switch {
	case r.phase == relieving && d >= late:
		r.held++
		switch {
		case r.lost < reliefLost*r.time || r.n == 0:
			r.cap = max(float64(l.least), reliefPart*float64(r.limit))
			r.begin(checking, now)
		case r.held < reliefHolds:
			r.begin(relieving, now)
			return r.few()
		default: // they time out, however few run
			l.center = float64(r.limit)
			r.failed(now, window)
		}
		return 0
	case r.phase == relieving:
		return r.few()
	case r.phase == watching && l.limit <= l.least: // fewer cannot run
		if late > 0 {
			r.cap *= math.Pow(reliefRaise, d/window)
		}
		r.begin(watching, now)
		return 0
	case d < window || r.n < reliefSome || late == 0:
		if l.calm > 0 && r.phase == watching {
			r.begin(watching, now)
		}
		return 0
	case r.phase == checking:
		gain := math.Log(max(1, r.good)/d) - math.Log(max(1/d, r.before.good))
		if gain > max(reliefGain, reliefSure*l.noise.spread(plain)*math.Sqrt(1/r.n+1/r.before.n)) {
			r.wait = reliefWait
			r.rest(now, window)
		} else {
			r.failed(now, window)
		}
		return 0
	case r.lost < reliefLost*r.time || now < r.next || l.calm > 0:
		r.cap *= reliefRaise
		r.begin(watching, now)
		return 0
	case r.lost > reliefAll*r.time: // it may be an outage; if not, the limit is cut anyway
		r.begin(watching, now)
		return 0
	}
	r.before = rate{r.good / d, r.n}
	r.limit, r.held = int(min(r.cap, max(l.center, float64(l.limit)))), 0
	r.begin(relieving, now)
	return r.few()
}
