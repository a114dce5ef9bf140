package concurrency

import "math"

// breaker is a circuit breaker (Nygard 2007). A resource may go on with what timed out, and be
// slower the more it has inside. Then even the least that may run may give it more to do than it
// gets rid of, and all that begins times out, for ever, unless nothing begins for a while.
type breaker struct {
	row     int // so many in a row timed out under the least limit
	opens   int // so many, and it opens
	healthy int // how many were good since it was open
}

const (
	breakerRow     = 8    // that time out, and it opens
	breakerAgain   = 2    // times as many, if it opens soon again, as they may time out whatever runs
	breakerRows    = 4096 // at most
	breakerHealthy = 32   // good ones, and that is no longer soon
	breakerPause   = 64   // times as long as those take that time out is a pause, at most, and
	breakerMost    = 6e10 // nanoseconds
)

func newBreaker() breaker { return breaker{opens: breakerRow} }

// open reports whether nothing may begin for now.
func (b *breaker) open() bool { return b.row >= b.opens }

// ended notes that a request has ended: whether it was dropped, and whether it timed out under the
// least limit.
func (b *breaker) ended(dropped, late bool) {
	switch {
	case late:
		b.row++
	case !dropped:
		b.healthy++
		if b.open() {
			b.opens, b.healthy = min(breakerAgain*b.opens, breakerRows), 0
		} else if b.healthy >= breakerHealthy {
			b.opens = breakerRow
		}
		b.row = 0
	}
}

// pause returns how long nothing may begin, in nanoseconds: as long as requests take that time out at
// first, and then twice as long each time. It is 0 if requests may begin.
func (l *law) pause() int64 {
	b := &l.breaker
	if !b.open() {
		return 0
	}
	times := min(math.Exp2(float64(b.row-b.opens)), breakerPause)
	return int64(min(times*l.timeouts.late, breakerMost))
}
