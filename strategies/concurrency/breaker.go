package concurrency

import "math"

// breaker is a circuit breaker (Nygard 2007). A resource may go on with what timed out, and be
// slower the more it has inside. Then even the least that may run may give it more to do than it
// gets rid of, and all that begins times out, for ever, unless nothing begins for a while.
type breaker struct {
	row     int     // so many in a row timed out under the least limit
	opens   int     // so many, and it opens
	healthy int     // how many were good since it was open
	took    float64 // how long the last took that timed out
	since   int64   // when that was
}

const (
	breakerRow     = 8    // that time out, and it opens
	breakerAgain   = 2    // times as many, if it opens soon again, as they may time out whatever runs
	breakerRows    = 4096 // at most
	breakerHealthy = 32   // good ones, and that is no longer soon
	breakerPause   = 16   // times as long as one took that timed out is a pause, at most, and
	breakerMost    = 1e10 // nanoseconds
)

func newBreaker() breaker { return breaker{opens: breakerRow} }

// open reports whether nothing may begin for now.
func (b *breaker) open() bool { return b.row >= b.opens }

// ended notes that a request has ended, whether it timed out, and whether the limit was the least.
// Those that ran already when it opened do not have it open for longer.
func (b *breaker) ended(s *Sample, late, least bool) {
	switch {
	case late && (b.open() && s.Began >= b.since || !b.open() && least):
		b.row++
		b.took, b.since = float64(s.Now-s.Began), s.Now
	case !s.Dropped:
		b.healthy++
		if b.open() {
			b.opens, b.healthy = min(breakerAgain*b.opens, breakerRows), 0
		} else if b.healthy >= breakerHealthy {
			b.opens = breakerRow
		}
		b.row = 0
	}
}

// pause returns how long nothing may begin, in nanoseconds: as long as one took that timed out at
// first, and then twice as long each time. It is 0 if requests may begin.
func (b *breaker) pause() int64 {
	if !b.open() {
		return 0
	}
	times := min(math.Exp2(float64(b.row-b.opens)), breakerPause)
	return int64(min(times*b.took, breakerMost))
}
